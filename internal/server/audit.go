package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// AuditFilter chooses hosts and findings. Empty fields choose all.
type AuditFilter struct{ Cell, Kind, Severity, Rule string }

// host reports whether the filter chooses a host.
func (f AuditFilter) host(h MappedHost) bool {
	return (f.Cell == "" || f.Cell == h.Cell) && (f.Kind == "" || f.Kind == h.Kind)
}

// FleetAudit is what the tuning audit of each host found, added up.
type FleetAudit struct {
	Hosts   int // that the filter chooses and the caller may see
	Unknown int // of them, those that have not reported an audit
	Clean   int // of them, those that have, and nothing was found that the filter chooses
	Kinds   []string
	Cells   []string // of hosts that the caller may see, as Kinds
	Rules   []AuditRule
	Drift   AuditDrift // zero where it was not asked for
}

// AuditRule is a rule that found something, the most severe first, then that of the most hosts.
type AuditRule struct {
	Rule     string
	Severity string // the highest of its hosts
	Places   int    // on all of them
	On       []AuditedHost
	Kinds    []AuditKind // by name
}

// AuditKind is the hosts of one type of hardware on which a rule found something.
type AuditKind struct {
	Kind  string
	Hosts int
	Of    int // hosts of the type that have reported an audit
}

// AuditedHost is a host on which a rule found something.
type AuditedHost struct {
	Name, Cell, Kind, Severity string
	Places                     int
}

// Severities are those of findings, the worst first.
var Severities = []string{"fault", "warning", "advice"}

// worse orders severities; what a later release may call one is after those that are known.
func worse(a, b string) int {
	at := func(s string) uint { return uint(slices.Index(Severities, s)) } // of none: the largest
	return cmp.Compare(at(a), at(b))
}

// Audit returns what the tuning audit found on the hosts that the caller may see, as they have reported it, and what of
// that has changed since a time; zero: no changes.
func (hs Hosts) Audit(ctx context.Context, who farm.Identity, f AuditFilter, since time.Time) (FleetAudit, error) {
	hosts, err := hs.Map(ctx, who)
	if err != nil {
		return FleetAudit{}, err
	}
	a := sumAudit(hosts, f)
	if !since.IsZero() {
		a.Drift, err = hs.drift(ctx, who, hosts, f, since)
	}
	return a, err
}

// sumAudit adds up what was found on hosts that are in order by cell and name.
func sumAudit(hosts []MappedHost, f AuditFilter) FleetAudit {
	s := auditSum{rules: map[string]*AuditRule{}, kinds: map[string]int{}, on: map[[2]string]int{}}
	for _, h := range hosts {
		if !slices.Contains(s.Cells, h.Cell) {
			s.Cells = append(s.Cells, h.Cell)
		}
		if !slices.Contains(s.FleetAudit.Kinds, h.Kind) {
			s.FleetAudit.Kinds = append(s.FleetAudit.Kinds, h.Kind)
		}
		if f.host(h) {
			s.add(h, f)
		}
	}
	slices.Sort(s.Cells)
	slices.Sort(s.FleetAudit.Kinds)
	return s.done()
}

// auditSum is a sum that is being made.
type auditSum struct {
	FleetAudit
	rules map[string]*AuditRule
	kinds map[string]int    // hosts with an audit
	on    map[[2]string]int // hosts by rule and type of hardware
}

func (s *auditSum) add(h MappedHost, f AuditFilter) {
	s.Hosts++
	if !h.Audited {
		s.Unknown++
		return
	}
	s.kinds[h.Kind]++
	clean := true
	for _, found := range h.Findings {
		if f.Rule != "" && found.Rule != f.Rule || f.Severity != "" && found.Severity != f.Severity {
			continue
		}
		clean = false
		r := s.rules[found.Rule]
		if r == nil {
			r = &AuditRule{Rule: found.Rule, Severity: found.Severity}
			s.rules[found.Rule] = r
		}
		if worse(found.Severity, r.Severity) < 0 {
			r.Severity = found.Severity
		}
		r.Places += found.Places
		r.On = append(r.On, AuditedHost{Name: h.Name, Cell: h.Cell, Kind: h.Kind, Severity: found.Severity,
			Places: found.Places})
		s.on[[2]string{found.Rule, h.Kind}]++
	}
	if clean {
		s.Clean++
	}
}

func (s *auditSum) done() FleetAudit {
	for at, n := range s.on {
		r := s.rules[at[0]]
		r.Kinds = append(r.Kinds, AuditKind{Kind: at[1], Hosts: n, Of: s.kinds[at[1]]})
	}
	for _, r := range s.rules {
		slices.SortFunc(r.Kinds, func(a, b AuditKind) int { return cmp.Compare(a.Kind, b.Kind) })
		s.Rules = append(s.Rules, *r)
	}
	slices.SortFunc(s.Rules, func(a, b AuditRule) int {
		return cmp.Or(worse(a.Severity, b.Severity), cmp.Compare(len(b.On), len(a.On)), cmp.Compare(a.Rule, b.Rule))
	})
	return s.FleetAudit
}
