package server

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// TestAudit: findings by rule and hardware, of hosts that the caller may see.
func TestAudit(t *testing.T) {
	l := newLab(t)
	found := func(name, cell, kind string, findings ...farm.HostFinding) {
		h := l.host(name, cell)
		h.Facts.Kind, h.Facts.Audited, h.Facts.Findings = kind, findings != nil, findings
		l.update(func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, h.Facts) })
	}
	swap := farm.HostFinding{Rule: "swap", Severity: "advice", Places: 1}
	pages := farm.HostFinding{Rule: "pages", Severity: "warning", Places: 2}
	worst := farm.HostFinding{Rule: "pages", Severity: "fault", Places: 1}
	found("a", "east", "amd", swap, pages)
	found("b", "east", "intel", swap, worst)
	found("c", "west", "amd", swap)
	found("d", "west", "amd", []farm.HostFinding{}...)
	l.host("e", "west") // of an agent of before
	l.update(func(tx *store.Tx) error {
		h, err := tx.Host("id-d")
		h.Facts.Audited = true
		return errors.Join(err, tx.SetHostFacts(h.ID, h.Facts),
			tx.PutGrant(farm.Grant{User: "west", Role: farm.RoleReader, Cell: "west"}))
	})
	west := farm.Identity{User: "west"}
	for name, c := range map[string]struct {
		who  farm.Identity
		f    AuditFilter
		want string
	}{
		"all": {site, AuditFilter{}, "5 hosts, 1 unknown, 1 clean; pages fault 3 [{amd 1 3} {intel 1 1}] [a b]; " +
			"swap advice 3 [{amd 2 3} {intel 1 1}] [a b c]"},
		"of a cell": {site, AuditFilter{Cell: "west"}, "3 hosts, 1 unknown, 1 clean; swap advice 1 [{amd 1 2}] [c]"},
		"of hardware": {site, AuditFilter{Kind: "intel"}, "1 hosts, 0 unknown, 0 clean; " +
			"pages fault 1 [{intel 1 1}] [b]; swap advice 1 [{intel 1 1}] [b]"},
		"by cost": {site, AuditFilter{Severity: "warning"},
			"5 hosts, 1 unknown, 3 clean; pages warning 2 [{amd 1 3}] [a]"},
		"of a rule": {site, AuditFilter{Rule: "swap", Kind: "intel"},
			"1 hosts, 0 unknown, 0 clean; swap advice 1 [{intel 1 1}] [b]"},
		"by sight":   {west, AuditFilter{}, "3 hosts, 1 unknown, 1 clean; swap advice 1 [{amd 1 2}] [c]"},
		"by another": {west, AuditFilter{Cell: "east"}, "0 hosts, 0 unknown, 0 clean"},
		"nobody's":   {ann, AuditFilter{}, "0 hosts, 0 unknown, 0 clean"},
	} {
		a, err := l.Hosts.Audit(t.Context(), c.who, c.f, time.Time{})
		got := fmt.Sprintf("%d hosts, %d unknown, %d clean", a.Hosts, a.Unknown, a.Clean)
		for _, r := range a.Rules {
			var names []string
			for _, h := range r.On {
				names = append(names, h.Name)
			}
			got += fmt.Sprint("; ", r.Rule, " ", r.Severity, " ", r.Places, " ", r.Kinds, " ", names)
		}
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
}
