package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/farmfile"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/apply"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
)

// newFarm is a lab whose users are there, as farm files want them.
func newFarm(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutUser(farm.User{Name: "ann", Subjects: []string{"CN=Ann,O=Grid"}}),
			tx.PutUser(farm.User{Name: "otto"}), tx.PutUser(farm.User{Name: "site"}))
	})
	return l
}

// cells is a farm file with cells alone.
func cells(list ...farm.Cell) farm.Farm {
	f := farm.Farm{Cells: []farm.FarmCell{}}
	for _, c := range list {
		f.Cells = append(f.Cells, farm.FarmCell{Cell: c})
	}
	return f
}

func (l *lab) export() farm.Farm {
	l.t.Helper()
	f, err := l.Farm.Export(l.t.Context(), site)
	if err != nil {
		l.t.Fatal(err)
	}
	return f
}

func (l *lab) apply(f farm.Farm, o apply.ApplyOrder) apply.Applied {
	l.t.Helper()
	done, err := l.Farm.Apply(l.t.Context(), site, f, o)
	if err != nil {
		l.t.Fatal(err)
	}
	return done
}

var anything = apply.ApplyOrder{}

func TestApplyShowsAndDoesTheSame(t *testing.T) {
	l := newFarm(t)
	shut := false
	f := cells(farm.Cell{Name: "east", Default: true, Packing: farm.Spread},
		farm.Cell{Name: "north", Default: true, Limits: farm.Quota{VMs: 3}})
	f.Cells = append(f.Cells, farm.FarmCell{Cell: farm.Cell{Name: "west", Projects: []string{"atlas"}, Services: true,
		Reason: "upgrade"}, Open: &shut})
	f.Projects = []farm.Project{{Name: "cms", Account: "cmsprd"}}
	want := []farmfile.Change{
		{Op: farmfile.OpCreate, Kind: farmfile.KindProject, Name: "cms", Details: []string{"account: cmsprd"}},
		{Op: farmfile.OpChange, Kind: farmfile.KindCell, Name: "east", Details: []string{"packing: pack → spread"}},
		{Op: farmfile.OpCreate, Kind: farmfile.KindCell, Name: "north",
			Details: []string{"broker: grange", "default: true", "packing: pack", "overcommit: 1", "limits.vms: 3"}},
		{Op: farmfile.OpChange, Kind: farmfile.KindCell, Name: "west", Details: []string{"closed: - → true", "reason: - → upgrade"}},
	}
	for _, dry := range []bool{true, true, false} {
		done := l.apply(f, apply.ApplyOrder{DryRun: dry})
		if d := cmp.Diff(want, done.Changes); d != "" {
			t.Errorf("dry %v (-want +got):\n%s", dry, d)
		}
		effects := []string{"project alice: new VMs go to [east] today, would go to [east north]",
			"project atlas could make no VMs any more: the one cell that is for it takes none: west is closed " +
				"(upgrade)", "project cms: new VMs would go to [east north]"}
		if d := cmp.Diff(effects, done.Effects); d != "" {
			t.Errorf("effects, dry %v (-want +got):\n%s", dry, d)
		}
	}
	if done := l.apply(f, anything); len(done.Changes) != 0 {
		t.Errorf("the same file again changes %v", done.Changes)
	}
	_, err := l.VMs.Create(l.t.Context(), otto, CreateVM{Project: "atlas", Name: "x", Image: "micro", Shape: "small"})
	if code(err) != farm.CodeCellsClosed {
		t.Errorf("a VM of a project whose only cell is closed: %v", err)
	}
	entries, err := l.Entries(t.Context(), site, EntryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range entries[1:6] { // behind the refusal
		lines = append(lines, e.Action+" "+e.Target+": "+e.Reason)
	}
	if d := cmp.Diff([]string{"farm.apply the whole farm: 4 changes",
		"farm.apply cell west: change closed: - → true, reason: - → upgrade",
		"farm.apply cell north: create broker: grange, default: true, packing: pack, overcommit: 1, limits.vms: 3",
		"farm.apply cell east: change packing: pack → spread", "farm.apply project cms: create account: cmsprd"},
		lines); d != "" {
		t.Errorf("audit log (-want +got):\n%s", d)
	}
}

// A file that does not say whether a cell is open leaves it to the operators who closed it.
func TestApplyLeavesCellsClosed(t *testing.T) {
	l := newFarm(t)
	if _, err := l.Cells.Close(t.Context(), site, "east", 0, "disks"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Cells.Drain(t.Context(), site, "west", 0, DrainOrder{Reason: "move"}); err != nil {
		t.Fatal(err)
	}
	open := true
	f := cells(farm.Cell{Name: "east", Default: true, PerHost: 3},
		farm.Cell{Name: "west", Projects: []string{"atlas"}, Services: true})
	l.apply(f, anything)
	now := func(name string) CellView {
		v, err := l.Cells.Get(t.Context(), site, name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := now("east"); !v.Closed || v.Reason != "disks" || v.PerHost != 3 {
		t.Errorf("%+v", v.Cell)
	}
	if v := now("west"); !v.Drain.Active() {
		t.Errorf("%+v", v.Cell)
	}
	f.Cells[0].Open = &open
	if done := l.apply(f, anything); len(done.Changes) != 1 || now("east").Closed {
		t.Errorf("%+v", done)
	}
}

func TestApplyPlanGuards(t *testing.T) {
	l := newFarm(t)
	f := cells(farm.Cell{Name: "north"})
	shown := l.apply(f, apply.ApplyOrder{DryRun: true})
	l.apply(cells(farm.Cell{Name: "north", PerHost: 2}), anything)
	if _, err := l.Farm.Apply(t.Context(), site, f,
		apply.ApplyOrder{Plan: shown.Plan}); code(err) != apply.CodeOtherPlan {
		t.Errorf("%v", err)
	}
	again := l.apply(f, apply.ApplyOrder{DryRun: true})
	l.apply(f, apply.ApplyOrder{Plan: again.Plan})
}

func TestApplyRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		f     farm.Farm
		prune bool
		code  farm.Code
		says  string
	}{
		"a project that is not there": {f: cells(farm.Cell{Name: "a", Projects: []string{"Atlas"}}),
			code: farm.CodeBadFarm, says: `cell a names project "Atlas", which is not there; there are atlas, alice`},
		"all of several at once": {f: cells(farm.Cell{Name: "a", Projects: []string{"x"}},
			farm.Cell{Name: "b", Projects: []string{"y"}}), code: farm.CodeBadFarm,
			says: `"x", which is not there; there are alice, atlas; cell b names project "y"`},
		"a name of nothing": {f: cells(farm.Cell{Name: "a b"}), code: farm.CodeBadName},
		"twice": {f: cells(farm.Cell{Name: "a"}, farm.Cell{Name: "a"}),
			code: farm.CodeBadFarm, says: "cell a is there twice"},
		"a broker that is none": {f: cells(farm.Cell{Name: "a", Broker: "nova"}), code: farm.CodeBadFarm,
			says: "no broker"},
		"a shape that is not there": {f: farm.Farm{Projects: []farm.Project{{Name: "p",
			Shapes: []string{"huge"}}}}, code: farm.CodeBadFarm,
			says: `project p names shape "huge", which is not there; there are large, small`},
		"a grant to nobody": {f: farm.Farm{Grants: []farm.Grant{{User: "zoe",
			Role: farm.RoleReader}}}, code: farm.CodeBadFarm, says: `names user "zoe"`},
		"a subject of two": {f: farm.Farm{Users: []farm.User{{Name: "zoe",
			Subjects: []string{"CN=Ann,O=Grid"}}}}, code: farm.CodeBadFarm, says: "a certificate stands for one user"},
		"a group of nobody": {f: farm.Farm{Groups: []farm.ServerGroup{{Project: "p", Name: "g",
			Affinity: farm.Apart}}}, code: farm.CodeBadFarm, says: `names project "p"`},
		"a cell with VMs and hosts": {f: cells(farm.Cell{Name: "west", Projects: []string{"atlas"}}),
			prune: true, code: apply.CodeInUse, says: "cell east cannot go away: it has 1 host and 1 VM"},
		"a project with VMs": {f: farm.Farm{Projects: []farm.Project{{Name: "atlas"}}}, prune: true,
			code: apply.CodeInUse, says: "project alice cannot go away: it has 1 VM"},
		"a project that a cell names": {f: farm.Farm{Projects: []farm.Project{{Name: "alice"}}}, prune: true,
			code: farm.CodeBadFarm, says: `cell west names project "atlas", which is not there`},
		"a project renamed, and its cell not": {f: farm.Farm{Projects: []farm.Project{{Name: "alice"},
			{Name: "ATLAS"}}}, prune: true, code: farm.CodeBadFarm, says: `there are ATLAS, alice`},
		"a network with leases": {f: farm.Farm{Networks: []farm.FleetNetwork{{Name: "inner",
			Bridge: "br1"}}}, prune: true, code: apply.CodeInUse, says: "network lan cannot go away: it has 1 VM"},
		"another broker under VMs": {f: cells(farm.Cell{Name: "east", Default: true, Broker: "slurm"}),
			code: apply.CodeInUse, says: "cannot go from broker grange to slurm: it has 1 VM"},
		"a VLAN that no host carries out": {f: farm.Farm{Networks: []farm.FleetNetwork{{Name: "front",
			Bridge: "br0", VLAN: 7}}}, code: apply.CodeNoIsolation, says: "network front: no host carries out `vlan`"},
		"another VLAN of a network": {f: farm.Farm{Networks: []farm.FleetNetwork{{Name: "inner",
			Bridge: "br1", VLAN: 7, Closed: true}}}, code: apply.CodeNoIsolation, says: "`vlan`"},
		"closed, and nobody knows to what": {f: farm.Farm{Networks: []farm.FleetNetwork{{Name: "front",
			Bridge: "br0", Closed: true}}}, code: apply.CodeNoIsolation,
			says: "network front: no host carries out `closed` without `addresses`"},
		"maxima below nothing": {f: farm.Farm{Maxima: &farm.Maxima{CPUs: -1}}, code: farm.CodeBadFarm,
			says: "maxima"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newFarm(t)
			l.running(ann, CreateVM{Project: "alice", Name: "web", Image: "micro", Shape: "small", Network: "lan",
				NewKey: true}, l.host("h1", "east"))
			before := l.export()
			for _, dry := range []bool{true, false} {
				_, err := l.Farm.Apply(t.Context(), site, c.f, apply.ApplyOrder{DryRun: dry, Prune: c.prune})
				if code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("dry %v: %v, want %s: %q", dry, err, c.code, c.says)
				}
			}
			if d := cmp.Diff(before, l.export()); d != "" {
				t.Errorf("something was changed:\n%s", d)
			}
		})
	}
}

