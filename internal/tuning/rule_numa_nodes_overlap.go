package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func numaNodesOverlap() Rule {
	return Rule{
		ID:       "numa-nodes-overlap",
		Title:    "the firmware shows several NUMA nodes with the same CPUs",
		Severity: Warning,
		Holds: "Hosts whose nodes share CPUs, which no hardware has. Seen with the firmware of two-socket Xeon " +
			"E5472 machines.",
		Cost: "Memory: what lies on the other nodes is not used for guests that are bound to their memory. Not " +
			"measured: speed.",
		Sources: []Source{
			{"hwloc test suite, 8em64t-2s2ca2c-buggynuma", "https://github.com/open-mpi/hwloc",
				"a recorded machine whose firmware shows eight nodes with the same eight CPUs; hwloc keeps the first " +
					"of them and ignores the others"},
			kernelDoc("admin-guide/kernel-parameters",
				"numa=off: the kernel sets up one node with all CPUs and all memory"),
		},
		Why: "A NUMA node is a group of CPUs with the memory next to them. Where the tables of the firmware give the " +
			"same CPUs to several nodes, nothing says which memory is near: the planner takes such nodes for one. " +
			"It binds guests' memory to the first of them, because a binding names a node, and leaves the memory of the " +
			"others to the host's own programs.",
		Fix: "Update the firmware; where there is no better one, boot with numa=off: then one node has all of the " +
			"memory.",
		Danger: "With numa=off nothing is bound to nodes any more, which such a machine does not offer anyway.",
		Undo:   "Take numa=off from the command line and reboot.",
		Check:  checkNUMANodesOverlap,
	}
}

func checkNUMANodesOverlap(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, lost := range h.Topology.Overlapping {
		for _, n := range h.Topology.Nodes {
			if n.CPUs.And(lost.CPUs).Empty() {
				continue
			}
			out = append(out, Finding{Severity: Warning, Where: fmt.Sprintf("node %d", lost.ID),
				Wanted: "CPUs that no other node has",
				Got: fmt.Sprintf("CPUs %s, as node %d; its %s are not used for guests", lost.CPUs, n.ID,
					roughly(lost.Memory)), Manual: "update the firmware, or boot with numa=off"})
			break
		}
	}
	return out
}
