package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmRoamsDedicated() Rule {
	return Rule{
		ID:       "vm-roams-dedicated",
		Title:    "a VM without pins may run on the CPUs that another VM has to itself",
		Severity: Warning,
		Holds: "Hosts with both pinned VMs and VMs that may run anywhere. Isolated CPUs (isolcpus, cpuset " +
			"partitions) are left out: the scheduler brings nobody there.",
		Cost: "Not measured by itself. Two busy vCPUs on one CPU get half of it each; VMs of 16 vCPUs that " +
			"shared CPUs by mistake had between 60 and 155 HS06 (CERN's Tier-0, 2015).",
		Sources: []Source{
			cernTier0("VMs that shared CPUs by mistake performed between 60 and 155 HS06"),
			{"OpenStack Nova, CPU topologies", "https://docs.openstack.org/nova/latest/admin/cpu-topologies.html",
				"pinned instances must be separated from unpinned ones, on other hosts or on other CPUs of the host: " +
					"the latter do not respect the requirements of the former"},
		},
		Why: "A pin keeps a vCPU on its CPU; it keeps nobody else away. The kernel's scheduler balances all threads " +
			"that may move over all CPUs, so the vCPUs of an unpinned VM come to the pinned ones' CPUs, and those " +
			"cannot step aside. " + "The pinned VM, which was pinned for steady performance, then has the least " +
			"steady one of all, and shows steal time inside.",
		Fix: "Restrict the unpinned VM to the CPUs that no pinned VM has, or keep pinned and unpinned VMs on " +
			"different hosts.",
		Danger: "The VM then has fewer CPUs to float over: leave at least as many as it has vCPUs.",
		Undo:   "Take the cpuset out again.",
		Check:  checkVMRoamsDedicated,
	}
}

func checkVMRoamsDedicated(h farm.HostFacts, _ Profile) []Finding {
	var dedicated farm.CPUSet
	for _, d := range h.Domains {
		if d.Running && pinned(d) {
			dedicated = dedicated.Or(pinsOf(d, farm.CPURange(0, d.VCPUs)))
		}
	}
	free := h.Topology.Online.Minus(dedicated)
	dedicated = dedicated.Minus(isolated(h)) // the scheduler brings nobody there
	if dedicated.Empty() || h.Topology.Online.Empty() {
		return nil
	}
	var out []Finding
	for _, d := range h.Domains {
		if !d.Running || d.VCPUs == 0 || pinned(d) {
			continue
		}
		if _, confined := confinedCPUs(h, d); confined {
			continue // vm-pin-overlap looks at those
		}
		f := Finding{Severity: Warning, Where: vmName(d),
			Wanted: "none of the CPUs " + dedicated.String() + ", which pinned VMs have",
			Got:    "its vCPUs may run on all CPUs",
			Manual: "every CPU has a pinned VM: move " + d.Name + " to another host, or take the pins off"}
		if !free.Empty() {
			f.Manual = replan(d, fmt.Sprintf("write <vcpu placement='static' cpuset='%s'>%d</vcpu>", free, d.VCPUs))
		}
		out = append(out, f)
	}
	return out
}
