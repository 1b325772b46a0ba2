package numa_test

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
)

// everyOther is a host of four nodes with eight cores each, of which the second and the fourth have no memory. Newer
// kernels show a pool of huge pages on those too, with no page in it.
func everyOther(emptyPools bool) farm.Topology {
	host := topology.Grid{Sockets: 4, CoresPerNode: 8, NodeMemory: 32 * farm.GiB}.Topology()
	for i := range host.Nodes {
		n := &host.Nodes[i]
		if i%2 == 0 {
			n.Pages = []farm.HugePages{{Size: 2 * farm.MiB}}
			continue
		}
		n.Memory, n.Free = 0, 0
		if emptyPools {
			n.Pages = []farm.HugePages{{Size: 2 * farm.MiB}}
		}
	}
	return host
}

// TestCPUsBesideMemory fills nodes with memory first, uses the CPUs of the others when those are full, and marks cells
// whose memory is remote.
func TestCPUsBesideMemory(t *testing.T) {
	for _, emptyPools := range []bool{false, true} {
		host := everyOther(emptyPools)
		var running []farm.Plan
		for i, remote := range []bool{false, false, true, true} {
			room := numa.NewRoom(host, numa.Reserve{}, running)
			p, err := numa.Plan(room, numa.Request{VCPUs: 8, Memory: 8 * farm.GiB, Allowed: host.Online})
			if err != nil {
				t.Fatalf("empty pools %v, VM %d: %v", emptyPools, i, err)
			}
			if len(p.Cells) != 1 || p.Cells[0].Remote != remote || p.Cells[0].Node%2 != 0 {
				t.Errorf("empty pools %v, VM %d: cells %+v on CPUs %v", emptyPools, i, p.Cells, p.CPUs())
			}
			running = append(running, p)
		}
	}
}

// TestCellsBesideMemory gives a VM of two nodes those with memory.
func TestCellsBesideMemory(t *testing.T) {
	for _, emptyPools := range []bool{false, true} {
		host := everyOther(emptyPools)
		room := numa.NewRoom(host, numa.Reserve{}, nil)
		for _, req := range []numa.Request{{VCPUs: 16, Memory: 32 * farm.GiB},
			{VCPUs: 16, Memory: 32 * farm.GiB, Cells: 2}, {VCPUs: 12, Memory: 12 * farm.GiB}} {
			req.Allowed = host.Online
			p, err := numa.Plan(room, req)
			if err != nil || len(p.Cells) != 2 || p.Cells[0].Node != 0 || p.Cells[1].Node != 2 || p.Cells[0].Remote ||
				p.Cells[1].Remote {
				t.Errorf("empty pools %v, %+v: %+v, %v", emptyPools, req, p.Cells, err)
			}
		}
	}
}
