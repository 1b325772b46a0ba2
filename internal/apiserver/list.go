package apiserver

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
)

// Paging is which part of a list is wanted.
type Paging struct {
	After string `query:"after" maxLength:"400" doc:"Page.next of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"the most items"`
}

// listOf answers with one page of what get returns, in the order of its keys: its route is one of route.whole. The
// revision is read before, so that a watch from it misses nothing.
func listOf[V, T any](ctx context.Context, a *API, p Paging, view func(V) T, key func(T) string,
	get func() ([]V, error)) (*one[fleet.Page[T]], error) {
	revision, err := a.server.Revision(ctx)
	if err != nil {
		return nil, err
	}
	found, err := get()
	if err != nil {
		return nil, err
	}
	items := make([]T, len(found))
	for i, v := range found {
		items[i] = view(v)
	}
	slices.SortFunc(items, func(x, y T) int { return strings.Compare(key(x), key(y)) })
	return oneOf(cut(p, items, key, revision), 0), nil
}

// cut is one page of items in the order of their keys.
func cut[T any](p Paging, items []T, key func(T) string, revision int64) fleet.Page[T] {
	if p.After != "" {
		start := slices.IndexFunc(items, func(v T) bool { return key(v) > p.After })
		if start < 0 {
			start = len(items)
		}
		items = items[start:]
	}
	out := fleet.Page[T]{Items: items, Revision: revision}
	if len(items) > p.Limit {
		out.Items, out.Next = items[:p.Limit], key(items[p.Limit-1])
	}
	return out
}

// one is an answer of one object; its revision is its ETag.
type one[T any] struct {
	ETag string `header:"ETag" doc:"the object's revision; If-Match takes it"`
	Body T
}

func oneOf[T any](v T, revision int64) *one[T] {
	o := &one[T]{Body: v}
	if revision != 0 {
		o.ETag = fleet.ETag(revision)
	}
	return o
}

// answered is an answer without a revision.
func answered[T any](v T, err error) (*one[T], error) {
	if err != nil {
		return nil, err
	}
	return oneOf(v, 0), nil
}

// nothing is an answer without a body.
type nothing struct{}

// Seen is the revision that a change is meant for.
type Seen struct {
	IfMatch string `header:"If-Match" maxLength:"40" doc:"do it only to this revision of the object, as ETag returned it; otherwise 409 says what changed"`
	seen    int64  // 0: any will do
}

// Put is the revision that a change is meant for, of something that the same request may create.
type Put struct {
	Seen
	IfNoneMatch string `header:"If-None-Match" maxLength:"40" doc:"*: create it, and answer 409 where there is one of this name already"`
}

// Once is the key under which a request makes its things once.
type Once struct {
	Key string `header:"Idempotency-Key" maxLength:"100" doc:"a random text of the caller's: the same request under the same key makes its things once, and is answered alike, but for secrets, which are returned once"`
}

func (p *Put) read() error {
	switch {
	case p.IfNoneMatch == "":
		return p.Seen.read()
	case p.IfNoneMatch != "*" || p.IfMatch != "":
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: "If-None-Match: invalid value " + strconv.Quote(p.IfNoneMatch),
			Hint:    "write `If-None-Match: *`, without If-Match, to create an object"}
	}
	p.seen = action.Absent
	return nil
}

// read is called for every route whose input has it, before the route is.
func (m *Seen) read() error {
	text := strings.TrimPrefix(m.IfMatch, "W/")
	if text == "" || text == "*" {
		return nil
	}
	n, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
	if err != nil || n <= 0 {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: "If-Match: invalid revision " + strconv.Quote(m.IfMatch),
			Hint:    `write it as ETag returned it: If-Match: "17"`}
	}
	m.seen = n
	return nil
}
