package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/incidents"
	"github.com/grange-project/grange/internal/store"
)

var (
	olga = farm.Identity{User: "olga", Means: "token", Source: "t4"} // operator of east
	rita = farm.Identity{User: "rita", Means: "token", Source: "t5"} // reader of alice
	bob  = farm.Identity{User: "bob", Means: "token", Source: "t6"}  // member of alice
)

// incidentLab has a host in each cell, and a VM of ann's in project alice on that of east.
func incidentLab(t *testing.T) *lab {
	l := newLab(t)
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutGrant(farm.Grant{User: "olga", Role: farm.RoleOperator, Cell: "east"}),
			tx.PutGrant(farm.Grant{User: "rita", Role: farm.RoleReader, Project: "alice"}),
			tx.PutGrant(farm.Grant{User: "bob", Role: farm.RoleMember, Project: "alice"}))
	})
	east := l.host("wn-1", "east")
	l.host("wn-2", "west")
	l.running(ann, CreateVM{Project: "alice", Name: "web", Image: "micro", Shape: "small"}, east)
	return l
}

func (l *lab) opened(who farm.Identity, o incidents.Opening) incidents.View {
	l.t.Helper()
	v, err := l.Incidents.Open(l.t.Context(), who, o)
	if err != nil {
		l.t.Fatal(err)
	}
	return v
}

// said are the entries of an incident as its reader sees them: who, what and the text.
func (l *lab) said(who farm.Identity, id int64) (lines []string) {
	l.t.Helper()
	v, err := l.Incidents.Get(l.t.Context(), who, id)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, e := range v.Said {
		line := []string{e.Who, string(e.Kind)}
		for _, k := range e.Concerns {
			line = append(line, k.Name)
		}
		lines = append(lines, strings.Join(append(line, e.Text), " "))
	}
	return lines
}

