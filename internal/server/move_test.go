package server

import (
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/wire"
)

// movers is a service cell of three hosts, of which the first has a VM.
type movers struct {
	*lab
	vm    VMView
	hosts map[string]farm.Host // n1, n2, n3

}

func newMovers(t *testing.T) *movers {
	m := &movers{lab: newLab(t), hosts: map[string]farm.Host{}}
	for _, name := range []string{"n1", "n2", "n3"} {
		h := m.host(name, "west")
		h.Facts.Capability, h.Facts.Instance, h.Facts.Accelerator, h.Facts.Images =
			fleet.Capability, name, "kvm", []string{"micro", "sha256:1"}
		m.update(func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, h.Facts) })
		facts := wire.Facts(h.Facts, m.clock())
		m.hosts[name] = h
		m.report(name, &facts)
	}
	v := m.create(root, CreateVM{Project: "atlas", Name: "web", Image: "micro", Shape: "small"})[0]
	m.put(v.VM, m.hosts["n1"])

	m.vm = m.get(v.ID)
	if m.vm.Shape.Purpose != farm.PurposeService {
		t.Fatalf("its purpose is %q", m.vm.Shape.Purpose)
	}
	m.report("n1", nil, m.runs(nil))
	return m
}

// runs is a report of the VM that runs.
func (m *movers) runs(side *fleet.MoveSide) fleet.Observed {
	return fleet.Observed{ID: m.vm.ID, State: "running", Since: m.clock(), Boots: m.vm.Wanted.Boots,
		Builds: m.vm.Wanted.Builds, Ready: true, Digest: "sha256:1", Move: side}
}

func (m *movers) report(host string, facts *fleet.Facts, vms ...fleet.Observed) {
	m.t.Helper()
	if _, err := m.Links.Report(m.t.Context(), farm.Identity{Host: "id-" + host},
		fleet.Report{Instance: host, Facts: facts, VMs: vms}); err != nil {
		m.t.Fatal(err)
	}
}

