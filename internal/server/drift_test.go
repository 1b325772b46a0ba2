package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/tuning"
)

// audit has a host report what its audit finds: rules, which are warnings.
func (h *linked) audit(release string, rules ...string) {
	h.t.Helper()
	f := h.facts("a", "b")
	f.Kind, f.Version, f.Audited = "amd", release, true
	for _, rule := range rules {
		f.Findings = append(f.Findings, fleet.HostFinding{Rule: rule, Severity: "warning", Places: 1})
	}
	h.tell(fleet.Report{Instance: "a", Facts: f})
}

// TestDrift: what came and what went since a time; an agent that was just started, and has not audited yet, changes
// nothing, and what came and went again is no change.
func TestDrift(t *testing.T) {
	l := newLab(t)
	h, begin := l.joined("wn-1"), l.clock()
	l.pass(time.Hour)
	h.audit("1", "ksm-on-compute", "smt-off")
	l.pass(time.Hour)
	second := l.clock()
	h.audit("1", "ksm-on-compute", "host-swap-in-use")
	h.tell(fleet.Report{Instance: "a", Facts: h.facts("a", "b")})
	l.pass(time.Hour)
	third := l.clock()
	h.audit("2", "ksm-on-compute", "host-swap-in-use", "psi-off")
	l.pass(time.Hour)
	h.audit("2", "ksm-on-compute", "psi-off")
	drift := func(who farm.Identity, f AuditFilter, since time.Time) AuditDrift {
		a, err := l.Hosts.Audit(t.Context(), who, f, since)
		if err != nil {
			t.Fatal(err)
		}
		return a.Drift
	}
	host := func(rule string, came bool, at time.Time, updated bool) HostDrift {
		return HostDrift{Name: "wn-1", Cell: "east", Kind: "amd", Rule: rule, Came: came, At: at, Updated: updated}
	}
	for since, want := range map[time.Time]AuditDrift{
		begin: {First: 1, Rules: []RuleDrift{{Rule: "psi-off", Came: 1}, {Rule: "smt-off", Gone: 1}},
			Hosts: []HostDrift{host("psi-off", true, third, true), host("smt-off", false, second, false)}},
		second: {Rules: []RuleDrift{{Rule: "psi-off", Came: 1}, {Rule: "smt-off", Gone: 1}},
			Hosts: []HostDrift{host("psi-off", true, third, true), host("smt-off", false, second, false)}},
		third: {Rules: []RuleDrift{{Rule: "host-swap-in-use", Gone: 1}, {Rule: "psi-off", Came: 1}},
			Hosts: []HostDrift{host("host-swap-in-use", false, l.clock(), false), host("psi-off", true, third, true)}},
		l.clock().Add(time.Second): {}} {
		want.Since = since
		if d := cmp.Diff(want, drift(site, AuditFilter{}, since)); d != "" {
			t.Errorf("since %v: %s", since, d)
		}
	}
	advice := tuning.Advice.String()
	for _, c := range []struct {
		want int
		f    AuditFilter
	}{{2, AuditFilter{Cell: "east", Kind: "amd"}}, {1, AuditFilter{Rule: "psi-off"}}, {0, AuditFilter{Cell: "west"}},
		{1, AuditFilter{Severity: advice}}, {0, AuditFilter{Severity: "fault"}}} {
		if d := drift(site, c.f, begin); len(d.Hosts) != c.want {
			t.Errorf("%+v: %+v", c.f, d)
		}
	}
	if d := drift(ann, AuditFilter{}, begin); d.First+len(d.Hosts) != 0 {
		t.Errorf("of nobody: %+v", d)
	}
	l.pass(keepFindings - time.Hour)
	if err := l.upkeep.prune(t.Context(), l.epoch()); err != nil {
		t.Fatal(err)
	}
	if d := drift(site, AuditFilter{}, begin); d.First != 0 || len(d.Hosts) != 2 || d.Hosts[1].Rule != "psi-off" {
		t.Errorf("of 400 days: %+v", d)
	}
}

// TestDriftShown: an answer has some changes, and says how many more there are.
func TestDriftShown(t *testing.T) {
	l := newLab(t)
	a, b := l.machine("a", "east"), l.machine("b", "east")
	l.update(func(tx *store.Tx) error {
		var all []store.FindingChange
		for n := range driftsShown + 5 {
			all = append(all, store.FindingChange{Host: a.ID, At: l.clock(), Rule: fmt.Sprintf("rule-%03d", n),
				Came: true})
		}
		if err := tx.AddFindingChanges(all); err != nil {
			return err
		}
		return tx.AddFindingChanges([]store.FindingChange{{Host: b.ID, At: l.clock(), Rule: "rule-001", Came: true}})
	})
	found, err := l.Hosts.Audit(t.Context(), site, AuditFilter{}, l.clock())
	d := found.Drift
	if err != nil || len(d.Hosts) != driftsShown || d.More != 6 || len(d.Rules) != driftsShown+5 ||
		d.Rules[1].Came != 2 {
		t.Errorf("%d hosts, %d more, %d rules, %v", len(d.Hosts), d.More, len(d.Rules), err)
	}
}
