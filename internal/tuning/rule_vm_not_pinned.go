package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmNotPinned() Rule {
	return Rule{
		ID:       "vm-not-pinned",
		Title:    "vCPUs of a compute VM are not pinned",
		Severity: Warning,
		Roles:    []Role{Compute},
		Holds: "Compute hosts without CPU overcommitment. Measured for one VM of 32 vCPUs; CERN had still to look " +
			"at VMs of 8 and 16, so for VMs smaller than a node this is advice only.",
		Cost: "About 3 % of HS06, on top of guest NUMA, for one VM of 32 vCPUs on two E5-2650 v2.",
		Sources: []Source{
			cernPinning("one-to-one pinning gave the large VM a further 3 % after guest NUMA; the effect on VMs of 8 " +
				"and 16 vCPUs was still to be studied"),
			cernSummary("CPU pinning: about 3 %, cumulative on top of NUMA"),
			cernTier0("pinning by a faulty scheduler put two VMs on one processor: wrong pins cost far more than none"),
		},
		Why: "To the host's scheduler a vCPU is a thread like any other, to be put on whatever CPU is free at the " +
			"next tick. Each move leaves caches behind, and may leave the node where the guest's memory is. For a " +
			"CPU-bound VM on a host that is not overcommitted there is nothing to gain from moving. " +
			"Pinned vCPUs also make the guest's own decisions come true: its idea of cores and nodes is then the host's.",
		Fix: "Pin each vCPU to one CPU: pairs of siblings together, all CPUs of a guest cell on one node, no CPU " +
			"twice.",
		Danger: "Pins are exclusive only if somebody keeps them so. Pin all VMs of the host by one plan, or none: " +
			"two VMs on the same CPUs halve each other.",
		Undo:  "Take the <vcpupin> elements out.",
		Check: checkVMNotPinned,
	}
}

func checkVMNotPinned(h farm.HostFacts, p Profile) []Finding {
	if !p.Pinned || h.Topology.Online.Len() < 2 {
		return nil
	}
	cpus, _ := largestNode(h.Topology)
	var out []Finding
	for _, d := range foreign(h) {
		if d.VCPUAuto {
			continue // they run on the CPUs of the nodes that numad advises
		}
		floating := 0
		for vcpu := range d.VCPUs {
			if _, confined := allowedCPUs(h, d, []int{vcpu}); !confined {
				floating++
			}
		}
		if floating == 0 || d.VCPUs > h.Topology.Online.Len() {
			continue
		}
		f := Finding{Severity: Advice, Where: vmName(d), Wanted: "each vCPU pinned to one CPU",
			Got: fmt.Sprintf("%d of %d vCPUs may run on all CPUs", floating, d.VCPUs),
			Manual: edit(d, "put a <vcpupin vcpu='n' cpuset='m'/> for each vCPU into <cputune>, by a plan for all "+
				"VMs of the host")}
		if d.VCPUs >= cpus {
			f.Severity = Warning
		}
		out = append(out, f)
	}
	return out
}
