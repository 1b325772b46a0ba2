package wire

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

var same = cmp.Options{cmp.Comparer(farm.CPUSet.Equal), cmpopts.EquateEmpty()}

var plan = farm.Plan{
	VCPUs:    []farm.CPUSet{farm.NewCPUSet(2), farm.NewCPUSet(6), farm.CPURange(8, 12)},
	Emulator: farm.NewCPUSet(0), IOThread: farm.NewCPUSet(1),
	Guest:    farm.GuestTopology{Sockets: 1, Cores: 3, Threads: 1},
	Cells:    []farm.GuestCell{{VCPUs: farm.CPURange(0, 3), Memory: 4 * farm.GiB, Node: 1, PageSize: 2 * farm.MiB}},
	Floating: farm.NewCPUSet(2), Extra: farm.NewCPUSet(7),
}

var topology = farm.Topology{
	Online: farm.CPURange(0, 8),
	Cores: []farm.Core{{Socket: 0, Node: 0, Threads: farm.NewCPUSet(0, 4), Kind: farm.FastCore},
		{Socket: 1, Node: 1, Threads: farm.NewCPUSet(1, 5)}},
	Sockets: []farm.Socket{{ID: 0, CPUs: farm.NewCPUSet(0, 4)}, {ID: 1, CPUs: farm.NewCPUSet(1, 5)}},
	Nodes: []farm.Node{{ID: 0, CPUs: farm.NewCPUSet(0, 4), Memory: 8 * farm.GiB, Free: farm.GiB,
		Pages: []farm.HugePages{{Size: 2 * farm.MiB, Total: 10, Free: 7, Surplus: 1}}}, {ID: 1}},
	L3:       []farm.CPUSet{farm.CPURange(0, 4)},
	CPU:      farm.CPUModel{Vendor: "AuthenticAMD", Name: "EPYC", MaxMHz: 3350, Flags: []string{"avx2"}},
	Distance: [][]int{{10, 32}, {32, 10}}, SocketsUntold: true,
}

func TestThereAndBack(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	if got, err := ParsePlan(Plan(plan)); err != nil || !cmp.Equal(plan, got, same) {
		t.Errorf("plan: %v\n%s", err, cmp.Diff(plan, got, same))
	}
	if got := PlanOrNil(farm.Plan{}); got != nil {
		t.Errorf("no plan: %v", got)
	}
	facts := farm.Facts{Version: "v1", Capability: 1, Instance: "i", Boot: "b", Accelerator: "kvm", Topology: topology,
		Reserve: farm.HostReserve{CPUs: farm.NewCPUSet(0), Memory: farm.GiB}, Taken: []farm.Plan{plan},
		Images: []string{"micro"}, Networks: []string{"br0"}, ScratchFree: farm.TiB, Short: []string{"disk"},
		Kind: "amd-epyc-2s", Trusts: []string{"f"}, BatchNode: "rack7-03",
		Audited: true, Findings: []farm.HostFinding{{Rule: "ept-off", Severity: "fault", Places: 2}},
		FileSystems: []farm.HostFileSystem{{Source: "server:/x", Type: "nfs4", MountPoint: "/x", VMs: 3,
			Drains: []string{"x"}}}}
	if got, err := ParseFacts(Facts(facts, now)); err != nil || !cmp.Equal(facts, got, same) {
		t.Errorf("facts: %v\n%s", err, cmp.Diff(facts, got, same))
	}
	seen := farm.Observed{State: farm.VMRunning, Reason: "r", Since: now, Boots: 2, Builds: 1, Ready: true, Plan: plan,
		CPUTime: 90 * time.Second, Digest: "d"}
	if got, err := ParseObserved(observed("id", seen)); err != nil || !cmp.Equal(seen, got, same) {
		t.Errorf("observed: %v\n%s", err, cmp.Diff(seen, got, same))
	}
}

