package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmNoGuestNUMA() Rule {
	return Rule{
		ID:       "vm-no-guest-numa",
		Title:    "a VM larger than a node shows its guest one node",
		Severity: Warning,
		Holds: "VMs with more vCPUs or more memory than one node of the host. Guests of any release that know " +
			"NUMA; numad should be off then. On service hosts advice only: it was measured with jobs.",
		Cost: "About 9 % of HS06 for one VM of 32 vCPUs on two E5-2650 v2, with numad off. The way from 12.9 % " +
			"to 3.5 % in the same series, with pinning, started from EPT off; for EPT on with 2 MiB pages nothing " +
			"was published.",
		Sources: []Source{
			cernPinning("guest cells that follow the host's nodes, with numad off, gave the large VM 9 %"),
			cernSummary("NUMA in the guest: about 9 %"),
			cernTier0("without guest NUMA the loss grew with the VM: 7.8 % for 4 VMs of 8, 16 % for 2 of 16, 20.4 % " +
				"for 1 of 32 (E5-2650 v2, untuned)"),
		},
		Why: "Memory is nearer to one processor than to the other. Linux handles that well if it knows. A guest on " +
			"two nodes that sees one cannot know: it gives a program memory from the far node and moves threads " +
			"between processors as if that were free. " +
			"The host cannot repair it, because to the host the whole VM is one program. Cells in the guest, one for " +
			"each node of the host that it occupies, give the guest's kernel the picture.",
		Fix: "Give the VM a guest cell for each node, pin the cell's vCPUs to the node, bind its memory there, " +
			"and switch numad off.",
		Danger: "A process in the guest that needs more memory than one cell has now gets the rest from the other, " +
			"as on bare metal. Programs bound to node 0 inside see half of the memory.",
		Undo:  "Take <numa> and <numatune> out.",
		Check: checkVMNoGuestNUMA,
	}
}

func checkVMNoGuestNUMA(h farm.HostFacts, p Profile) []Finding {
	nodes := cpuNodes(h.Topology)
	if len(nodes) < 2 {
		return nil
	}
	cpus, memory := largestNode(h.Topology)
	var out []Finding
	for _, d := range foreign(h) {
		if len(d.Cells) > 1 || d.VCPUs < 2 || fitsNode(h.Topology, d) {
			continue
		}
		n := max((d.VCPUs+cpus-1)/cpus, 2)
		if memory > 0 {
			n = max(n, int((d.Memory+memory-1)/memory))
		}
		n = min(n, len(nodes), d.VCPUs)
		severity := Warning
		if p.Role == Service {
			severity = Advice
		}
		out = append(out, Finding{Severity: severity, Where: vmName(d),
			Wanted: fmt.Sprintf("%d guest cells: a node here has %d CPUs and %s", n, cpus, roughly(memory)),
			Got:    fmt.Sprintf("%d vCPUs and %s in one cell", d.VCPUs, roughly(d.Memory)),
			Manual: edit(d, "put "+cellsXML(d.VCPUs, d.Memory,
				n)+" into <cpu>, a <memnode cellid='n' mode='strict' nodeset='m'/> for each into <numatune>, and pins to "+
				"that node into <cputune>")})
	}
	return out
}