// wanted is what a host is told of the VM; the zero value: nothing.
func (m *movers) wanted(host string) fleet.WantedVM {
	m.t.Helper()
	list, _, err := m.Links.Wanted(m.t.Context(), farm.Identity{Host: "id-" + host}, host, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, w := range list.VMs {
		if w.ID == m.vm.ID {
			return w
		}
	}
	return fleet.WantedVM{}
}

func (m *movers) order(to string) farm.Move {
	m.t.Helper()
	move, err := m.VMs.Move(m.t.Context(), root, m.vm.ID, 0, to)
	if err != nil {
		m.t.Fatal(err)
	}
	return move
}

func (m *movers) last() farm.Move {
	m.t.Helper()
	move, err := m.VMs.LastMove(m.t.Context(), root, m.vm.ID)
	if err != nil {
		m.t.Fatal(err)
	}
	return move
}

func TestMoveVM(t *testing.T) {
	m := newMovers(t)
	move := m.order("n2")
	if w := m.wanted("n1"); w.Move == nil ||
		*w.Move != (fleet.MoveOrder{ID: move.ID, Host: "id-n2", Name: "n2", Digest: "sha256:1"}) {
		t.Errorf("the source is told %+v", w.Move)
	}
	if w := m.wanted("n2"); w.Move == nil ||
		*w.Move != (fleet.MoveOrder{ID: move.ID, Come: true, Host: "id-n1", Name: "n1", Digest: "sha256:1"}) ||
		w.Plan != nil || w.Power != "on" {
		t.Errorf("the target is told %+v of %+v", w.Move, w)
	}
	if w := m.wanted("n3"); w.ID != "" {
		t.Errorf("a third host is told %+v", w)
	}
	if _, err := m.VMs.Move(t.Context(), root, m.vm.ID, 0, "n3"); code(err) != placement.CodeMoveRefused ||
		!strings.Contains(err.Error(), "on its way to host n2") {
		t.Errorf("a second move: %v", err)
	}
	m.report("n2", nil, fleet.Observed{ID: m.vm.ID, State: "starting", Since: m.clock(),
		Move: &fleet.MoveSide{ID: move.ID, Phase: fleet.MoveWaiting, Address: "10.0.0.2:8445", Host: "id-n1"}})
	if w := m.wanted("n1"); w.Move == nil || w.Move.Address != "10.0.0.2:8445" {
		t.Errorf("the source is told %+v", w.Move)
	}
	m.report("n1", nil, m.runs(&fleet.MoveSide{ID: move.ID, Phase: fleet.MoveCopying, Total: 100, Done: 40,
		Host: "id-n2"}))
	if v := m.last(); v.Source.Done != 40 || v.Source.Total != 100 || !v.Active() {
		t.Errorf("its progress: %+v", v)
	}
	m.report("n2", nil, m.runs(&fleet.MoveSide{ID: move.ID, Phase: fleet.MoveCome, Host: "id-n1"}))
	if v := m.get(m.vm.ID); v.HostName != "n1" {
		t.Errorf("the target's word is enough: it is on host %s", v.HostName)
	}
	m.report("n1", nil, fleet.Observed{ID: m.vm.ID, State: "stopped", Since: m.clock(),
		Move: &fleet.MoveSide{ID: move.ID, Phase: fleet.MoveGone, Host: "id-n2"}})
	if v := m.get(m.vm.ID); v.HostName != "n2" || v.State != farm.VMRunning || !v.Observed.Ready || m.last().Active() ||
		m.last().Failure != "" {
		t.Errorf("it is on host %s, %s; %+v", v.HostName, v.State, m.last())
	}
	if w := m.wanted("n2"); w.Move != nil || w.Power != "on" {
		t.Errorf("the target is told %+v", w)
	}
	m.report("n1", nil, fleet.Observed{ID: m.vm.ID, State: "stopped", Since: m.clock(),
		Move: &fleet.MoveSide{ID: move.ID, Phase: fleet.MoveGone, Host: "id-n2"}})
	if w := m.wanted("n1"); w.Power != "deleted" {
		t.Errorf("the source is told %+v of what is left there", w)
	}
	m.order("n1") // and back, once nothing is left there of before
	if w := m.wanted("n1"); w.Power != "deleted" || w.Move != nil {
		t.Errorf("the first host is told %+v", w)
	}
	m.report("n1", nil, fleet.Observed{ID: m.vm.ID, State: "gone", Since: m.clock(),
		Move: &fleet.MoveSide{ID: move.ID, Phase: fleet.MoveGone, Host: "id-n2"}})
	if w := m.wanted("n1"); w.Move == nil || !w.Move.Come {
		t.Errorf("the first host is told %+v", w)
	}
	if n := m.audited(policy.MoveVM, action.Done) + m.audited(action.MovedVM, action.Done); n != 3 {
		t.Errorf("%d entries in the audit log", n)
	}
}

func (m *movers) audited(a policy.Action, outcome string) (n int) {
	m.view(func(tx *store.Tx) error {
		all, err := tx.Entries("", "", 0, 100)
		for _, e := range all {
			if e.Action == string(a) && e.Outcome == outcome {
				n++
			}
		}
		return err
	})
	return n
}

// TestMoveEnds has it end otherwise: refused by the target, failed at the source, cancelled, overtaken by another wish,
// too late.
func TestMoveEnds(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(m *movers, move farm.Move)
		failure string
	}{
		"target": {func(m *movers, move farm.Move) {
			m.report("n2", nil, fleet.Observed{ID: m.vm.ID, State: "failed", Since: m.clock(),
				Move: &fleet.MoveSide{ID: move.ID, Phase: fleet.MoveFailed, Reason: "no-room: all taken",
					Host: "id-n1"}})
		}, "no-room: all taken"},
		"source": {func(*movers, farm.Move) {}, "move-failed: the test"},
		"cancelled": {func(m *movers, _ farm.Move) {
			for range 2 {
				if _, err := m.VMs.CancelMove(m.t.Context(), root, m.vm.ID, 0); err != nil {
					m.t.Error(err)
				}
			}
		}, "move-failed: the test"},
		"stopped": {func(m *movers, _ farm.Move) {
			if _, err := m.VMs.Stop(m.t.Context(), root, m.vm.ID, 0); err != nil {
				m.t.Error(err)
			}
		}, "move-failed: the test"},
		"late": {func(m *movers, _ farm.Move) {
			m.pass(moveRoom + time.Second)
			if err := m.upkeep.moves(m.t.Context(), m.epoch()); err != nil {
				m.t.Error(err)
			}
		}, "move-failed: host n2 has not made room within 3m0s"},
	} {
		m := newMovers(t)
		move := m.order("n2")
		c.do(m, move)
		if w := m.wanted("n1"); w.Move == nil || w.Move.Cancel != (name != "source") {
			t.Errorf("%s: the source is told %+v", name, w.Move)
		}
		if !m.last().Active() {
			t.Errorf("%s: it ended without its source's word", name)
		}
		m.report("n1", nil, m.runs(&fleet.MoveSide{ID: move.ID, Phase: fleet.MoveFailed,
			Reason: "move-failed: the test", Host: "id-n2"}))
		if v := m.last(); v.Active() || v.Failure != c.failure || m.get(m.vm.ID).HostName != "n1" {
			t.Errorf("%s: %+v", name, v)
		}
		m.report("n2", nil, fleet.Observed{ID: m.vm.ID, State: "starting", Since: m.clock(),
			Move: &fleet.MoveSide{ID: move.ID, Phase: fleet.MoveWaiting, Host: "id-n1"}})
		if w := m.wanted("n2"); w.Power != "deleted" || w.Move != nil {
			t.Errorf("%s: the target is told %+v", name, w)
		}
		if _, err := m.VMs.CancelMove(t.Context(), root, m.vm.ID, 0); code(err) != farm.CodeNoMove {
			t.Errorf("%s: cancelled when it was over: %v", name, err)
		}
	}
}

