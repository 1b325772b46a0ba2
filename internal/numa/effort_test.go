package numa_test

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// TestEffort bounds the work of a search on hosts of many nodes by what it allocates, which does not depend on the
// machine's speed.
func TestEffort(t *testing.T) {
	sockets := topology.Grid{Sockets: 22, CoresPerNode: 2, Threads: 1, NodeMemory: 8 * farm.GiB}.Topology()
	sockets = topologytest.WithPages(sockets, 2*farm.MiB, 2048)
	nodes := topology.Grid{Sockets: 16, NodesPerSocket: 2, CoresPerNode: 16, Threads: 2,
		NodeMemory: 64 * farm.GiB}.Topology()
	for i := range nodes.Nodes {
		nodes.Nodes[i].Pages = []farm.HugePages{{Size: 2 * farm.MiB, Total: 10000}, {Size: farm.GiB, Total: 3 + i}}
	}
	half := numa.NewRoom(nodes, numa.Reserve{}, nil)
	for id, n := range half.Nodes {
		if id%2 == 0 {
			n.Memory, n.Pages = 0, nil
			half.Nodes[id] = n
		}
	}
	for _, c := range []struct {
		name string
		room numa.Room
		req  numa.Request
		want int // vCPUs that would fit instead; 0: the request fits
	}{
		{"12 of 22 nodes, and a page size that none of them has", numa.NewRoom(sockets, numa.Reserve{}, nil),
			numa.Request{VCPUs: 23, Memory: 23 * farm.GiB, Pages: []farm.Bytes{farm.GiB, 2 * farm.MiB}}, 0},
		{"more memory than the host has", half, numa.Request{VCPUs: 1024, Memory: 4 * farm.TiB,
			Pages: []farm.Bytes{farm.GiB, 2 * farm.MiB, 0}, Emulator: farm.EmulatorIsolate}, 108},
	} {
		c.req.Allowed = c.room.Topology.Online
		const most = 300_000
		allocated := testing.AllocsPerRun(1, func() {
			if c.want == 0 {
				if _, err := numa.Plan(c.room, c.req); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			} else if small, _ := numa.Smaller(c.room, c.req); small.VCPUs != c.want {
				t.Errorf("%s: %d vCPUs would fit instead, not %d", c.name, small.VCPUs, c.want)
			}
		})
		t.Logf("%s: %.0f", c.name, allocated)
		if allocated > most {
			t.Errorf("%s: %.0f allocations, not %d at most", c.name, allocated, most)
		}
	}
}