// TestStoredNetworksStay: what an earlier release took is exported and applied as it is, and can be given up, but not
// taken up again.
func TestStoredNetworksStay(t *testing.T) {
	l := newFarm(t)
	l.update(func(tx *store.Tx) error {
		return tx.PutNetwork(farm.FleetNetwork{Name: "old", Bridge: "br1", VLAN: 7, Closed: true})
	})
	f := farm.Farm{Networks: l.export().Networks}
	if out, err := l.Farm.Apply(t.Context(), site, f, apply.ApplyOrder{Prune: true}); err != nil ||
		len(out.Changes) != 0 {
		t.Errorf("the exported file: %v, %v", out.Changes, err)
	}
	f.Networks = []farm.FleetNetwork{{Name: "old", Bridge: "br1", Closed: true, Domain: "example.org"}}
	if out, err := l.Farm.Apply(t.Context(), site, f, apply.ApplyOrder{}); err != nil || len(out.Changes) != 1 {
		t.Errorf("without the VLAN: %v, %v", out.Changes, err)
	}
	f.Networks[0].VLAN = 7
	if _, err := l.Farm.Apply(t.Context(), site, f, apply.ApplyOrder{}); !farm.IsCode(err, apply.CodeNoIsolation) {
		t.Errorf("with the VLAN again: %v", err)
	}
	f.Networks[0] = farm.FleetNetwork{Name: "new", VLAN: 7}
	if out, err := l.Farm.Apply(t.Context(), site, f, apply.ApplyOrder{}); err != nil || len(out.Changes) != 1 {
		t.Errorf("a VLAN without a bridge: %v, %v", out.Changes, err)
	}
}

