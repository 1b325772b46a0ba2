package usage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// keys are what a host's own records can be added up by.
var keys = map[string]func(api.Usage) string{
	"user":    func(u api.Usage) string { return u.User },
	"account": func(u api.Usage) string { return u.Account },
	"project": func(u api.Usage) string { return u.Project },
	"kind":    func(u api.Usage) string { return u.Kind },
	"month":   Month,
}

// Sum adds up records of one host, without a server: nothing there knows cells, VOs and scores.
type Sum struct {
	key   func(api.Usage) string
	lines map[string]*fleet.UsageLine
	seen  map[string]bool
}

// NewSum begins to add up by a word.
func NewSum(by string) (*Sum, error) {
	key, ok := keys[by]
	if !ok {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: fmt.Sprintf("records of this host are not added up by %q", by),
			Hint:    "by user, account, project, kind or month; the server knows more"}
	}
	return &Sum{key, map[string]*fleet.UsageLine{}, map[string]bool{}}, nil
}

// Add takes one record; one that it has already does nothing.
func (s *Sum) Add(u api.Usage) {
	if s.seen[u.ID] {
		return
	}
	s.seen[u.ID] = true
	key := s.key(u)
	l := s.lines[key]
	if l == nil {
		l = &fleet.UsageLine{Key: key}
		s.lines[key] = l
	}
	const hour = 3600
	l.Records++
	l.WallHours += u.Wall / hour
	l.CoreHours += u.Wall * float64(u.Cores) / hour
	if u.CPU != nil {
		l.CPUHours += *u.CPU / hour
	} else {
		l.CPUUnknown++
		l.CPUUnknownHours += u.Wall * float64(u.Cores) / hour
	}
	if u.JobCPU != nil {
		l.JobHours += *u.JobCPU / hour
	}
}

// Lines are the sums, in the order of their keys.
func (s *Sum) Lines() []fleet.UsageLine {
	out := []fleet.UsageLine{}
	for _, l := range s.lines {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b fleet.UsageLine) int { return strings.Compare(a.Key, b.Key) })
	return out
}