// TestIncident: a record that those whom a problem concerns write together, from its first day to its last.
func TestIncident(t *testing.T) {
	l := incidentLab(t)
	ctx, began := t.Context(), l.clock().Add(-time.Hour)
	v := l.opened(ann, incidents.Opening{Title: "jobs are slow", Text: "since today", Began: began,
		Names: incidents.Names{VMs: []string{"alice/web"}, Findings: []string{"host-swap-in-use"}}})
	if v.ID != 1 || v.Opener != "ann" || v.Severity != farm.SeverityMinor || !v.Began.Equal(began) || v.Closed ||
		!v.MayNote || !v.MayClose || v.Revision == 0 {
		t.Errorf("opened: %+v", v)
	}
	l.pass(time.Minute)
	major := incidents.Note{Text: "swap is full", Severity: farm.SeverityMajor}
	if _, err := l.Incidents.Note(ctx, olga, 1, major); err != nil {
		t.Error(err)
	}
	linked, err := l.Incidents.Link(ctx, olga, 1, incidents.Link{Names: incidents.Names{Hosts: []string{"wn-1"}}})
	if err != nil || len(linked.Concerns) != 3 || linked.Severity != farm.SeverityMajor {
		t.Errorf("linked: %+v, %v", linked, err)
	}
	again, err := l.Incidents.Link(ctx, olga, 1, incidents.Link{Names: incidents.Names{Hosts: []string{"id-wn-1"}}})
	if err != nil || again.Entries != linked.Entries || again.Revision != linked.Revision {
		t.Errorf("linked to the same: %+v, %v", again, err)
	}
	_, err = l.Incidents.Close(ctx, olga, 1, v.Revision, "", time.Time{})
	if code(err) != action.CodeChanged || !strings.Contains(err.Error(), "olga, incident.note") {
		t.Errorf("closed by who has not seen the last entries: %v", err)
	}
	if v, err = l.Incidents.Close(ctx, ann, 1, 0, "more memory", time.Time{}); err != nil || !v.Closed ||
		!v.Ended.Equal(l.clock()) {
		t.Errorf("closed by its opener: %+v, %v", v, err)
	}
	if _, err := l.Incidents.Close(ctx, olga, 1, 0, "", time.Time{}); code(err) != incidents.CodeIncidentState {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := l.Incidents.Note(ctx, bob, 1, incidents.Note{Text: "mine was slow, too"}); err != nil {
		t.Errorf("a note on a closed one: %v", err)
	}
	if v, err = l.Incidents.Reopen(ctx, olga, 1, 0, ""); err != nil || v.Closed || !v.Ended.IsZero() {
		t.Errorf("reopened: %+v, %v", v, err)
	}
	want := []string{"ann opened alice/web host-swap-in-use since today", "olga note swap is full",
		"olga linked wn-1 ", "ann closed more memory", "bob note mine was slow, too", "olga reopened "}
	if d := cmp.Diff(want, l.said(olga, 1)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	want[2] = "olga linked "
	if d := cmp.Diff(want, l.said(ann, 1)); d != "" {
		t.Errorf("of who may not see hosts (-want +got):\n%s", d)
	}
	entries, err := l.Entries(ctx, ann, EntryFilter{Who: "ann"})
	if err != nil || len(entries) < 2 || entries[0].Action != "incident.close" || entries[0].Target != "incident 1" ||
		entries[0].Project != "alice" || entries[0].Outcome != action.Done || entries[1].Reason != "jobs are slow" {
		t.Errorf("the audit log: %+v, %v", entries, err)
	}
}

// TestWhoMayIncident: rights come from what an incident concerns.
func TestWhoMayIncident(t *testing.T) {
	l := incidentLab(t)
	ctx := t.Context()
	open := func(n incidents.Names) func(farm.Identity) error {
		return func(who farm.Identity) error {
			_, err := l.Incidents.Open(ctx, who, incidents.Opening{Title: "a", Names: n})
			return err
		}
	}
	l.opened(ann, incidents.Opening{Title: "of ann's VM", Names: incidents.Names{VMs: []string{"alice/web"}}})
	l.opened(root, incidents.Opening{Title: "of the farm", Names: incidents.Names{Findings: []string{"ksm-on"}}})
	note := func(id int64) func(farm.Identity) error {
		return func(who farm.Identity) error {
			_, err := l.Incidents.Note(ctx, who, id, incidents.Note{Text: "a"})
			return err
		}
	}
	read := func(id int64) func(farm.Identity) error {
		return func(who farm.Identity) error { _, err := l.Incidents.Get(ctx, who, id); return err }
	}
	all := []farm.Identity{ann, bob, rita, otto, olga, site, eve}
	for what, c := range map[string]struct {
		do  func(farm.Identity) error
		may []farm.Identity
	}{
		"open about a VM": {open(incidents.Names{VMs: []string{"alice/web"}}),
			[]farm.Identity{ann, bob, olga, site}},
		"open about a project": {open(incidents.Names{Projects: []string{"alice"}}), []farm.Identity{ann, bob, site}},
		"open about a host":    {open(incidents.Names{Hosts: []string{"wn-1"}}), []farm.Identity{olga, site}},
		"open about a cell":    {open(incidents.Names{Cells: []string{"east"}}), []farm.Identity{olga, site}},
		"open about a VM and a host elsewhere": {open(incidents.Names{VMs: []string{"alice/web"}, Hosts: []string{"wn-2"}}),
			[]farm.Identity{site}},
		"open about nothing":    {open(incidents.Names{}), []farm.Identity{site}},
		"open about a finding":  {open(incidents.Names{Findings: []string{"ksm-on"}}), []farm.Identity{site}},
		"read that of a VM":     {read(1), []farm.Identity{ann, bob, rita, olga, site}},
		"note on that of a VM":  {note(1), []farm.Identity{ann, bob, olga, site}},
		"read that of the farm": {read(2), []farm.Identity{site}},
		"note on the farm's":    {note(2), []farm.Identity{site}},
		"close": {func(who farm.Identity) error {
			_, err := l.Incidents.Close(ctx, who, 1, 0, "", time.Time{})
			if err == nil {
				_, err = l.Incidents.Reopen(ctx, who, 1, 0, "")
			}
			return err
		}, []farm.Identity{ann, olga, site}},
		"give another severity": {func(who farm.Identity) error {
			for _, s := range []farm.IncidentSeverity{farm.SeverityMajor, farm.SeverityMinor} {
				if _, err := l.Incidents.Note(ctx, who, 1, incidents.Note{Text: "a", Severity: s}); err != nil {
					return err
				}
			}
			return nil
		}, []farm.Identity{ann, olga, site}},
	} {
		for _, who := range all {
			err, may := c.do(who), false
			for _, m := range c.may {
				may = may || m.User == who.User
			}
			if want := map[bool]farm.Code{false: farm.CodeNoRole}[may]; code(err) != want {
				t.Errorf("%s, %s: %v, not %q", what, who.User, err, want)
			}
		}
	}
	bound := ann
	bound.Role = farm.RoleReader
	if err := note(1)(bound); code(err) != farm.CodeNoRole {
		t.Errorf("by a token that may read alone: %v", err)
	}
	if err := read(1)(eve); err == nil || strings.Contains(err.Error(), "alice") {
		t.Errorf("who may not read it hears where it is: %v", err)
	}
	for want, err := range map[farm.Code]error{incidents.CodeNoIncident: read(99)(ann),
		action.CodeNoHost: open(incidents.Names{Hosts: []string{"wn-9"}})(site),
		farm.CodeNoVM:     open(incidents.Names{VMs: []string{"alice/none"}})(ann)} {
		if code(err) != want {
			t.Errorf("%v, not %s", err, want)
		}
	}
	entries, err := l.Entries(ctx, site, EntryFilter{Who: "eve"})
	if err != nil || len(entries) == 0 || entries[0].Outcome != action.Denied {
		t.Errorf("refusals in the audit log: %+v, %v", entries, err)
	}
}

// TestIncidentOfVMThatIsGone: rights are as they were when the VM was named, and one that is made under its name later
// is another one.
func TestIncidentOfVMThatIsGone(t *testing.T) {
	l := incidentLab(t)
	l.opened(ann, incidents.Opening{Title: "it hangs", Names: incidents.Names{VMs: []string{"alice/web"}}})
	var id string
	l.update(func(tx *store.Tx) error {
		vm, err := tx.VMNamed("alice", "web")
		id = vm.ID
		return errors.Join(err, tx.DeleteVM(vm.ID))
	})
	l.create(ann, CreateVM{Project: "alice", Name: "web", Image: "micro", Shape: "small"})
	for ref, want := range map[string]int{id: 1, "alice/web": 1, "alice/db": 0} {
		all, _, err := l.Incidents.List(t.Context(), bob, incidents.Filter{VM: ref})
		if err != nil || len(all) != want {
			t.Errorf("of %s: %+v, %v", ref, all, err)
		}
	}
	var now farm.VM
	l.view(func(tx *store.Tx) (err error) { now, err = tx.VMNamed("alice", "web"); return err })
	if all, _, err := l.Incidents.List(t.Context(), ann, incidents.Filter{VM: now.ID}); err != nil || len(all) != 0 {
		t.Errorf("of the new one: %+v, %v", all, err)
	}
	if _, err := l.Incidents.Note(t.Context(), olga, 1, incidents.Note{Text: "host was reinstalled"}); err != nil {
		t.Error(err)
	}
}

// TestIncidentLinks: two incidents of one problem know each other; who may not read one of them sees its number alone.
func TestIncidentLinks(t *testing.T) {
	l := incidentLab(t)
	l.opened(olga, incidents.Opening{Title: "switch", Names: incidents.Names{Cells: []string{"east"}}})
	l.opened(ann, incidents.Opening{Title: "web is away", Names: incidents.Names{VMs: []string{"alice/web"}}})
	ctx := t.Context()
	if _, err := l.Incidents.Link(ctx, ann, 2, incidents.Link{Links: []int64{1}}); code(err) != farm.CodeNoRole {
		t.Errorf("to one that she may not write: %v", err)
	}
	for what, c := range map[string]struct {
		l    incidents.Link
		code farm.Code
	}{"to itself": {incidents.Link{Links: []int64{2}}, incidents.CodeBadIncident},
		"to nothing": {incidents.Link{Text: "a"}, incidents.CodeBadIncident},
		"to none":    {incidents.Link{Links: []int64{9}}, incidents.CodeNoIncident}} {
		if _, err := l.Incidents.Link(ctx, olga, 2, c.l); code(err) != c.code {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := l.Incidents.Link(ctx, olga, 2, incidents.Link{Links: []int64{1}, Text: "the cause"}); err != nil {
		t.Error(err)
	}
	for who, want := range map[*farm.Identity][]incidents.Linked{&olga: {{ID: 1, Title: "switch"}}, &ann: {{ID: 1}}} {
		v, err := l.Incidents.Get(ctx, *who, 2)
		if d := cmp.Diff(want, v.Linked); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", who.User, err, d)
		}
	}
	if d := cmp.Diff([]string{"olga opened east ", "olga linked "}, l.said(olga, 1)); d != "" {
		t.Errorf("the other one (-want +got):\n%s", d)
	}
	third := l.opened(site, incidents.Opening{Title: "once more", Links: []int64{1, 2}})
	if v, err := l.Incidents.Get(ctx, olga, 1); err != nil || len(v.Links) != 2 || len(third.Linked) != 2 {
		t.Errorf("opened with links: %+v, %+v, %v", third, v, err)
	}
}

// TestIncidentList: what a list has, and that it tells nothing of what its reader may not see.
func TestIncidentList(t *testing.T) {
	l := incidentLab(t)
	ctx := t.Context()
	vm := incidents.Names{VMs: []string{"alice/web"}}
	l.opened(ann, incidents.Opening{Title: "1", Names: vm})
	l.opened(site, incidents.Opening{Title: "2", Names: incidents.Names{VMs: vm.VMs, Hosts: []string{"wn-2"},
		Findings: []string{"ksm-on"}}})
	l.opened(site, incidents.Opening{Title: "3", Names: incidents.Names{Cells: []string{"west"}}})
	l.pass(time.Hour)
	if _, err := l.Incidents.Close(ctx, site, 2, 0, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		who  farm.Identity
		f    incidents.Filter
		want string
		more bool
	}{
		"all":                          {site, incidents.Filter{}, "3 2 1", false},
		"a page":                       {site, incidents.Filter{Limit: 2}, "3 2", true},
		"the next one":                 {site, incidents.Filter{Limit: 2, Before: 2}, "1", false},
		"all of ann":                   {ann, incidents.Filter{}, "2 1", false},
		"a page of ann":                {ann, incidents.Filter{Limit: 1}, "2", true},
		"all of eve":                   {eve, incidents.Filter{}, "", false},
		"open ones":                    {ann, incidents.Filter{Open: true}, "1", false},
		"closed ones":                  {site, incidents.Filter{Closed: true}, "2", false},
		"with news":                    {ann, incidents.Filter{Since: l.clock()}, "2", false},
		"of a finding":                 {rita, incidents.Filter{Finding: "ksm-on"}, "2", false},
		"of a VM":                      {olga, incidents.Filter{VM: "alice/web"}, "2 1", false},
		"of a host":                    {site, incidents.Filter{Host: "wn-2"}, "2", false},
		"of a host that ann sees not":  {ann, incidents.Filter{Host: "wn-2"}, "", false},
		"of a cell":                    {site, incidents.Filter{Cell: "west"}, "3 2", false},
		"of a cell that ann sees not":  {ann, incidents.Filter{Cell: "west"}, "", false},
		"of a project":                 {site, incidents.Filter{Project: "alice"}, "2 1", false},
		"of a project and its finding": {site, incidents.Filter{Project: "alice", Finding: "x"}, "", false},
	} {
		all, more, err := l.Incidents.List(ctx, c.who, c.f)
		var titles []string
		for _, v := range all {
			titles = append(titles, v.Title)
		}
		if got := strings.Join(titles, " "); err != nil || got != c.want || more != c.more {
			t.Errorf("%s: %q, %v, %v", what, got, more, err)
		}
	}
	v, err := l.Incidents.Get(ctx, ann, 2)
	if err != nil || v.Hidden != 1 || len(v.Concerns) != 2 || v.MayClose {
		t.Errorf("what ann sees of it: %+v, %v", v, err)
	}
}

// TestIncidentOnce: what is sent again under its key is done once.
func TestIncidentOnce(t *testing.T) {
	l := incidentLab(t)
	o := incidents.Opening{Title: "a", Names: incidents.Names{Projects: []string{"alice"}}, Once: "k1"}
	n := incidents.Note{Text: "b", Once: "k2"}
	for range 2 {
		if v := l.opened(ann, o); v.ID != 1 {
			t.Errorf("opened as %d", v.ID)
		}
		if v, err := l.Incidents.Note(t.Context(), ann, 1, n); err != nil || v.Entries != 2 {
			t.Errorf("%d entries, %v", v.Entries, err)
		}
	}
	n.Text = "c"
	if _, err := l.Incidents.Note(t.Context(), ann, 1, n); code(err) != farm.CodeOtherRequest {
		t.Errorf("another note under the same key: %v", err)
	}
}

// TestIncidentsGo: those that were closed years ago are dropped, and open ones are not.
func TestIncidentsGo(t *testing.T) {
	l := incidentLab(t)
	for _, title := range []string{"closed", "open", "the newest"} {
		l.opened(root, incidents.Opening{Title: title})
	}
	if _, err := l.Incidents.Close(t.Context(), root, 1, 0, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{3, 2} {
		if err := l.upkeep.prune(t.Context(), l.epoch()); err != nil {
			t.Fatal(err)
		}
		if all, _, err := l.Incidents.List(t.Context(), root, incidents.Filter{}); err != nil || len(all) != want {
			t.Errorf("%d, not %d: %v", len(all), want, err)
		}
		l.pass(keepIncidents + time.Hour)
	}
}
