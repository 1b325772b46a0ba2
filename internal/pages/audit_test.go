package pages

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// found sets what the audit found on a host of the lab.
func (l *lab) found(host, kind string, findings ...farm.HostFinding) {
	l.t.Helper()
	_, err := l.store.Update(l.t.Context(), func(tx *store.Tx) error {
		h, err := tx.HostNamed(host)
		if err != nil {
			return err
		}
		h.Facts.Kind, h.Facts.Audited, h.Facts.Findings = kind, true, findings
		return tx.SetHostFacts(h.ID, h.Facts)
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// lacks is that a page has none of these.
func (l *lab) lacks(user, path string, not ...string) {
	l.t.Helper()
	_, body, _ := l.as(user, path, nil)
	for _, n := range not {
		if strings.Contains(body, n) {
			l.t.Errorf("%s of %s has %q:\n%s", path, user, n, body)
		}
	}
}

// TestAudit: findings by rule, cost and hardware, of hosts that one may see.
func TestAudit(t *testing.T) {
	l := newLab(t)
	l.shows("otto", "/audit", "1 host.", "<strong>1</strong> has not reported", "Nothing was found.")
	l.shows("otto", "/hosts/h1", "The host has not reported one.")
	l.found("h2", "intel", farm.HostFinding{Rule: "ept-off", Severity: "fault", Places: 1})
	l.found("h1", "amd")
	l.shows("otto", "/audit", "Nothing was found on 1 of them.")
	l.lacks("otto", "/audit", "ept-off", "intel", "not reported")
	l.found("h1", "amd", farm.HostFinding{Rule: "host-swap-in-use", Severity: "warning", Places: 1},
		farm.HostFinding{Rule: "<new>", Severity: "advice", Places: 3})
	l.shows("otto", "/audit", "host-swap-in-use", `<span class="state warn">warning`, "1 of 1", `href="/hosts/h1"`,
		`href="/audit?kind=amd&amp;rule=host-swap-in-use"`, "&lt;new&gt;", `href="/audit?rule=host-swap-in-use"`)
	l.lacks("otto", "/audit?severity=advice", ">host-swap-in-use<")
	l.shows("otto", "/audit?severity=fault", "Nothing was found that this filter chooses.")
	l.shows("otto", "/audit?rule=host-swap-in-use", "What it costs", "grange tune explain host-swap-in-use",
		`href="/hosts/h1"`, "/incidents/new?finding=host-swap-in-use")
	l.shows("otto", "/audit?rule=%3Cnew%3E", "&lt;new&gt;", `data-label="places">3`)
	l.lacks("otto", "/audit?rule=%3Cnew%3E", "What it costs")
	l.shows("otto", "/hosts/h1", `<a href="/audit?rule=host-swap-in-use">host-swap-in-use</a>`, "in 3 places")
	l.shows("eve", "/audit", "0 hosts.", "There are no hosts that you may see.")
}

// TestManyFound: a rule's hosts are on pages, each host on one of them.
func TestManyFound(t *testing.T) {
	l := newLab(t)
	const hosts = 2*hostsOfRule + 5
	_, err := l.store.Update(t.Context(), func(tx *store.Tx) error {
		for i := range hosts {
			h := farm.Host{ID: api.NewID(), Name: fmt.Sprintf("n%03d", i), Cell: "east", MachineID: fmt.Sprint(i)}
			h.Facts.Audited = true
			h.Facts.Findings = []farm.HostFinding{{Rule: "ept-off", Severity: "fault", Places: 1}}
			if err := tx.InsertHost(h); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.shows("otto", "/audit", fmt.Sprintf("and %d more", hosts-hostsInRow), "not known")
	l.eachOnce("otto", "/audit?rule=ept-off", regexp.MustCompile(`href="/hosts/n\d+"`), hosts)
}
