package server

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/tuning"
)

const (
	// keepFindings is how long it is kept what audits of hosts found and find no more.
	keepFindings = 400 * 24 * time.Hour
	// changesAtOnce bounds the changes that one comparison with an earlier time reads.
	changesAtOnce = 20000
	// driftsShown bounds the changes of single hosts that an answer has.
	driftsShown = 200
)

// AuditDrift is what audits of hosts find that they did not find at a time, and the other way round: what came and went
// again in between is none.
type AuditDrift struct {
	Since time.Time
	Rules []RuleDrift // by name
	Hosts []HostDrift // the latest change first
	More  int         // changes of hosts that are left out of Hosts
	First int         // hosts that were audited for the first time since then: that is no change
	Cut   time.Time   // there were more changes than are looked at: none from before this is; zero: all are
}

// RuleDrift is on how many hosts the findings of a rule came and went.
type RuleDrift struct {
	Rule       string
	Came, Gone int
}

// HostDrift is a rule of which a host has findings and had none, or had some and has none.
type HostDrift struct {
	Name, Cell, Kind, Rule string
	Came                   bool
	At                     time.Time // of the last change
	Updated                bool      // with another release of the agent, whose rules may be others
}

// drift is what has changed since a time on those of some hosts that a filter chooses.
func (hs Hosts) drift(ctx context.Context, who farm.Identity, hosts []MappedHost, f AuditFilter,
	since time.Time) (d AuditDrift, err error) {
	chosen := make(map[string]MappedHost, len(hosts))
	for _, h := range hosts {
		if f.host(h) {
			chosen[h.ID] = h
		}
	}
	err = hs.server.look(ctx, who, policy.ReadHost, func(c *call) error {
		changes, err := c.FindingChanges(since, changesAtOnce)
		d = driftOf(changes, func(c store.FindingChange) (h MappedHost, ok bool) {
			h, ok = chosen[c.Host]
			return h, ok && f.rule(c.Rule)
		})
		if d.Since = since; len(changes) == changesAtOnce {
			d.Cut = changes[0].At
		}
		return err
	})
	return d, err
}

// rule reports whether the filter chooses changes of a rule, by the severity that it has in this release; "": of none.
func (f AuditFilter) rule(id string) bool {
	if f.Severity != "" && id != "" {
		if r, err := tuning.RuleByID(id); err != nil || r.Severity.String() != f.Severity {
			return false
		}
	}
	return f.Rule == "" || f.Rule == id
}

// driftOf is what changes, the oldest first, come to on hosts that are chosen.
func driftOf(changes []store.FindingChange, host func(store.FindingChange) (MappedHost, bool)) (d AuditDrift) {
	first, last := map[[2]string]bool{}, map[[2]string]store.FindingChange{}
	for _, c := range changes {
		key := [2]string{c.Host, c.Rule}
		if _, known := first[key]; !known {
			first[key] = c.Came
		}
		last[key] = c
	}
	rules := map[string]*RuleDrift{}
	for key, c := range last {
		h, chosen := host(c)
		switch {
		case !chosen:
		case c.Rule == "":
			d.First++
		case first[key] == c.Came: // as it was not before all of these
			d.Hosts = append(d.Hosts, HostDrift{Name: h.Name, Cell: h.Cell, Kind: h.Kind, Rule: c.Rule, Came: c.Came,
				At: c.At, Updated: c.Updated})
			countDrift(rules, c)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		d.Rules = append(d.Rules, *rules[rule])
	}
	slices.SortFunc(d.Hosts, func(a, b HostDrift) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Rule, b.Rule))
	})
	if d.More = max(len(d.Hosts)-driftsShown, 0); d.More > 0 {
		d.Hosts = d.Hosts[:driftsShown]
	}
	return d
}

func countDrift(rules map[string]*RuleDrift, c store.FindingChange) {
	r := rules[c.Rule]
	if r == nil {
		r = &RuleDrift{Rule: c.Rule}
		rules[c.Rule] = r
	}
	if c.Came {
		r.Came++
	} else {
		r.Gone++
	}
}
