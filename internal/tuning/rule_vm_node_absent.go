package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmNodeAbsent() Rule {
	return Rule{
		ID:       "vm-node-absent",
		Title:    "a VM's memory is bound to a node that the host does not have, or that has no memory",
		Severity: Fault,
		Holds: "VMs whose <numatune> names nodes, in any mode. A running VM has its memory already: there it is a " +
			"warning for the next start.",
		Cost: "The VM does not start.",
		Sources: []Source{
			libvirtXML("numa-node-tuning", "nodeset names NUMA nodes of the host; the memory comes from them"),
			{"libvirt 9.0, src/util/virnuma.c, virNumaNodesetIsAvailable",
				"https://gitlab.com/libvirt/libvirt/-/blob/v9.0.0/src/util/virnuma.c",
				"every node of the set is looked up before QEMU starts; one that is not there, or of which nothing can " +
					"be allocated, is an error: NUMA node N is unavailable"},
		},
		Why: "Node numbers are those of the host that a definition was written on. A definition that comes from " +
			"another machine, a change in the firmware (SNC, NPS, sub-NUMA clusters) or a socket that was taken out " +
			"leave numbers that mean nothing here. libvirt looks the nodes up when the VM starts, and refuses. " +
			"A node whose memory channels are empty has a number and CPUs, and still no memory that could be bound.",
		Fix:    "Let <numatune> name nodes that have memory, those of the vCPUs.",
		Danger: "The node must have the memory to spare.",
		Undo:   "Put the old <numatune> back.",
		Check:  checkVMNodeAbsent,
	}
}

func checkVMNodeAbsent(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range h.Domains {
		absent, empty := lostNodes(h, boundNodes(d))
		if absent.Empty() && empty.Empty() {
			continue
		}
		f := Finding{Severity: Fault, Where: vmName(d),
			Wanted: "memory on nodes that have some: " + nodesWithMemory(h.Topology).String(),
			Got:    fmt.Sprintf("memory on %s, which the host does not have", number("node", absent)),
			Manual: replan(d, fmt.Sprintf("let <numatune> name %s", nearMemory(h, d)))}
		if absent.Empty() {
			f.Got = fmt.Sprintf("memory on %s, without any memory", number("node", empty))
		}
		if d.Running {
			f.Severity = Warning
		}
		out = append(out, f)
	}
	return out
}

// boundNodes are all nodes that a VM's <numatune> names.
func boundNodes(d farm.Domain) farm.CPUSet {
	nodes := d.MemoryNodes
	for _, cell := range d.Cells {
		nodes = nodes.Or(cell.Nodes)
	}
	return nodes
}

// nodesWithMemory are the nodes that have memory.
func nodesWithMemory(t farm.Topology) farm.CPUSet {
	var ids []int
	for _, n := range t.Nodes {
		if n.Memory > 0 {
			ids = append(ids, n.ID)
		}
	}
	return farm.NewCPUSet(ids...)
}

// nearMemory names the nodes with memory of a VM's pins, or all that have memory.
func nearMemory(h farm.HostFacts, d farm.Domain) string {
	with := nodesWithMemory(h.Topology)
	if cpus, ok := confinedCPUs(h, d); ok {
		if near := nodesOf(h.Topology, cpus).And(with); !near.Empty() {
			return number("node", near)
		}
	}
	return "one of the nodes " + with.String()
}
