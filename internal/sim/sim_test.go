package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

func testHost(o HostOptions) *Host {
	o.Hardware = Hardware{Sockets: 2, Cores: 4, Memory: 64 * farm.GiB}
	return NewHost(o)
}

func want(vms ...fleet.WantedVM) fleet.WantedList { return fleet.WantedList{VMs: vms} }

// states are what a host says, without times.
func states(h *Host) map[string]string {
	vms, _ := h.Observed()
	out := map[string]string{}
	for _, v := range vms {
		out[v.ID] = v.State
	}
	return out
}

func TestWhatIsWantedComesToBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := testHost(HostOptions{Delay: time.Second})
		step := func(w fleet.WantedVM, soon, then string) {
			t.Helper()
			h.Want(want(w))
			if got := states(h)["1"]; got != soon {
				t.Errorf("%+v: %s at once, want %s", w, got, soon)
			}
			time.Sleep(1500 * time.Millisecond)
			if got := states(h)["1"]; got != then {
				t.Errorf("%+v: %s then, want %s", w, got, then)
			}
		}
		step(fleet.WantedVM{ID: "1", Power: "on"}, "starting", "running")
		step(fleet.WantedVM{ID: "1", Power: "on", Boots: 1}, "starting", "running")
		step(fleet.WantedVM{ID: "1", Power: "off", Boots: 1}, "stopping", "stopped")
		step(fleet.WantedVM{ID: "1", Power: "on", Boots: 1, Builds: 1}, "starting", "running")
		vms, _ := h.Observed()
		if d := cmp.Diff(fleet.Observed{ID: "1", State: "running", Boots: 1, Builds: 1, Ready: true}, vms[0],
			cmpopts.IgnoreFields(fleet.Observed{}, "Since")); d != "" {
			t.Error(d)
		}
		h.Want(want()) // left alone
		if d := cmp.Diff(map[string]string{"1": "running"}, states(h)); d != "" {
			t.Error(d)
		}
		step(fleet.WantedVM{ID: "1", Power: "deleted"}, "deleting", "gone")
		h.Want(want()) // forgotten
		if d := cmp.Diff(map[string]string{}, states(h)); d != "" {
			t.Error(d)
		}
	})
}

func TestFailing(t *testing.T) {
	h := testHost(HostOptions{Failing: 1})
	h.Want(want(fleet.WantedVM{ID: "1", Power: "on"}))
	if d := cmp.Diff(map[string]string{"1": "failed"}, states(h)); d != "" {
		t.Error(d)
	}
	if _, err := h.Stream(t.Context(), fleet.StreamOrder{VM: "2"}); err == nil {
		t.Error("a stream to a VM that is not there")
	}
}

func TestHardware(t *testing.T) {
	topology := Hardware{Sockets: 2, Cores: 4, Memory: 64 * farm.GiB}.Topology()
	back, err := wire.ParseTopology(wire.Topology(topology))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(topology, back); d != "" {
		t.Error(d)
	}
	if n := topology.Online.Len(); n != 16 || len(topology.Cores) != 8 ||
		topology.Nodes[1].CPUs.String() != "4-7,12-15" {
		t.Errorf("%d threads, %d cores, node 1 has %v", n, len(topology.Cores), topology.Nodes[1].CPUs)
	}
}
