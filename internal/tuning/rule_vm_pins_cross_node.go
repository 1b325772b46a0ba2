package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmPinsCrossNode() Rule {
	return Rule{
		ID:       "vm-pins-cross-node",
		Title:    "what a guest takes for one node is pinned to CPUs of several",
		Severity: Warning,
		Holds: "Hosts with several NUMA nodes; guest cells whose vCPUs are restricted to CPUs, and pinned VMs " +
			"without cells that would fit into one node.",
		Cost: "Not measured by itself. The opposite, cells that follow the nodes, gave one VM of 32 vCPUs about " +
			"9 % of HS06 (CERN 2015).",
		Sources: []Source{
			cernPinning("memory access is faster on the processor that the memory hangs on; a guest must know the " +
				"nodes to use that, which gave the large VM 9 %"),
			redHatTuning("vCPU pinning and NUMA",
				"sect-virtualization_tuning_optimization_guide-numa-numa_and_libvirt-domain_vcpu_threads",
				"CPUs, memory and nodes of guest and host belong one to one"),
		},
		Why: "A guest keeps a program and its memory together within what it believes to be a node. When the vCPUs " +
			"behind that node run on two processors of the host, half of the accesses go over the link between them, " +
			"and the guest cannot see it, let alone mend it. " +
			"CPU numbers are not in order of nodes on many machines: 0-7,16-23 and 8-15,24-31 on CERN's, even and odd " +
			"numbers on others. Pins 0 to 15 look tidy and cross.",
		Fix:    "Pin the vCPUs of each guest cell to CPUs of one node, and bind the cell's memory to the same node.",
		Danger: "The node must have the CPUs and the memory to spare.",
		Undo:   "Put the old <cputune> back.",
		Check:  checkVMPinsCrossNode,
	}
}

func checkVMPinsCrossNode(h farm.HostFacts, _ Profile) []Finding {
	if len(cpuNodes(h.Topology)) < 2 {
		return nil
	}
	var out []Finding
	for _, d := range h.Domains {
		if len(d.Cells) < 2 {
			if cpus, ok := confinedCPUs(h, d); ok && pinned(d) && fitsNode(h.Topology, d) {
				out = appendCrossing(out, h, d, "its vCPUs", cpus)
			}
			continue
		}
		for id, cell := range d.Cells {
			if cpus, ok := allowedCPUs(h, d, cell.VCPUs.List()); ok {
				out = appendCrossing(out, h, d, fmt.Sprintf("vCPUs %s of guest cell %d", cell.VCPUs, id), cpus)
			}
		}
	}
	return out
}

func appendCrossing(out []Finding, h farm.HostFacts, d farm.Domain, what string, cpus farm.CPUSet) []Finding {
	nodes := nodesOf(h.Topology, cpus)
	if nodes.Len() < 2 {
		return out
	}
	return append(out, Finding{Severity: Warning, Where: vmName(d), Wanted: what + " on CPUs of one node",
		Got:    fmt.Sprintf("%s: CPUs %s of nodes %s", what, cpus, nodes),
		Manual: replan(d, "choose in <cputune> CPUs of one node for them ("+nodeCPUs(h.Topology)+")")})
}

// nodeCPUs lists the nodes with their CPUs, for people.
func nodeCPUs(t farm.Topology) string {
	var names []string
	for _, n := range cpuNodes(t) {
		names = append(names, fmt.Sprintf("node %d: %s", n.ID, n.CPUs))
	}
	return few(names)
}
