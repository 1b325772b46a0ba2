package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func memorylessNode() Rule {
	return Rule{
		ID:       "memoryless-node",
		Title:    "a NUMA node has CPUs and no memory",
		Severity: Warning,
		Holds:    "Hosts with several nodes of which at least one has memory.",
		Cost:     "Not measured here: every access to memory from that node's CPUs goes to another node.",
		Sources: []Source{
			kernelDoc("mm/numa", "a node without memory takes its pages from the nearest node that has some; "+
				"programs that ask for local memory do not notice"),
		},
		Why: "Part of the processor's memory channels is empty, or the firmware divides the socket into more nodes " +
			"than have DIMMs, as with AMD's NPS4 on a half-filled board. VMs on these CPUs run, but all their memory " +
			"is remote, " + "and they use up the bandwidth of a neighbour. A VM with strict binding to that node " +
			"cannot start at all.",
		Fix:   "Fit DIMMs to the channels of that node, or choose fewer nodes for each socket in the firmware.",
		Undo:  "Nothing is changed.",
		Check: checkMemorylessNode,
	}
}

func checkMemorylessNode(h farm.HostFacts, _ Profile) []Finding {
	if len(guestNodes(h)) == 0 {
		return nil // nothing is known of any node's memory
	}
	var out []Finding
	for _, n := range h.Topology.Nodes {
		if n.Memory == 0 && !n.CPUs.Empty() {
			out = append(out, Finding{Severity: Warning, Where: fmt.Sprintf("node %d", n.ID),
				Wanted: "memory of its own", Got: "CPUs " + n.CPUs.String() + " and no memory",
				Manual: "fit DIMMs to this node's channels, or let the firmware make fewer nodes (NPS1, SNC off)"})
		}
	}
	return out
}