func TestApplyKeepsACellThatHostsMayJoin(t *testing.T) {
	l := newFarm(t)
	k, _, err := l.Links.CreateJoinToken(t.Context(), site, hostlink.JoinOrder{Cell: "west", Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	east := cells(farm.Cell{Name: "east", Default: true})
	for uses := range 3 {
		k.Uses, k.Used = uses, l.clock()
		l.update(func(tx *store.Tx) error { return tx.PutJoinToken(k) })
		if _, err := l.Farm.Apply(t.Context(), site, east,
			apply.ApplyOrder{Prune: true}); code(err) != apply.CodeInUse ||
			!strings.Contains(err.Error(), "cell west cannot go away: it has 1 join token") {
			t.Errorf("after %d of 3: %v", uses, err)
		}
	}
	k.Uses = 3
	l.update(func(tx *store.Tx) error { return tx.PutJoinToken(k) })
	l.apply(east, apply.ApplyOrder{Prune: true})
}

func TestApplyNeedsAnAdmin(t *testing.T) {
	l := newFarm(t)
	l.update(func(tx *store.Tx) error { return tx.PutGrant(farm.Grant{User: "ann", Role: farm.RoleReader}) })
	f := cells(farm.Cell{Name: "north"})
	if _, err := l.Farm.Apply(t.Context(), ann, f, apply.ApplyOrder{DryRun: true}); err != nil {
		t.Errorf("a reader may not look: %v", err)
	}
	for _, who := range []farm.Identity{ann, otto, eve, {}, {Host: "h"}} {
		if _, err := l.Farm.Apply(t.Context(), who, f, anything); code(err) != farm.CodeNoRole {
			t.Errorf("%+v: %v", who, err)
		}
	}
	if _, err := l.Farm.Apply(t.Context(), otto, f, apply.ApplyOrder{DryRun: true}); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
	entries, err := l.Entries(t.Context(), site, EntryFilter{Who: "otto"})
	if err != nil || len(entries) != 1 || entries[0].Outcome != action.Denied ||
		!strings.Contains(entries[0].Reason, "farm.apply needs role admin everywhere") {
		t.Errorf("%+v, %v", entries, err)
	}
}

func TestApplyTellsOfPeople(t *testing.T) {
	l := newFarm(t)
	for i := range 2 {
		l.running(ann, CreateVM{Project: "alice", Name: fmt.Sprintf("web-%d", i), Image: "micro", Shape: "small",
			Network: "lan", NewKey: true}, l.host(fmt.Sprintf("h%d", i), "east"))
	}
	f := cells(farm.Cell{Name: "east"}, farm.Cell{Name: "north", Default: true})
	f.Projects = []farm.Project{{Name: "alice", Quota: farm.Quota{VMs: 1, CPUs: 4}}}
	pool, err := farm.ParseAddressPool("10.0.0.11-10.0.0.20/24")
	if err != nil {
		t.Fatal(err)
	}
	f.Networks = []farm.FleetNetwork{{Name: "lan", Bridge: "br0", Addresses: []farm.AddressPool{pool},
		Domain: "example.org"}}
	f.Grants = []farm.Grant{}
	done := l.apply(f, apply.ApplyOrder{DryRun: true, Prune: false})
	want := []string{"project alice: new VMs go to [east] today, would go to [north]",
		"project alice: 2 VMs in cell east would stay there, as long as people want them",
		"project alice has more than its new quota: 2 VMs of 1; it could make no more of that",
		"network lan: addresses of 1 VM lie outside of its new pools, and would stay as they are"}
	if d := cmp.Diff(want, done.Effects); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	done = l.apply(farm.Farm{Grants: []farm.Grant{}}, apply.ApplyOrder{DryRun: true, Prune: true})
	if d := cmp.Diff([]string{"nobody would be admin everywhere but root on the server's own socket"},
		done.Effects); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// What goes away takes along what has no meaning without it.
func TestApplyPrunes(t *testing.T) {
	l := newFarm(t)
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutGroup(farm.ServerGroup{Project: "atlas", Name: "g", Affinity: farm.Apart}),
			tx.PutToken(farm.Token{ID: "t", User: "otto"}),
			tx.PutGrant(farm.Grant{User: "ann", Role: farm.RoleReader, Cell: "west"}))
	})
	f := cells(farm.Cell{Name: "east", Default: true})
	f.Projects, f.Users = []farm.Project{{Name: "alice",
		Quota: farm.Quota{VMs: 5, CPUs: 20}}}, []farm.User{{Name: "ann"}, {Name: "site"}}
	done := l.apply(f, apply.ApplyOrder{Prune: true})
	var said []string
	for _, c := range done.Changes {
		said = append(said, c.Op+" "+c.String())
	}
	want := []string{"delete grant ann reader cell:west", "delete grant otto operator project:atlas",
		"delete user otto", "delete group atlas/g", "delete cell west", "delete project atlas", "change user ann"}
	if d := cmp.Diff(want, said); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	tokens, err := l.Accounts.Tokens(t.Context(), site, "otto")
	if err != nil || len(tokens) > 0 {
		t.Errorf("tokens of a user that is gone: %v, %v", tokens, err)
	}
}

