package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmPinOverlap() Rule {
	return Rule{
		ID:       "vm-pin-overlap",
		Title:    "VMs are pinned to the same CPUs, and other CPUs have nobody",
		Severity: Fault,
		Holds:    "Running VMs whose vCPUs are restricted to certain CPUs, one to one or to a group such as a socket.",
		Cost: "VMs of 16 vCPUs had between 60 and 155 HS06 (ATLAS Tier-0, 2 VMs on hosts of 32 cores, 2015); " +
			"undisturbed VMs of that size had 150 on one of CERN's types of that year.",
		Sources: []Source{
			cernTier0("two 16-core VMs a host performed between 60 and 155 HS06; with 50 % chance a faulty pinning " +
				"put both on one processor and left the other idle, and the investigation was long and painful"),
		},
		Why: "A pinned vCPU runs where its pin says and nowhere else, even when that CPU is taken and the one beside " +
			"it sleeps. When two VMs get the same pins they halve each other. Nothing reports it: both VMs run, the " +
			"host is half idle, and only the jobs take twice as long, on some hosts and not on others. " +
			"It comes from pins written by hand, from a definition that was copied, and from a scheduler that forgot " +
			"what it gave away.",
		Fix: "Pin one of the VMs to the CPUs that have nobody, with its memory on their node.",
		Danger: "virsh vcpupin moves vCPUs at once, but not the memory: until the VM starts anew its memory stays on " +
			"the old node.",
		Undo:  "Put the old <cputune> back.",
		Check: checkVMPinOverlap,
	}
}

func checkVMPinOverlap(h farm.HostFacts, _ Profile) []Finding {
	type claim struct {
		d      farm.Domain
		cpus   farm.CPUSet
		pinned bool // one to one
	}
	var claims []claim
	idle := h.Topology.Online
	pools := false // some VMs are pinned one to one: those that share CPUs may do so on purpose
	for _, d := range h.Domains {
		if !d.Running {
			continue
		}
		cpus, ok := confinedCPUs(h, d)
		if !ok {
			idle = farm.CPUSet{} // it may be on any of them
			continue
		}
		own := pinned(d)
		claims, pools = append(claims, claim{d, cpus, own}), pools || own
		idle = idle.Minus(cpus)
	}
	var out []Finding
	for i, a := range claims {
		var with []string
		var common farm.CPUSet
		alone := false // one of a pair should have its CPUs to itself
		for _, b := range claims[i+1:] {
			both := a.cpus.Common(b.cpus)
			tooMany := a.d.VCPUs+b.d.VCPUs > a.cpus.Len()+b.cpus.Len()-both
			dedicated := a.pinned || b.pinned
			// a pool that all share, and no room elsewhere, is policy
			if both == 0 || !dedicated && (!tooMany || idle.Empty()) {
				continue
			}
			alone = alone || dedicated
			with, common = append(with, b.d.Name), common.Or(a.cpus.And(b.cpus))
		}
		if len(with) == 0 {
			continue
		}
		f := Finding{Severity: Warning, Where: vmName(a.d), Wanted: "CPUs of its own",
			Got: fmt.Sprintf("%s: also of %s; no CPU is free of VMs", number("CPU", common), few(with)),
			Manual: replan(a.d, "give each vCPU in <cputune> a CPU that no other VM has, or let both VMs float over "+
				"all CPUs")}
		if !idle.Empty() {
			f.Got = fmt.Sprintf("%s: also of %s, while %s have no VM", number("CPU", common), few(with),
				number("CPU", idle))
			f.Manual = replan(a.d, fmt.Sprintf(
				"give the vCPUs in <cputune> CPUs out of %s instead, and <numatune> the node of those", idle))
			if idle.Len() >= common.Len() && (!pools || alone) {
				f.Severity = Fault
			}
		}
		out = append(out, f)
	}
	return out
}
