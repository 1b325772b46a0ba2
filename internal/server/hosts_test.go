package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// states are those of hosts by name.
func (l *lab) states(who farm.Identity, f HostFilter) map[string]HostState {
	l.t.Helper()
	views, err := l.Hosts.List(l.t.Context(), who, f)
	if err != nil {
		l.t.Fatal(err)
	}
	found := map[string]HostState{}
	for _, v := range views {
		found[v.Name] = v.State
	}
	return found
}

func TestHosts(t *testing.T) {
	l := newLab(t)
	a, b := l.host("node-1", "east"), l.host("node-2", "east")
	c := l.host("gpu-1", "west")
	ctx := t.Context()
	l.running(ann, web("web"), a)
	if _, err := l.Hosts.Close(ctx, site, []string{"node-1"}, "memory"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Hosts.Drain(ctx, site, []string{"cell:west"}, DrainOrder{}); err != nil {
		t.Fatal(err)
	}
	l.pass(l.Links.Silence + time.Second)
	l.seen(a)
	l.seen(c)
	all := map[string]HostState{"node-1": HostClosed, "node-2": HostSilent, "gpu-1": HostDraining}
	for name, c := range map[string]struct {
		who  farm.Identity
		f    HostFilter
		want map[string]HostState
	}{
		"all":       {site, HostFilter{}, all},
		"of a cell": {site, HostFilter{Cell: "west"}, map[string]HostState{"gpu-1": HostDraining}},
		"by pattern": {site, HostFilter{Patterns: []string{"node-?", "x*"}},
			map[string]HostState{"node-1": HostClosed, "node-2": HostSilent}},
		"by ID":    {site, HostFilter{Patterns: []string{b.ID}}, map[string]HostState{"node-2": HostSilent}},
		"by state": {site, HostFilter{State: HostSilent}, map[string]HostState{"node-2": HostSilent}},
		"nobody's": {ann, HostFilter{}, map[string]HostState{}},
	} {
		if d := cmp.Diff(c.want, l.states(c.who, c.f)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	v, err := l.Hosts.Get(ctx, site, "node-1")
	if err != nil || v.VMs != 1 || v.CPUs != 16 || v.FreeCPUs != 14 || v.Memory != 64*farm.GiB ||
		v.FreeMemory != 62*farm.GiB {
		t.Errorf("%+v %v", v, err)
	}
	if _, err := l.Hosts.Open(ctx, site, []string{"*"}); err != nil {
		t.Fatal(err)
	}
	l.seen(b)
	if d := cmp.Diff(map[string]HostState{"node-1": HostOpen, "node-2": HostOpen, "gpu-1": HostOpen},
		l.states(site, HostFilter{})); d != "" {
		t.Error(d)
	}
	for name, c := range map[string]struct {
		who      farm.Identity
		patterns []string
		want     farm.Code
	}{
		"no pattern":      {site, []string{"["}, farm.CodeUsage},
		"nothing":         {site, nil, action.CodeNoHost},
		"none":            {site, []string{"node-9"}, action.CodeNoHost},
		"nobody":          {ann, []string{"node-1"}, farm.CodeNoRole},
		"nobody and none": {ann, []string{"node-9"}, farm.CodeNoRole},
	} {
		if _, err := l.Hosts.Close(ctx, c.who, c.patterns, ""); code(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.update(func(tx *store.Tx) error {
		return tx.PutGrant(farm.Grant{User: "wes", Role: farm.RoleOperator, Cell: "west"})
	})
	wes := farm.Identity{User: "wes"}
	if _, err := l.Hosts.Close(ctx, wes, []string{"*"}, ""); err != nil {
		t.Error("an operator of one cell closes its hosts:", err)
	}
	if d := cmp.Diff(map[string]HostState{"node-1": HostOpen, "node-2": HostOpen, "gpu-1": HostClosed},
		l.states(site, HostFilter{})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]HostState{"gpu-1": HostClosed}, l.states(wes, HostFilter{})); d != "" {
		t.Error(d)
	}
}

func TestLabels(t *testing.T) {
	l := newLab(t)
	l.host("h1", "east")
	for _, o := range []LabelOrder{{Set: map[string]string{"gpu": "a100", "rack": "b3"}},
		{Set: map[string]string{"rack": "b4"}, Remove: []string{"gpu", "none"}}} {
		if _, err := l.Hosts.Label(t.Context(), site, []string{"h1"}, o); err != nil {
			t.Fatal(err)
		}
	}
	for _, ref := range []string{"*", "h[1]", "cell:east", "h2"} {
		if _, err := l.Hosts.LabelOne(t.Context(), site, ref,
			LabelOrder{Set: map[string]string{"rack": "b5"}}); codeOf(err) != action.CodeNoHost {
			t.Errorf("%s: %v", ref, err)
		}
	}
	v, err := l.Hosts.Get(t.Context(), site, "h1")
	if d := cmp.Diff(map[string]string{"rack": "b4"}, v.Labels); d != "" || err != nil {
		t.Error(d, err)
	}
}

// A change that is meant for one revision of a host is refused after what people did to it since, however much they did
// elsewhere meanwhile; what the host itself says is no conflict.
func TestHostsSeenAtARevision(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	old := func(seen int64) error {
		_, err := l.Hosts.LabelOne(t.Context(), site, "h1",
			LabelOrder{Set: map[string]string{"rack": fmt.Sprint("b", seen)}, IfRevision: seen})
		return err
	}
	elsewhere := func(n int) {
		l.update(func(tx *store.Tx) error {
			for range n {
				if err := tx.Audit(farm.Entry{Who: "ann", Action: "vm.create", Target: "alice/web", Project: "alice",
					Outcome: action.Done}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	first, err := l.Hosts.Get(t.Context(), site, "h1")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere(action.LookBack / 5)
	l.update(func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, farm.Facts{Version: "2"}) })
	for range 2 { // it is silent, and back
		if err := l.upkeep.silences(t.Context(), l.epoch()); err != nil {
			t.Fatal(err)
		}
		l.pass(time.Hour)
		if err := l.upkeep.silences(t.Context(), l.epoch()); err != nil {
			t.Fatal(err)
		}
		l.seen(h)
	}
	if err := old(first.Revision); err != nil {
		t.Error("the host has spoken:", err)
	}
	elsewhere(action.LookBack / 5)
	if err := old(first.Revision); codeOf(err) != action.CodeChanged ||
		!strings.Contains(err.Error(), "site, host.label") {
		t.Error("people have changed it:", err)
	}
	elsewhere(action.LookBack)
	if err := old(first.Revision); codeOf(err) != action.CodeChanged {
		t.Error("they have long ago:", err)
	}
	now, err := l.Hosts.Get(t.Context(), site, "h1")
	if err != nil {
		t.Fatal(err)
	}
	if err := old(now.Revision); err != nil {
		t.Error("nobody has:", err)
	}
}

// A drain tells the users, stops what is left at its deadline, and keeps it stopped; open ends it.
func TestDrain(t *testing.T) {
	for _, whole := range []bool{false, true} {
		l := newLab(t)
		h, other := l.host("h1", "east"), l.host("h2", "west")
		ctx, epoch := t.Context(), l.epoch()
		v, stays := l.running(ann, web("web"), h), l.running(ann, web("stays"), other)
		order := DrainOrder{Deadline: l.clock().Add(time.Hour), Reason: "new firmware"}
		drain := func() error {
			_, err := l.Hosts.Drain(ctx, site, []string{"h1"}, order)
			return err
		}
		open := func() error {
			_, err := l.Hosts.Open(ctx, site, []string{"h1"})
			return err
		}
		what := "its host h1"
		if whole {
			what = "its cell east"
			drain = func() error {
				_, err := l.Cells.Drain(ctx, site, "east", 0, order)
				return err
			}
			open = func() error {
				_, err := l.Cells.Open(ctx, site, "east", 0)
				return err
			}
		}
		if err := drain(); err != nil {
			t.Fatal(err)
		}
		notice := what + " is being drained (new firmware): what runs there is stopped at 2026-11-21T13:00:00Z"
		if got := l.get(v.ID); got.Notice != notice || !got.StopsAt.Equal(order.Deadline) ||
			got.State != farm.VMRunning {
			t.Errorf("%+v", got)
		}
		if whole {
			if _, err := l.VMs.Create(ctx, ann, web("new")); code(err) != farm.CodeCellsClosed {
				t.Error(err)
			}
		}
		if err := l.upkeep.drains(ctx, epoch); err != nil || l.get(v.ID).Wanted.Power != farm.PowerOn {
			t.Error("too early", err)
		}
		l.pass(time.Hour)
		l.seen(h)
		l.seen(other)
		if err := l.upkeep.drains(ctx, epoch); err != nil {
			t.Fatal(err)
		}
		if got := l.get(v.ID); got.Wanted.Power != farm.PowerOff || got.State != farm.VMStopping {
			t.Error(got.Wanted, got.State)
		}
		if got := l.get(stays.ID); got.Wanted.Power != farm.PowerOn || got.Notice != "" {
			t.Errorf("%+v", got)
		}
		if _, err := l.VMs.Start(ctx, ann, v.ID, 0); code(err) != CodeDraining {
			t.Error(err)
		}
		l.says(v.ID, farm.VMStopped)
		if view, err := l.Hosts.Get(ctx, site, "h1"); err != nil || view.VMs != 1 || view.State != HostDraining {
			t.Errorf("%+v %v", view, err)
		}
		if err := open(); err != nil {
			t.Fatal(err)
		}
		if got, err := l.VMs.Start(ctx, ann, v.ID, 0); err != nil || got.Notice != "" {
			t.Error(got.Notice, err)
		}
	}
}

// A silent host's VMs are unknown, nothing is made elsewhere; only an operator's word makes them lost.
func TestSilenceAndFence(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	ctx, epoch := t.Context(), l.epoch()
	stays := l.running(ann, web("stays"), h)
	r := web("again")
	r.Tags = map[string]string{"on-loss": "replace"}
	again := l.running(ann, r, h)
	ends := l.running(ann, web("ends"), h)
	if _, err := l.VMs.Delete(ctx, ann, ends.ID, 0); err != nil {
		t.Fatal(err)
	}
	if err := l.upkeep.silences(ctx, epoch); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Hosts.Fence(ctx, site, "h1", 0, "it runs"); code(err) != farm.CodeHostAnswers {
		t.Error(err)
	}
	l.pass(l.Links.Silence + time.Second)
	if err := l.upkeep.silences(ctx, epoch); err != nil {
		t.Fatal(err)
	}
	if e := l.entries("host.silent", "done"); len(e) != 1 || e[0].Target != "h1" {
		t.Errorf("%+v", e)
	}
	for _, v := range []VMView{stays, again} {
		if got := l.get(v.ID); got.State != farm.VMUnknown || got.Host != h.ID ||
			!strings.Contains(got.Notice, "it may run") {
			t.Errorf("%+v", got)
		}
	}
	if _, err := l.Hosts.Fence(ctx, ann, "h1", 0, ""); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
	view, err := l.Hosts.Fence(ctx, site, "h1", 0, "burnt")
	if err != nil || view.State != HostFenced {
		t.Fatal(view.State, err)
	}
	if got := l.get(stays.ID); got.State != farm.VMLost || got.Host != h.ID {
		t.Errorf("%+v", got)
	}
	if got := l.get(again.ID); got.State != farm.VMPlacing ||
		got.Wanted != (farm.Wanted{Power: farm.PowerOn, Builds: 1, Fresh: 1}) {
		t.Errorf("%+v", got)
	}
	if _, there := l.row(ends.ID); there {
		t.Error("what was to be deleted, and is lost, is there")
	}
	if err := l.Hosts.Forget(ctx, site, "h1", 0); code(err) != CodeHostHasVMs {
		t.Error(err)
	}
	if got, err := l.VMs.Rebuild(ctx, ann, stays.ID, 0, ""); err != nil || got.State != farm.VMPlacing ||
		got.Host != "" {
		t.Errorf("%+v %v", got, err)
	}
	if err := l.Hosts.Forget(ctx, site, h.ID, 0); err != nil {
		t.Error(err)
	}
}

// A VM that is lost and not asked for again can be deleted, and nobody needs to say that it is gone.
func TestDeleteLost(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	l.update(func(tx *store.Tx) error {
		return tx.PutCell(farm.Cell{Name: "east", Default: true,
			Labels: map[string]string{"on-loss": "replace"}}.WithDefaults())
	})
	r := web("web")
	r.Tags = map[string]string{"on-loss": "keep"}
	kept, again := l.running(ann, r, h), l.running(ann, web("again"), h)
	l.pass(l.Links.Silence + time.Second)
	if _, err := l.Hosts.Fence(t.Context(), site, "h1", 0, ""); err != nil {
		t.Fatal(err)
	}
	if got := l.get(again.ID); got.State != farm.VMPlacing {
		t.Error("the cell's word:", got.State)
	}
	if got := l.get(kept.ID); got.State != farm.VMLost {
		t.Error("the VM's own word:", got.State)
	}
	if _, err := l.VMs.Delete(t.Context(), ann, kept.ID, 0); err != nil {
		t.Fatal(err)
	}
	if _, there := l.row(kept.ID); there {
		t.Error("it is there")
	}
}

func TestCells(t *testing.T) {
	l := newLab(t)
	l.running(ann, web("web"), l.host("h1", "east"))
	cells, err := l.Cells.List(t.Context(), ann)
	if err != nil || len(cells) != 2 || cells[0].Hosts != 1 || cells[0].VMs != 1 || cells[0].Used.CPUs != 2 {
		t.Errorf("%+v %v", cells, err)
	}
	if _, err := l.Cells.List(t.Context(), eve); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
	if _, err := l.Cells.Get(t.Context(), site, "north"); code(err) != farm.CodeNoSuchCell {
		t.Error(err)
	}
	if _, err := l.Cells.Close(t.Context(), ann, "east", 0, ""); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
	if _, err := l.Cells.Close(t.Context(), site, "east", 0, "x\n"); code(err) != farm.CodeUsage {
		t.Error(err)
	}
}

// In a closed cell all goes on but creation.
func TestClosedCellKeepsWorking(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	v := l.running(ann, web("web"), h)
	if _, err := l.Cells.Close(t.Context(), site, "east", 0, ""); err != nil {
		t.Fatal(err)
	}
	for _, a := range []policy.Action{policy.StopVM, policy.StartVM, policy.RestartVM, policy.ResizeVM,
		policy.RebuildVM, policy.UpdateVM, policy.DeleteVM} {
		if _, err := l.act(a, ann, v.ID); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	if _, err := l.VMs.Create(t.Context(), ann, web("new")); code(err) != farm.CodeCellsClosed {
		t.Error(err)
	}
}

func TestEntries(t *testing.T) {
	l := newLab(t)
	l.create(ann, web("web"))
	if _, err := l.Entries(t.Context(), ann, EntryFilter{}); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
	for _, c := range []struct {
		who farm.Identity
		f   EntryFilter
	}{{site, EntryFilter{}}, {ann, EntryFilter{Who: "ann"}}} {
		if e, err := l.Entries(t.Context(), c.who, c.f); err != nil || len(e) != 1 || e[0].Target != "alice/web" ||
			e[0].Source != "t1" {
			t.Errorf("%+v %v", e, err)
		}
	}
}

// A server that comes up waits for hosts that were there when the last one went, and not for those that were silent
// already.
func TestSilenceAfterAStart(t *testing.T) {
	l := newLab(t)
	dead := l.host("dead", "east")
	l.pass(time.Hour)
	alive := l.host("alive", "east")
	l.pass(10 * time.Minute)
	next := New(Options{Store: l.store, Log: l.log, Now: l.clock})
	if err := next.Links.Recall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !next.Links.Silent(dead) || next.Links.Silent(alive) {
		t.Errorf("dead is silent: %v, alive is silent: %v", next.Links.Silent(dead), next.Links.Silent(alive))
	}
	if _, err := next.Hosts.Fence(t.Context(), site, "alive", 0, ""); code(err) != farm.CodeHostAnswers ||
		!strings.Contains(err.Error(), "just come up") {
		t.Error(err)
	}
	l.pass(next.Links.Silence + time.Second)
	if !next.Links.Silent(alive) {
		t.Error("it has had its time")
	}
}