// TestApplyRoundTrip: what was exported, applied to the farm it is of, changes nothing, and applied to an empty one
// makes the same.
func TestApplyRoundTrip(t *testing.T) {
	l := newFarm(t)
	l.apply(farm.Farm{Settings: &farm.Settings{BootTimeout: 4 * time.Minute, Facts: map[string]string{"HS06": "357"}},
		Maxima: &farm.Maxima{CPUs: 64}}, anything)
	if _, err := l.Cells.Close(t.Context(), site, "west", 0, "disks"); err != nil {
		t.Fatal(err)
	}
	all := l.export()
	if done := l.apply(all, apply.ApplyOrder{DryRun: true, Prune: true}); len(done.Changes) != 0 {
		t.Errorf("%+v", done.Changes)
	}
	st, err := store.Open(t.Context(), t.TempDir()+"/other.db")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	other := New(Options{Store: st, Log: l.log, Now: l.clock})
	for i := range all.Networks {
		all.Networks[i].Closed = false // from an earlier release: another farm does not take it
	}
	if _, err := other.Farm.Apply(t.Context(), root, all, apply.ApplyOrder{Prune: true}); err != nil {
		t.Fatal(err)
	}
	copied, err := other.Farm.Export(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(all, copied); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestProjectsShowWhereTheyGo(t *testing.T) {
	l := newFarm(t)
	all, err := l.Projects(t.Context(), site)
	if err != nil || len(all) != 2 || !slices.Equal(all[1].Cells, []string{"west"}) {
		t.Fatalf("%+v, %v", all, err)
	}
	if mine, err := l.Projects(t.Context(), ann); err != nil || len(mine) != 1 || mine[0].Name != "alice" {
		t.Errorf("%+v, %v", mine, err)
	}
	if _, err := l.Cells.Close(t.Context(), site, "west", 0, "disks"); err != nil {
		t.Fatal(err)
	}
	v, err := l.Project(t.Context(), otto, "atlas")
	if err != nil || len(v.Cells) > 0 || !strings.Contains(v.Nowhere, "west is closed (disks)") {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := l.Project(t.Context(), ann, "atlas"); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
	if _, err := l.Project(t.Context(), site, "cms"); code(err) != action.CodeNoProject {
		t.Error(err)
	}
}
