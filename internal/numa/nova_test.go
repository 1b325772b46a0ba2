package numa_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// TestNova plays the cases of testdata/nova.json: hosts and one-cell requests with the verdict that OpenStack Nova 33.0.2 gives.
// Where Nova refuses, for a Nova cell never leaves its node, we may still split the VM.
func TestNova(t *testing.T) {
	var cases []struct {
		ID    string
		Nodes []struct {
			ID    int
			Cores [][]int
			Free  []int
			KiB   int
			Pages []struct{ KiB, Free int }
		}
		VCPUs, KiB, Page int
		Fits             bool
	}
	b, err := os.ReadFile("testdata/nova.json")
	if err == nil {
		err = json.Unmarshal(b, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		room := numa.Room{Nodes: map[int]numa.NodeRoom{}}
		for _, n := range c.Nodes {
			var all []int
			for _, core := range n.Cores {
				all = append(all, core...)
				room.Topology.Cores = append(room.Topology.Cores, farm.Core{Socket: n.ID, Node: n.ID, Threads: farm.NewCPUSet(core...)})
			}
			room.Topology.Nodes = append(room.Topology.Nodes, farm.Node{ID: n.ID, CPUs: farm.NewCPUSet(all...), Memory: farm.TiB})
			room.Topology.Online = room.Topology.Online.Or(farm.NewCPUSet(all...))
			room.Free = room.Free.Or(farm.NewCPUSet(n.Free...))
			left := numa.NodeRoom{Memory: farm.Bytes(n.KiB) * farm.KiB, Pages: map[farm.Bytes]int{}}
			for _, p := range n.Pages {
				left.Pages[farm.Bytes(p.KiB)*farm.KiB] = p.Free
			}
			room.Nodes[n.ID] = left
		}
		plan, err := numa.Plan(room, numa.Request{VCPUs: c.VCPUs, Memory: farm.Bytes(c.KiB) * farm.KiB, Pages: []farm.Bytes{farm.Bytes(c.Page) * farm.KiB}, Allowed: room.Topology.Online})
		if fits := err == nil && len(plan.Cells) == 1; fits != c.Fits {
			t.Errorf("%s: %d vCPUs, fits %v, want %v: %+v %v", c.ID, c.VCPUs, fits, c.Fits, plan, err)
		}
	}
}
