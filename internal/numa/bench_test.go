package numa_test

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// Nova 33 makes 7,450 and 6,060 one-host fits of 8 pinned vCPUs per CPU-second on machines of this kind, with 32 and
// 256 threads, 2,550 and 2,180 of 32 vCPUs in two cells, and takes 182 ms to refuse an 8-cell guest on eight nodes of
// which one is too full.
func BenchmarkPlan(b *testing.B) {
	cern, epyc := topologytest.CERN2650v2(), topologytest.EPYC256()
	for _, c := range []struct {
		name string
		host farm.Topology
		held farm.CPUSet
		req  numa.Request
		fits bool
	}{
		{"32threads/8", cern, half(cern), numa.Request{VCPUs: 8}, true},
		{"32threads/32", cern, farm.CPUSet{}, numa.Request{VCPUs: 32}, true},
		{"256threads/8", epyc, half(epyc), numa.Request{VCPUs: 8}, true},
		{"256threads/64", epyc, half(epyc), numa.Request{VCPUs: 64}, true},
		{"256threads/8isolated", epyc, half(epyc), numa.Request{VCPUs: 8, Threads: farm.IsolateCores}, true},
		{"256threads/8cells", epyc, half(epyc), numa.Request{VCPUs: 128, Cells: 8}, true},
		{"256threads/8cellsRefused", epyc, farm.CPURange(0, 16).Or(farm.NewCPUSet(128)),
			numa.Request{VCPUs: 128, Cells: 8}, false},
		{"256threads/refused", epyc, farm.NewCPUSet(0), numa.Request{VCPUs: 256}, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			room := numa.NewRoom(c.host, numa.Reserve{}, nil)
			room.Free = room.Free.Minus(c.held)
			c.req.Memory, c.req.Allowed = farm.Bytes(c.req.VCPUs)*farm.GiB, c.host.Online
			b.ReportAllocs()
			for b.Loop() {
				if _, err := numa.Plan(room, c.req); (err == nil) != c.fits {
					b.Fatal(err)
				}
			}
		})
	}
}

// half is half of every node's cores.
func half(host farm.Topology) farm.CPUSet {
	var out []farm.CPUSet
	for i, c := range host.Cores {
		if i%2 == 0 {
			out = append(out, c.Threads)
		}
	}
	return farm.Union(out...)
}

func BenchmarkWaste(b *testing.B) {
	host := topologytest.EPYC256()
	room := numa.NewRoom(host, numa.Reserve{}, nil)
	p, err := numa.Plan(room, numa.Request{VCPUs: 8, Memory: farm.GiB, Allowed: host.Online})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		numa.Waste(room, p)
	}
}
