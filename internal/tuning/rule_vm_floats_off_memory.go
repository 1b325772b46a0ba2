package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmFloatsOffMemory() Rule {
	return Rule{
		ID:       "vm-floats-off-memory",
		Title:    "memory is bound to nodes, and the vCPUs that use it may run on others, too",
		Severity: Warning,
		Holds: "Hosts with several nodes that have memory; VMs and guest cells whose memory is bound. Nodes without " +
			"memory are left out, and so are placements that numad advises for vCPUs and memory together. Where " +
			"numad advises the vCPUs' nodes alone, it is advice.",
		Cost: "Not measured by itself: as many accesses cross the link between the nodes as the vCPUs run off their " +
			"memory. On two nodes that is about half.",
		Sources: []Source{
			cernPinning("access to memory of the other processor is slower; making guest and host agree on nodes " +
				"gave a large VM 9 %"),
			libvirtXML("cpu-allocation", "without a cpuset, and without vcpupin, vCPUs may run on all CPUs of the host; "+
				"numatune does not restrict them"),
			{"Linux, set_mempolicy(2), MPOL_F_NUMA_BALANCING", "https://man7.org/linux/man-pages/man2/set_mempolicy.2.html",
				"memory that is bound with MPOL_BIND takes part in the kernel's NUMA balancing only with this flag"},
		},
		Why: "<numatune> binds memory and no vCPU, and <memnode> does so for each guest cell. vCPUs without pins go " +
			"to the CPUs of any node, away from memory that cannot follow them. The kernel's NUMA balancing does not " +
			"bring them back, because it leaves bound memory alone. A guest with cells is worse off than one without: " +
			"it keeps programs near memory that is not near. An interleaved binding to one node is such a binding, too.",
		Fix:    "Restrict the vCPUs to the CPUs of the nodes that their memory is bound to, or take the binding out.",
		Danger: "The vCPUs then have fewer CPUs to float over: leave at least as many as there are vCPUs.",
		Undo:   "Take the <vcpupin> elements out.",
		Check:  checkVMFloatsOffMemory,
	}
}

func checkVMFloatsOffMemory(h farm.HostFacts, _ Profile) []Finding {
	if memoryNodes(h.Topology) < 2 {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		for _, p := range boundParts(d) {
			if f, found := floatsOff(h, d, p); found {
				out = append(out, f)
			}
		}
	}
	return out
}

func floatsOff(h farm.HostFacts, d farm.Domain, p boundPart) (f Finding, found bool) {
	cpus, confined := allowedCPUs(h, d, p.vcpus)
	if !confined {
		cpus = h.Topology.Online.Minus(isolated(h)) // the scheduler brings nobody there
	}
	with := nodesWithMemory(h.Topology)
	on := nodesOf(h.Topology, cpus).And(with)
	f = Finding{Severity: Warning, Where: vmName(d),
		Wanted: fmt.Sprintf("vCPUs of %s on %s", p.what, number("node", p.nodes)),
		Got: fmt.Sprintf("the memory of %s is bound to %s, its vCPUs may run on %s", p.what,
			number("node", p.nodes), number("node", on))}
	switch {
	case on.And(p.nodes).Empty(): // vm-memory-other-node looks at those
		return f, false
	case d.VCPUAuto && d.MemoryAuto:
		return f, false
	case d.VCPUAuto:
		on, f.Severity = with, Advice
		f.Got = fmt.Sprintf("the memory of %s is bound to %s, and numad chooses the vCPUs' nodes at each start", p.what,
			number("node", p.nodes))
	case confined && (len(d.Cells) > 1 || pinned(d) && fitsNode(h.Topology, d)):
		return f, false // vm-pins-cross-node looks at those
	}
	f.Manual, f.Edits = towardsMemory(h, d, p, on)
	return f, !on.Minus(p.nodes).Empty()
}

// towardsMemory says how vCPUs come to the nodes of their memory: with edits where CPUs are free of other pins there.
// Memory of nodes with fewer CPUs than vCPUs is to be bound to more nodes.
func towardsMemory(h farm.HostFacts, d farm.Domain, p boundPart, on farm.CPUSet) (string, []Edit) {
	near := nodeSet(h.Topology, p.nodes).And(h.Topology.Online).Minus(isolated(h))
	if near.Len() < len(p.vcpus) {
		return edit(d, fmt.Sprintf("let <numatune> say nodeset='%s' for %s: it has more vCPUs than %s has CPUs", on,
			p.what, number("node", p.nodes))), []Edit{p.bindTo(d, on)}
	}
	own := pinsOf(d, farm.NewCPUSet(p.vcpus...))
	free := near.And(unpinnedCPUs(h).Or(own))
	var edits []Edit
	if free.Len() >= len(p.vcpus) && !d.VCPUAuto {
		near = free
		for _, vcpu := range p.vcpus {
			edits = append(edits, pin(d, vcpu, near))
		}
	}
	return edit(d, fmt.Sprintf("pin vCPUs %s to CPUs %s (<vcpupin vcpu='n' cpuset='%[2]s'/>), or take the binding of "+
		"their memory out of <numatune>", farm.NewCPUSet(p.vcpus...), near)), edits
}

// nodeSet are the CPUs of some nodes.
func nodeSet(t farm.Topology, nodes farm.CPUSet) farm.CPUSet {
	var cpus farm.CPUSet
	for _, n := range t.Nodes {
		if nodes.Has(n.ID) {
			cpus = cpus.Or(n.CPUs)
		}
	}
	return cpus
}
