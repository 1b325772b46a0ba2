package libvirt

import (
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
)

func TestWantsTopoext(t *testing.T) {
	cpu := func(vendor string, flags ...string) farm.CPUModel { return farm.CPUModel{Vendor: vendor, Flags: flags} }
	for name, c := range map[string]struct {
		cpu     farm.CPUModel
		threads int
		want    bool
	}{
		"AMD, two threads":           {cpu("AuthenticAMD", "svm", "topoext"), 2, true},
		"Hygon, two threads":         {cpu("HygonGenuine", "topoext"), 2, true},
		"AMD, one thread":            {cpu("AuthenticAMD", "topoext"), 1, false},
		"AMD that lacks it":          {cpu("AuthenticAMD", "svm"), 2, false},
		"Intel":                      {cpu("GenuineIntel", "vmx"), 2, false},
		"Intel that claims to":       {cpu("GenuineIntel", "topoext"), 2, false},
		"a host that cannot be read": {farm.CPUModel{}, 2, false},
	} {
		if got := wantsTopoext(c.cpu, farm.GuestTopology{Sockets: 1, Cores: 2, Threads: c.threads}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestSharesAlike: the host's caches are handed on where the guest's threads share them as the host's do, and nowhere
// else.
func TestSharesAlike(t *testing.T) {
	// threads of a core: n, n+8
	smt := topology.Grid{Sockets: 2, CoresPerNode: 4, Threads: 2, NodeMemory: 8 * farm.GiB}
	plain := topology.Grid{Sockets: 2, CoresPerNode: 4, NodeMemory: 8 * farm.GiB}
	ccx := topology.Grid{Sockets: 1, CoresPerNode: 8, Threads: 2, CachesPerNode: 2, NodeMemory: 8 * farm.GiB}
	// 3 cores a cache
	uneven := topology.Grid{Sockets: 1, CoresPerNode: 6, Threads: 2, CachesPerNode: 2, NodeMemory: 8 * farm.GiB}
	pins := func(cpus ...int) (out []farm.CPUSet) {
		for _, cpu := range cpus {
			out = append(out, farm.NewCPUSet(cpu))
		}
		return out
	}
	guest := func(s, c, t int) farm.GuestTopology { return farm.GuestTopology{Sockets: s, Cores: c, Threads: t} }
	for name, c := range map[string]struct {
		host farm.Topology
		plan farm.Plan
		want bool
	}{
		"the whole host": {smt.Topology(),
			farm.Plan{VCPUs: pins(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), Guest: guest(2, 4, 2)}, true},
		"a socket": {smt.Topology(),
			farm.Plan{VCPUs: pins(4, 12, 5, 13, 6, 14, 7, 15), Guest: guest(1, 4, 2)}, true},
		"half a socket": {smt.Topology(), farm.Plan{VCPUs: pins(0, 8, 1, 9), Guest: guest(1, 2, 2)},
			true},
		// eight IDs are one cache
		"two half sockets as two": {smt.Topology(),
			farm.Plan{VCPUs: pins(0, 8, 1, 9, 4, 12, 5, 13), Guest: guest(2, 2, 2)}, false},
		"a thread of each core": {smt.Topology(), farm.Plan{VCPUs: pins(0, 1, 2, 3), Guest: guest(1, 4, 1)},
			false},
		"one vCPU": {smt.Topology(), farm.Plan{VCPUs: pins(0), Guest: guest(1, 1, 1)}, true},
		"threads that are no siblings": {smt.Topology(), farm.Plan{VCPUs: pins(0, 1, 8, 9), Guest: guest(1, 2, 2)},
			false},
		"without SMT": {plain.Topology(),
			farm.Plan{VCPUs: pins(0, 1, 2, 3, 4, 5, 6, 7), Guest: guest(2, 4, 1)}, true},
		"across sockets as one": {plain.Topology(),
			farm.Plan{VCPUs: pins(0, 1, 4, 5), Guest: guest(1, 4, 1)}, false},
		"two caches of a socket": {ccx.Topology(),
			farm.Plan{VCPUs: pins(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), Guest: guest(1, 8, 2)}, true},
		"half of each of two caches": {ccx.Topology(),
			farm.Plan{VCPUs: pins(0, 8, 1, 9, 4, 12, 5, 13), Guest: guest(1, 4, 2)}, false},
		"three cores a cache": {uneven.Topology(),
			farm.Plan{VCPUs: pins(0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11), Guest: guest(1, 6, 2)}, false},
		"vCPUs that float": {plain.Topology(),
			farm.Plan{VCPUs: []farm.CPUSet{farm.CPURange(0, 4)}, Guest: guest(1, 1, 1), Floating: farm.NewCPUSet(0)},
			false},
		"a CPU that the host does not have": {plain.Topology(), farm.Plan{VCPUs: pins(40), Guest: guest(1, 1, 1)},
			false},
		"a host that cannot be read": {farm.Topology{}, farm.Plan{VCPUs: pins(0), Guest: guest(1, 1, 1)}, false},
	} {
		if got := sharesAlike(c.host, c.plan); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	// What the planner makes of a whole host is laid out as the host is.
	for _, grid := range []topology.Grid{smt, plain, ccx} {
		host := grid.Topology()
		p, err := numa.Plan(numa.NewRoom(host, numa.Reserve{}, nil),
			numa.Request{VCPUs: host.Online.Len(), Memory: farm.GiB, Allowed: host.Online})
		if err != nil || !sharesAlike(host, p) {
			t.Errorf("%+v: %v; planned %v as %+v, whose caches are not the host's", grid, err, p.VCPUs, p.Guest)
		}
	}
}

// TestCompared: a guest's topoext is no reason against a processor that has it, and one against others.
func TestCompared(t *testing.T) {
	guest := libvirtxml.DomainCPU{Topology: &libvirtxml.DomainCPUTopology{Threads: 2}, Numa: &libvirtxml.DomainNuma{},
		Features: []libvirtxml.DomainCPUFeature{{Policy: "require", Name: "topoext"}, {Policy: "require", Name: "svm"}}}
	for flags, want := range map[string]string{"svm topoext": "svm", "svm": "topoext svm"} {
		got := compared(guest, farm.CPUModel{Flags: strings.Fields(flags)})
		var names []string
		for _, f := range got.Features {
			names = append(names, f.Name)
		}
		if strings.Join(names, " ") != want || got.Topology != nil || got.Numa != nil {
			t.Errorf("on a processor with %s: %+v", flags, got)
		}
	}
	if len(guest.Features) != 2 {
		t.Error("the guest's own features have changed")
	}
}
