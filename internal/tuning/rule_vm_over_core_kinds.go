package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmOverCoreKinds() Rule {
	return Rule{
		ID:       "vm-over-core-kinds",
		Title:    "a VM runs on performance cores and on efficient cores",
		Severity: Advice,
		Holds: "Hybrid processors, whose cores are of two kinds. A VM that is not pinned and has more vCPUs than there " +
			"are CPUs of each kind is left out.",
		Cost: "Not measured by the sources. A parallel job waits for its slowest thread; an efficient core has a " +
			"fraction of the speed, and no second thread.",
		Sources: []Source{
			kernelDoc("scheduler/sched-capacity", "on systems whose CPUs differ the scheduler knows the capacity of each "+
				"CPU, and places tasks by it"),
			libvirtXML("cpu-tuning", "vcpupin says which host CPUs each vCPU may use; nothing tells the guest of their kind"),
		},
		Why: "The host's scheduler knows which cores are fast and gives them to the busiest threads. A guest sees CPUs " +
			"that are all alike: its scheduler spreads a parallel job evenly, and each step lasts as long as on the " +
			"slowest core. A vCPU that may run on both kinds is fast in one moment and slow in the next.",
		Fix:    "Pin the VM to cores of one kind.",
		Danger: "CPUs of one kind may not be enough for all VMs.",
		Undo:   "Put the old <vcpupin> back.",
		Check:  checkVMOverCoreKinds,
	}
}

func checkVMOverCoreKinds(h farm.HostFacts, _ Profile) []Finding {
	var fast, slow farm.CPUSet
	for _, c := range h.Topology.Cores {
		switch c.Kind {
		case farm.FastCore:
			fast = fast.Or(c.Threads)
		case farm.SlowCore:
			slow = slow.Or(c.Threads)
		}
	}
	var out []Finding
	for _, d := range foreign(h) {
		cpus, confined := confinedCPUs(h, d)
		are := "are"
		if !confined {
			cpus, are = h.Topology.Online, "may run"
		}
		if cpus.Common(fast) == 0 || cpus.Common(slow) == 0 || !confined && d.VCPUs > max(fast.Len(), slow.Len()) {
			continue
		}
		out = append(out, Finding{Severity: Advice, Where: vmName(d), Wanted: "cores of one kind",
			Got: fmt.Sprintf("its vCPUs %s on performance cores (CPUs %v) and on efficient cores (CPUs %v)", are,
				cpus.And(fast), cpus.And(slow)),
			Manual: edit(d, "pin all vCPUs to CPUs of one kind")})
	}
	return out
}
