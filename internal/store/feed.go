package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Change is one object that was written or deleted.
type Change struct {
	Revision int64
	Kind     Kind
	ID       string // name, where the kind has no ID; "project/name" of a group
	Project  string // of a VM; "": none
	// of a VM, a stream or a orphan: whose wanted list it changes. A VM that leaves a host is two changes
	Host    string
	Deleted bool
}

// Kind is a kind of object.
type Kind string

// The kinds.
const (
	KindVM      Kind = "vm"
	KindHost    Kind = "host"
	KindCell    Kind = "cell"
	KindProject Kind = "project"
	KindShape   Kind = "shape"
	KindScore   Kind = "score"
	KindNetwork Kind = "network"
	KindGroup   Kind = "group"
	// of a security group, or of its VMs: each host with VMs of the project has a line of its own
	KindSecurityGroup Kind = "security-group"
	KindUser          Kind = "user"
	KindGrant         Kind = "grant"
	KindMapping       Kind = "mapping"
	KindToken         Kind = "token"
	KindJoinToken     Kind = "join-token"
	KindStream        Kind = "stream"
	KindOrphan        Kind = "stranger"
	KindMove          Kind = "move" // of no change: those of a move are of its VM
	KindSetting       Kind = "setting"

	KindImage      Kind = "image" // of the catalogue, by digest
	KindImageName  Kind = "image-name"
	KindImageOrder Kind = "image-order"
	KindImageTask  Kind = "image-task" // of one host
)

// changed notes a change for the feed, which is written at the end.
func (t *sqlTx) changed(c Change) {
	t.wrote = true
	c.Revision = t.revision
	if c.Kind == KindVM {
		delete(t.entered, c.ID) // its row is another one now
	}
	t.changes = append(t.changes, c)
}

// feedRows are the change feed.
type feedRows struct{ *sqlTx }

// writeFeed writes what changed, one line for each object and host, and prunes the feed now and then.
func (t feedRows) writeFeed() error {
	t.changes = finals(t.changes)
	for _, c := range t.changes {
		if _, err := t.exec("INSERT INTO changes (revision, kind, id, project, host, deleted) VALUES ($1, $2, $3, "+
			"$4, $5, $6)", t.revision, string(c.Kind), c.ID, c.Project, c.Host, number(c.Deleted)); err != nil {
			return err
		}
	}
	return t.prune()
}

// finals are the last changes of each object and host, in the order of the feed.
func finals(changes []Change) []Change {
	at := make(map[Change]int, len(changes))
	out := make([]Change, 0, len(changes))
	for _, c := range changes {
		key := Change{Kind: c.Kind, ID: c.ID, Host: c.Host}
		if i, again := at[key]; again {
			out[i] = c
			continue
		}
		at[key] = len(out)
		out = append(out, c)
	}
	inOrder(out)
	return out
}

// prune keeps the feed a little longer than keep revisions. It drops a few at a time, for writers behind it wait as
// long as that takes.
func (t feedRows) prune() error {
	keep := t.store.keep
	if t.revision%max(keep/1000, 1) != 0 || t.revision <= keep {
		return nil
	}
	if _, err := t.exec("DELETE FROM changes WHERE revision <= $1", t.revision-keep); err != nil {
		return err
	}
	_, err := t.exec("UPDATE farm SET feed_from = $1 WHERE id = 1", t.revision-keep)
	return err
}

// Changes are what changed after a revision, oldest first, and the revision up to which that is all. They are whole
// revisions: more than limit when the first one alone is. farm.CodeFeedGone: the feed does not reach back so far, or
// the revision is of another farm; list anew.
func (s *Store) Changes(ctx context.Context, after int64, limit int) (changes []Change, upTo int64, err error) {
	if changes, upTo, ok := s.recent.since(after, math.MaxInt64, limit); ok {
		return changes, upTo, nil
	}
	err = s.View(ctx, func(t *Tx) error {
		changes, upTo, err = t.Changes(after, limit)
		return err
	})
	return changes, upTo, err
}

