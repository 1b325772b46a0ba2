package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmMemoryUnbound() Rule {
	return Rule{
		ID:       "vm-memory-unbound",
		Title:    "a VM's vCPUs are bound to nodes and its memory is not",
		Severity: Advice,
		Holds: "Hosts with several nodes that have memory; VMs pinned to CPUs of one node, and VMs with guest " +
			"cells. Memory with placement='auto' is bound to a node, which need not be that of pinned vCPUs.",
		Cost: "CERN tried the numatune options on top of guest NUMA and found no significant improvement: the " +
			"kernel takes near memory by itself while there is some. Unbound memory costs when the near node is full.",
		Sources: []Source{
			cernPinning("the numatune options were tried and produced no significant improvement"),
			libvirtXML("numa-node-tuning", "<memory> binds a VM's memory to nodes, <memnode> that of each guest cell; "+
				"with placement='auto' numad advises the nodes, and <memnode> is not possible"),
			kernelDoc("admin-guide/mm/numa_memory_policy",
				"by default memory comes from the node of the CPU that touches it first, and from other nodes when "+
					"that has none free"),
		},
		Why: "Without binding, each page of a guest comes from the node on which the vCPU ran that touched it first, " +
			"or from the next node when that one is full. On a host that fills up, with page cache or with other " +
			"VMs, a part of the guest's memory ends on the far side, for as long as the VM lives, and nothing shows " +
			"it. " + "A guest cell whose memory is elsewhere is worse than none: the guest's kernel optimises for a " +
			"picture that is wrong. Binding makes the start fail, or the pages come from the right place.",
		Fix: "Bind the memory of each cell, or of the whole VM, to the node of its vCPUs.",
		Danger: "With mode='strict' a VM does not start, or is killed, when the node has no memory left. Leave room, " +
			"or take huge pages.",
		Undo:  "Take <numatune> out.",
		Check: checkVMMemoryUnbound,
	}
}

func checkVMMemoryUnbound(h farm.HostFacts, _ Profile) []Finding {
	if memoryNodes(h.Topology) < 2 {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		if got, bind, found := unbound(h, d); found {
			out = append(out, Finding{Severity: Advice, Where: vmName(d),
				Wanted: "memory bound to the nodes of its vCPUs", Got: got,
				Manual: edit(d, "put "+bind+" into <numatune>")})
		}
	}
	return out
}

func unbound(h farm.HostFacts, d farm.Domain) (got, bind string, found bool) {
	if len(d.Cells) < 2 {
		cpus, ok := confinedCPUs(h, d)
		nodes := nodesOf(h.Topology, cpus)
		if !ok || nodes.Len() != 1 || d.VCPUAuto || !d.MemoryAuto && !d.MemoryNodes.Empty() {
			return "", "", false
		}
		bind = fmt.Sprintf("<memory mode='strict' nodeset='%s'/>", nodes)
		if d.MemoryAuto {
			return fmt.Sprintf("all vCPUs are on node %s, and numad chooses the memory's nodes at each start", nodes),
				bind + " in the place of placement='auto'", true
		}
		return fmt.Sprintf("all vCPUs are on node %s, and no numatune", nodes), bind, true
	}
	if d.MemoryNodes.Len() == 1 {
		return "", "", false // all cells are on that node
	}
	for id, cell := range d.Cells {
		if cell.Nodes.Empty() {
			bind = "<memnode cellid='n' mode='strict' nodeset='m'/> for each guest cell, with the node of its vCPUs,"
			if d.MemoryAuto {
				bind += " in the place of placement='auto',"
			}
			return fmt.Sprintf("the memory of guest cell %d is not bound", id), bind, true
		}
	}
	return "", "", false
}
