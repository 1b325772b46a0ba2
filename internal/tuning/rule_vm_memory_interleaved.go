package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmMemoryInterleaved() Rule {
	return Rule{
		ID:       "vm-memory-interleaved",
		Title:    "memory is interleaved over nodes where none of the vCPUs that use it run",
		Severity: Advice,
		Holds: "Hosts with several nodes that have memory; vCPUs that are restricted to some of the interleaved nodes, " +
			"if these nodes have room for all of the memory.",
		Cost: "Not measured by itself: of memory that is interleaved over two nodes, one half is remote.",
		Sources: []Source{
			cernPinning("access to memory of the other processor is slower; making guest and host agree on nodes " +
				"gave a large VM 9 %"),
			libvirtXML("numa-node-tuning", "mode is interleave, strict, preferred or restrictive; it says how memory "+
				"comes from the nodes of nodeset"),
			kernelDoc("admin-guide/mm/numa_memory_policy",
				"interleave takes pages from the given nodes in turn, wherever the CPU is that touches them"),
		},
		Why: "Interleaving spreads the pages of a VM evenly over nodes. That is right for vCPUs that run on all of " +
			"these nodes, as no node is asked more than the others. vCPUs of one node gain nothing of it as long " +
			"as their node has the memory: a fixed share of their accesses goes to the others, and a single " +
			"program in the guest can do nothing about it.",
		Fix: "Interleave over the nodes of the vCPUs only.",
		Danger: "The nodes must have the memory to spare. A guest that is limited by the bandwidth of one node's memory " +
			"may be faster with that of two.",
		Undo:  "Put the old nodeset back.",
		Check: checkVMMemoryInterleaved,
	}
}

func checkVMMemoryInterleaved(h farm.HostFacts, _ Profile) []Finding {
	if memoryNodes(h.Topology) < 2 {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		for _, p := range boundParts(d) {
			cpus, confined := allowedCPUs(h, d, p.vcpus)
			near := nodesOf(h.Topology, cpus).And(nodesWithMemory(h.Topology)).And(p.nodes)
			if p.mode != "interleave" || !confined || near.Empty() || p.nodes.Minus(near).Empty() ||
				p.memory == 0 || p.memory > memoryOf(h.Topology, near) {
				continue
			}
			out = append(out, Finding{Severity: Advice, Where: vmName(d),
				Wanted: fmt.Sprintf("memory of %s on %s", p.what, number("node", near)),
				Got: fmt.Sprintf("the memory of %s is interleaved over %s, its vCPUs run on %s", p.what,
					number("node", p.nodes), number("node", nodesOf(h.Topology, cpus))),
				Manual: edit(d, fmt.Sprintf("let <numatune> say nodeset='%s' for %s", near, p.what)),
				Edits:  []Edit{p.bindTo(d, near)}})
		}
	}
	return out
}

// memoryOf is the memory of some nodes.
func memoryOf(t farm.Topology, nodes farm.CPUSet) (memory farm.Bytes) {
	for _, n := range t.Nodes {
		if nodes.Has(n.ID) {
			memory += n.Memory
		}
	}
	return memory
}
