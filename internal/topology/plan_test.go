package topology_test

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
)

// TestPlanOnRecordedTrees holds that what is read can be planned on: every recorded host takes VMs of every size, up to
// itself.
func TestPlanOnRecordedTrees(t *testing.T) {
	for _, f := range facts(t) {
		host, err := topology.Read(tree(t, f))
		if err != nil {
			t.Fatal(err)
		}
		for vcpus := 1; vcpus <= host.Online.Len(); vcpus++ {
			room := numa.NewRoom(host, numa.Reserve{}, nil)
			req := numa.Request{VCPUs: vcpus, Memory: farm.Bytes(vcpus) * 2 * farm.MiB, Allowed: host.Online}
			plan, err := numa.Plan(room, req)
			if err != nil {
				t.Errorf("%s: %d vCPUs: %v", f.Name, vcpus, err)
				continue
			}
			seen := numa.Observed{VCPUs: plan.VCPUs, Emulator: plan.Emulator}
			for _, c := range plan.Cells {
				seen.Nodes = append(seen.Nodes, c.Node)
			}
			if p := numa.Check(plan, seen, nil); len(p) > 0 || plan.CPUs().Len() != vcpus ||
				plan.Memory() != req.Memory {
				t.Errorf("%s: %d vCPUs: %+v %v", f.Name, vcpus, plan, p)
			}
		}
	}
}
