package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmFloatsOnIsolated() Rule {
	return Rule{
		ID:       "vm-floats-on-isolated",
		Title:    "vCPUs float over isolated CPUs, where the kernel moves nothing",
		Severity: Fault,
		Holds:    "Hosts booted with isolcpus (domain, its default) or with isolated cpuset partitions.",
		Cost:     "All vCPUs of the VM may share one CPU: a VM of 8 then does the work of one.",
		Sources: []Source{
			kernelDoc("admin-guide/kernel-parameters",
				"isolcpus takes CPUs out of the scheduler's balancing: only affinity calls move a process onto or "+
					"off them"),
			kernelDoc("admin-guide/cgroup-v2",
				"an isolated cpuset partition has no load balancing; its tasks should be bound to CPUs one by one"),
		},
		Why: "Isolation means that the scheduler does not balance load on these CPUs. A thread that may use several " +
			"of them stays on the one where it woke first, however many are idle beside it. " +
			"Isolated CPUs are therefore right for vCPUs that are pinned one to one, and wrong for groups: a <vcpu " +
			"cpuset='…'> or a pool of shared CPUs inside the isolated range piles vCPUs up on its first CPUs.",
		Fix:    "Pin each vCPU to one isolated CPU, or let the VM float over CPUs that are not isolated.",
		Danger: "One-to-one pins need a CPU for each vCPU.",
		Undo:   "Put the old <cputune> or cpuset back.",
		Check:  checkVMFloatsOnIsolated,
	}
}

func checkVMFloatsOnIsolated(h farm.HostFacts, _ Profile) []Finding {
	alone := isolated(h)
	if alone.Empty() {
		return nil
	}
	ordinary := h.Topology.Online.Minus(alone)
	var out []Finding
	for _, d := range h.Domains {
		var over farm.CPUSet
		floating := 0
		for vcpu := range d.VCPUs {
			pin := d.VCPUPins[vcpu]
			if pin.Len() > 1 && pin.And(h.Topology.Online).Minus(alone).Empty() {
				over = over.Or(pin)
				floating++
			}
		}
		if floating < 2 {
			continue
		}
		out = append(out, Finding{Severity: Fault, Where: vmName(d), Wanted: "one isolated CPU for each vCPU",
			Got: fmt.Sprintf("%d vCPUs float over the isolated CPUs %s", floating, over),
			Manual: replan(d, fmt.Sprintf(
				"pin each vCPU to one CPU with <vcpupin vcpu='n' cpuset='m'/>, or use CPUs that are not isolated (%s)",
				ordinary))})
	}
	return out
}
