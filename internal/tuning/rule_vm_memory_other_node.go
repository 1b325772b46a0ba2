package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmMemoryOtherNode() Rule {
	return Rule{
		ID:       "vm-memory-other-node",
		Title:    "memory is bound to one node and the vCPUs that use it to another",
		Severity: Warning,
		Holds: "Hosts with several nodes that have memory; vCPUs restricted to CPUs. Nodes without memory are " +
			"left out: there is no near memory for them.",
		Cost: "Not measured by itself: every access of these vCPUs crosses the link between the nodes. The " +
			"firmware's distance table (numactl --hardware) says how far that is.",
		Sources: []Source{
			cernPinning("access to memory of the other processor is slower; making guest and host agree on nodes " +
				"gave a large VM 9 %"),
			kernelDoc("admin-guide/mm/numa_memory_policy",
				"a strict binding takes memory only from the given nodes, however far they are from the CPU"),
		},
		Why: "Pins and memory binding are two places in the XML, and nothing in libvirt compares them. A pin that " +
			"was changed by hand, or a VM moved to the other socket because the first was full, leaves the memory " +
			"where it was. " + "The worst case is then made sure of: strict binding keeps all memory on the far node " +
			"even when the near one is empty.",
		Fix:    "Bind the memory to the node of the vCPUs, or pin the vCPUs to the node of the memory.",
		Danger: "The node must have the memory to spare. A running VM's memory does not follow; start the VM anew.",
		Undo:   "Put the old <numatune> back.",
		Check:  checkVMMemoryOtherNode,
	}
}

func checkVMMemoryOtherNode(h farm.HostFacts, _ Profile) []Finding {
	if memoryNodes(h.Topology) < 2 {
		return nil
	}
	var out []Finding
	for _, d := range h.Domains {
		for _, p := range boundParts(d) {
			if cpus, ok := allowedCPUs(h, d, p.vcpus); ok {
				out = appendFar(out, h, d, p.what, cpus, p.nodes)
			}
		}
	}
	return out
}

func appendFar(out []Finding, h farm.HostFacts, d farm.Domain, what string, cpus, memory farm.CPUSet) []Finding {
	near := nodesOf(h.Topology, cpus)
	if near.Empty() || !near.And(memory).Empty() || !hasMemory(h.Topology, near) {
		return out
	}
	return append(out, Finding{Severity: Warning, Where: vmName(d),
		Wanted: fmt.Sprintf("memory of %s on node %s", what, near),
		Got:    fmt.Sprintf("vCPUs of %s on CPUs %s of node %s, memory on node %s", what, cpus, near, memory),
		Manual: replan(d, fmt.Sprintf("let <numatune> say nodeset='%s' for %s", near, what))})
}

func hasMemory(t farm.Topology, nodes farm.CPUSet) bool {
	for _, n := range t.Nodes {
		if nodes.Has(n.ID) && n.Memory > 0 {
			return true
		}
	}
	return false
}
