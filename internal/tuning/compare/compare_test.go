package compare_test

import (
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology/topologytest"
	"github.com/grange-project/grange/internal/tuning/compare"
)

func TestCompare(t *testing.T) {
	vm := func(name, mode string, disks ...farm.DomainDisk) farm.Domain {
		return farm.Domain{Name: name, CPUMode: mode, VCPUs: 4, Disks: disks}
	}
	old := farm.HostFacts{Topology: topologytest.CERN2650v2(), Versions: farm.Versions{QEMU: "7.2.19"},
		Domains: []farm.Domain{
			vm("through", "host-passthrough"), vm("model", "host-model"), vm("custom", "custom"),
			vm("cached", "custom", farm.DomainDisk{Target: "vda", Path: "/a", Cache: "writeback"}),
			vm("direct", "custom", farm.DomainDisk{Target: "vda", Path: "/a", Cache: "none"}),
		}}
	old.Topology.CPU = farm.CPUModel{Vendor: "GenuineIntel", Name: "Xeon E5-2650 v2", Family: 6, Model: 62, Stepping: 4,
		Flags: []string{"fpu", "avx"}}
	newer := old
	newer.Topology.CPU.Name, newer.Topology.CPU.Model, newer.Topology.CPU.Flags = "Xeon E5-2630 v3", 63, []string{"avx",
		"avx2", "fpu"}
	downgraded := old
	downgraded.Versions.QEMU = "6.10.0"
	poorer := newer
	poorer.Topology.CPU.Flags = []string{"fpu"}

	free := func(c compare.Comparison) (names []string) {
		for _, m := range c.VMs {
			if len(m.Obstacle) == 0 {
				names = append(names, m.VM)
			}
		}
		return names
	}
	for name, c := range map[string]struct {
		to   farm.HostFacts
		free []string
	}{
		"the same host":       {old, []string{"through", "model", "custom", "direct"}},
		"a newer processor":   {newer, []string{"model", "custom", "direct"}},
		"flags are missing":   {poorer, []string{"custom", "direct"}},
		"QEMU is older":       {downgraded, []string{"custom", "direct"}},
		"nothing known of it": {farm.HostFacts{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := free(compare.Hosts(old, c.to)); !slices.Equal(got, c.free) {
				t.Errorf("%v could move, want %v", got, c.free)
			}
		})
	}
	if got := compare.Hosts(old, newer); !slices.Equal(got.Additional, []string{"avx2"}) || got.Missing != nil {
		t.Errorf("additional %v, missing %v", got.Additional, got.Missing)
	}
}