// Changes is as Store.Changes, in a transaction that reads what changed as well.
func (t feedRows) Changes(after int64, limit int) (changes []Change, upTo int64, err error) {
	if changes, upTo, ok := t.store.recent.since(after, t.revision, limit); ok {
		return changes, upTo, nil
	}
	var from int64
	if err := t.row("SELECT feed_from FROM farm WHERE id = 1").Scan(&from); err != nil {
		return nil, 0, err
	}
	if after < from || after > t.revision {
		return nil, 0, &farm.Error{Kind: farm.Conflict, Code: farm.CodeFeedGone,
			Message: fmt.Sprintf("the changes after revision %d are not kept any more", after),
			Hint:    "list anew, and watch from the revision of that list"}
	}
	return t.changesAfter(after, limit)
}

func (t feedRows) changesAfter(after int64, limit int) ([]Change, int64, error) {
	changes, err := t.readChanges("WHERE revision > $1 ORDER BY revision, kind, id, host LIMIT $2", after, limit+1)
	if err != nil || len(changes) <= limit {
		return changes, t.revision, err
	}
	cut := changes[limit].Revision // this one may not be whole
	whole, _ := slices.BinarySearchFunc(changes, cut,
		func(c Change, revision int64) int { return cmp.Compare(c.Revision, revision) })
	if whole > 0 {
		return changes[:whole], cut - 1, nil
	}
	changes, err = t.readChanges("WHERE revision = $1 ORDER BY revision, kind, id, host", cut)
	return changes, cut, err
}

func (t feedRows) readChanges(where string, args ...any) (changes []Change, err error) {
	err = t.each(func(r scanner) error {
		var c Change
		if err := r.Scan(&c.Revision, &c.Kind, &c.ID, &c.Project, &c.Host, &c.Deleted); err != nil {
			return err
		}
		changes = append(changes, c)
		return nil
	}, "SELECT revision, kind, id, project, host, deleted <> 0 FROM changes "+where, args...)
	return changes, err
}

// feed wakes those who wait for a revision.
type feed struct {
	mu      sync.Mutex
	latest  int64
	moved   chan struct{} // closes when latest rises
	waiting int
	asked   chan struct{} // has a token when somebody waits
}

func (f *feed) start(revision int64) {
	f.latest, f.moved, f.asked = revision, make(chan struct{}), make(chan struct{}, 1)
}

// advance reports that a revision is there.
func (f *feed) advance(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if revision > f.latest {
		f.latest = revision
		close(f.moved)
		f.moved = make(chan struct{})
	}
}

// seen is the latest revision that is known.
func (f *feed) seen() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest
}

// wait enters somebody who waits, unless the revision is there; leave takes him out.
func (f *feed) wait(after int64) (latest int64, moved <-chan struct{}, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.latest > after {
		return f.latest, nil, nil
	}
	f.waiting++
	select {
	case f.asked <- struct{}{}:
	default:
	}
	return f.latest, f.moved, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.waiting--
	}
}

func (f *feed) awaited() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting > 0
}

// Wait returns when the store's revision is above after, whoever wrote, or ctx ends; it returns the revision. A write
// of this process is seen at once, one of another by PostgreSQL's notification, or within half a second.
func (s *Store) Wait(ctx context.Context, after int64) (int64, error) {
	for {
		latest, moved, leave := s.feed.wait(after)
		if leave == nil {
			return latest, nil
		}
		select {
		case <-moved:
			leave()
		case <-ctx.Done():
			leave()
			return latest, ctx.Err()
		}
	}
}

// watch looks at the revision as long as somebody waits: others may write too.
func (s *Store) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.feed.asked:
		}
		for s.feed.awaited() && ctx.Err() == nil {
			s.look(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(s.poll):
			}
		}
	}
}

// look reads the revision. A dead database is told to those who ask it for something.
func (s *Store) look(ctx context.Context) {
	if revision, err := s.revision(ctx); err == nil {
		s.feed.advance(revision)
	}
}

// listen looks whenever another process says that it has written, where the engine can tell. Until it listens again
// after a broken connection, watch alone is there.
func (s *Store) listen(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.engine.listen(ctx, func() { s.look(ctx) }); err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(relisten):
		}
	}
}