func TestShapeThereAndBack(t *testing.T) {
	plain := farm.Shape{CPUs: 1, Memory: farm.GiB, Network: farm.NetworkNone}
	for _, change := range []func(*farm.Shape){
		func(*farm.Shape) {},
		func(s *farm.Shape) { s.Name, s.CPUs, s.Scratch = "large", 8, farm.GiB },
		func(s *farm.Shape) { s.Guest = farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 1} },
		func(s *farm.Shape) { s.Purpose, s.CPUModel, s.Cache = farm.PurposeService, "EPYC", "none" },
		func(s *farm.Shape) { s.Display = true },
		func(s *farm.Shape) { s.Pages, s.Cells = []farm.Bytes{farm.GiB, 2 * farm.MiB, 0}, 1 },
		func(s *farm.Shape) { s.Cells, s.CPUs = 2, 2 },
		func(s *farm.Shape) { s.Threads, s.Emulator = farm.IsolateCores, farm.EmulatorIsolate },
	} {
		want := plain
		change(&want)
		if got, err := ParseShape(Shape(want)); err != nil || !cmp.Equal(want, got, same) {
			t.Errorf("%+v: %v\n%s", want, err, cmp.Diff(want, got, same))
		}
	}
}

func TestRefused(t *testing.T) {
	for name, parse := range map[string]func() error{
		"plan": func() error { _, err := ParsePlan(api.Plan{VCPUs: []string{"x"}}); return err },
		"many vCPUs": func() error {
			_, err := ParsePlan(api.Plan{VCPUs: make([]string, farm.MaxCPUs+1)})
			return err
		},
		"topology": func() error { _, err := ParseTopology(fleet.Topology{Online: "4-2"}); return err },
		"taken":    func() error { _, err := ParseFacts(fleet.Facts{Taken: []api.Plan{{Extra: "-1"}}}); return err },
		"shape":    func() error { _, err := ParseShape(fleet.Shape{CPUs: 0}); return err },
		"its tuning": func() error {
			_,
				err := ParseShape(fleet.Shape{CPUs: 1, Memory: 1 << 30, NUMA: "odd"})
			return err
		},
		"state":    func() error { _, err := ParseObserved(fleet.Observed{State: "placing"}); return err },
		"no state": func() error { _, err := ParseObserved(fleet.Observed{}); return err },
		"observed at": func() error {
			_, err := ParseObserved(fleet.Observed{State: "running", Plan: &api.Plan{Floating: "?"}})
			return err
		},
	} {
		if own := new(farm.Error); !errors.As(parse(), &own) || own.Kind != farm.Invalid {
			t.Errorf("%s: %v", name, parse())
		}
	}
	if o, err := ParseObserved(fleet.Observed{State: "failed", Reason: strings.Repeat("x", 1<<20)}); err != nil ||
		len(o.Reason) != maxReason {
		t.Errorf("a long reason: %d %v", len(o.Reason), err)
	}
}

func TestWantedVM(t *testing.T) {
	v := farm.VM{ID: "1", Name: "web", Project: "atlas", Wanted: farm.Wanted{Power: farm.PowerOn, Boots: 3},
		Shape: farm.Shape{CPUs: 1, Memory: farm.GiB}, Plan: plan,
		Lease: farm.Lease{Address: netip.MustParsePrefix("10.0.0.5/24"), MAC: "52:54:00:00:00:05"}}
	got := WantedVM(v, farm.FleetNetwork{Bridge: "br0", VLAN: 7, Gateway: "10.0.0.1", DNS: []string{"10.0.0.2"},
		Isolate: true, Closed: true}, nil)
	p := Plan(plan)
	want := fleet.WantedVM{ID: "1", Name: "web", Project: "atlas", Power: "on", Boots: 3,
		Shape: fleet.Shape{CPUs: 1, Memory: 1 << 30}, Plan: &p, Bridge: "br0", Address: "10.0.0.5/24",
		MAC: "52:54:00:00:00:05", Gateway: "10.0.0.1", DNS: []string{"10.0.0.2"}, Isolated: true, Closed: true,
		Hostname: "web"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for n, on := range map[*farm.FleetNetwork]string{{}: "", {VLAN: 7}: "vlan:7", {VXLAN: 7001}: "vxlan:7001"} {
		if got := WantedVM(v, *n, nil); got.Network != on || got.Bridge != "" {
			t.Errorf("%+v: network %q, bridge %q", n, got.Network, got.Bridge)
		}
	}
}

// observed is what a host says of a VM, on the wire.
func observed(id string, o farm.Observed) fleet.Observed {
	return fleet.Observed{ID: id, State: string(o.State), Reason: o.Reason, Since: o.Since, Boots: o.Boots,
		Builds: o.Builds, Ready: o.Ready, Plan: PlanOrNil(o.Plan), CPUTime: o.CPUTime.Seconds(), Digest: o.Digest}
}