// TestMoveRefused has everything else in its way.
func TestMoveRefused(t *testing.T) {
	for want, c := range map[string]struct {
		to string
		do func(m *movers)
	}{
		"is on host n1 already": {"n1", nil},
		"no host":               {"n9", nil},
		"host n2: it is closed": {"n2", func(m *movers) { m.alterHost("n2", func(h *farm.Host) { h.Closed = true }) }},
		"can go nowhere":        {"", func(m *movers) { m.alterHost("n2", closed); m.alterHost("n3", closed) }},
		"has not the image": {"n2",
			func(m *movers) { m.alterFacts("n2", func(f *farm.Facts) { f.Images = []string{"micro"} }) }},
		"host n2 by tcg": {"n2",
			func(m *movers) { m.alterFacts("n2", func(f *farm.Facts) { f.Accelerator = "tcg" }) }},
		"a release that moves": {"n2",
			func(m *movers) { m.alterFacts("n2", func(f *farm.Facts) { f.Capability = 1 }) }},
		"may not go to cell": {"o1", func(m *movers) {
			h := m.host("o1", "east")
			h.Facts.Capability, h.Facts.Accelerator, h.Facts.Images = 2, "kvm", []string{"sha256:1"}
			m.update(func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, h.Facts) })
		}},
		"compute": {"n2", func(m *movers) {
			m.update(func(tx *store.Tx) error { c, _ := tx.Cell("west"); c.Services = false; return tx.PutCell(c) })
		}},
		"does not run":                      {"n2", func(m *movers) { m.says(m.vm.ID, farm.VMStopped) }},
		"host n1 of VM atlas/web is silent": {"n2", func(m *movers) { m.pass(time.Hour) }},
	} {
		m := newMovers(t)
		if c.do != nil {
			c.do(m)
		}
		_, err := m.VMs.Move(t.Context(), root, m.vm.ID, 0, c.to)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	m := newMovers(t)
	for _, who := range []farm.Identity{ann, otto, eve} {
		if _, err := m.VMs.Move(t.Context(), who, m.vm.ID, 0, ""); err == nil {
			t.Errorf("%s may move it", who.User)
		}
	}
}

