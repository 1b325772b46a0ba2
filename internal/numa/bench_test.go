package numa_test

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// Nova 33 makes 7,450 and 6,060 one-host fits of 8 pinned vCPUs per CPU-second on machines of this kind, with 32 and 256
// threads, 2,550 and 2,180 of 32 vCPUs in two cells, and takes 182 ms to refuse one cell too many on eight nodes.
func BenchmarkPlan(b *testing.B) {
	for _, c := range []struct {
		name  string
		host  farm.Topology
		vcpus int
		fits  bool
	}{
		{"32threads/8", topologytest.CERN2650v2(), 8, true},
		{"32threads/32", topologytest.CERN2650v2(), 32, true},
		{"256threads/8", topologytest.EPYC256(), 8, true},
		{"256threads/64", topologytest.EPYC256(), 64, true},
		{"256threads/refused", topologytest.EPYC256(), 256, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			room := numa.NewRoom(c.host, numa.Reserve{}, nil)
			if !c.fits {
				room.Free = room.Free.Minus(farm.NewCPUSet(0))
			}
			req := numa.Request{VCPUs: c.vcpus, Memory: farm.Bytes(c.vcpus) * farm.GiB, Allowed: c.host.Online}
			for b.Loop() {
				if _, err := numa.Plan(room, req); (err == nil) != c.fits {
					b.Fatal(err)
				}
			}
		})
	}
}