func closed(h *farm.Host) { h.Closed = true }

func (m *movers) alterHost(name string, do func(*farm.Host)) {
	m.update(func(tx *store.Tx) error {
		h, err := tx.Host("id-" + name)
		if err != nil {
			return err
		}
		do(&h)
		return tx.SetHost(h)
	})
}

func (m *movers) alterFacts(name string, do func(*farm.Facts)) {
	f := m.hosts[name].Facts
	do(&f)
	m.update(func(tx *store.Tx) error { return tx.SetHostFacts("id-"+name, f) })
}

// TestDrainMoves has a drain bring VMs of a service cell elsewhere, one attempt after the other.
func TestDrainMoves(t *testing.T) {
	m := newMovers(t)
	if _, err := m.WhyOf(t.Context(), root, m.vm.ID); err != nil { // has the mirror be read
		t.Fatal(err)
	}
	pass := func() {
		t.Helper()
		if _, err := m.WhyOf(t.Context(), root, m.vm.ID); err != nil {
			t.Fatal(err)
		}
		if err := m.upkeep.moves(t.Context(), m.epoch()); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	if _, err := m.VMs.LastMove(t.Context(), root, m.vm.ID); code(err) != farm.CodeNoMove {
		t.Fatalf("moved without a drain: %v", err)
	}
	if _, err := m.Hosts.Drain(t.Context(), root, []string{"n1"}, DrainOrder{Reason: "new memory"}); err != nil {
		t.Fatal(err)
	}
	pass()
	first := m.last()
	if !first.Active() || first.By != "grange" {
		t.Fatalf("%+v", first)
	}
	m.report("n1", nil, m.runs(&fleet.MoveSide{ID: first.ID, Phase: fleet.MoveFailed, Reason: "move-failed: the test",
		Host: first.To}))
	pass()
	if m.last().ID != first.ID {
		t.Error("tried again at once")
	}
	m.pass(moveAgain)
	for _, name := range []string{"n1", "n2", "n3"} {
		m.seen(m.hosts[name])
		m.report(name, nil, fleet.Observed{ID: api.NewID(), State: "gone", Since: m.clock()})
	}
	pass()
	if m.last().ID == first.ID {
		t.Error("not tried again")
	}
}

// TestMoveOfAnOlderStore has a VM go away by a move that the store, restored from a backup, does not know.
func TestMoveOfAnOlderStore(t *testing.T) {
	m := newMovers(t)
	m.report("n2", nil, m.runs(&fleet.MoveSide{ID: "m", Phase: fleet.MoveCome, Host: "id-n1"}))
	if w := m.wanted("n2"); w.ID != "" {
		t.Errorf("the target is told %+v", w)
	}
	m.report("n1", nil, fleet.Observed{ID: m.vm.ID, State: "stopped", Since: m.clock(),
		Move: &fleet.MoveSide{ID: "m", Phase: fleet.MoveGone, Host: "id-o9"}})
	if v := m.get(m.vm.ID); v.HostName != "n1" {
		t.Errorf("it went to a host that is not there: %s", v.HostName)
	}
	m.report("n1", nil, fleet.Observed{ID: m.vm.ID, State: "stopped", Since: m.clock(),
		Move: &fleet.MoveSide{ID: "m", Phase: fleet.MoveGone, Host: "id-n2"}})
	if v := m.get(m.vm.ID); v.HostName != "n2" {
		t.Errorf("it is on host %s", v.HostName)
	}
}

// TestMoveFenced: of a source that is fenced nobody knows what it decided.
func TestMoveFenced(t *testing.T) {
	m := newMovers(t)
	m.order("n2")
	m.pass(time.Hour)
	m.seen(m.hosts["n2"])
	if _, err := m.Hosts.Fence(t.Context(), root, "n1", 0, "on fire"); err != nil {
		t.Fatal(err)
	}
	if v := m.last(); v.Active() || m.get(m.vm.ID).State != farm.VMLost {
		t.Errorf("%+v", v)
	}
}
