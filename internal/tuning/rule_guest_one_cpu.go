package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func guestOneCPU() Rule {
	return Rule{
		ID:       "guest-one-cpu",
		Title:    "this VM has several CPUs and only one of them works",
		Severity: Fault,
		Roles:    []Role{Guest},
		Holds: "VMs whose kernel was not told to use one CPU. Seen with guests of CentOS 7 on Intel hosts whose " +
			"EPT is off.",
		Cost: "All CPUs but one: a VM of 8 does the work of one.",
		Sources: []Source{
			cernEPTAndKSM("with EPT off a CentOS 7 guest recognised one CPU and reported the others as not " +
				"responding; guests of Scientific Linux CERN 6 worked"),
			kernelDoc("core-api/cpu_hotplug",
				"present CPUs are those that the machine has, online CPUs those that the kernel uses"),
		},
		Why: "The machine that the hypervisor shows has more CPUs than the kernel could start. At boot it tries " +
			"each, waits, reports it as stuck or unresponsive in its log, and goes on with what it has. The VM " +
			"works, just slowly, and a batch system that counted vCPUs from outside gives it as many jobs as it " +
			"seems to have CPUs. " + "CERN met this in August 2015 with EPT off on the host and CentOS 7 in the guest.",
		Fix: "Look into the guest's log (dmesg) and check EPT on the host: grange tune audit there has the rules " +
			"ept-off and ept-off-centos7-guest.",
		Danger: "EPT can be turned on only while no VM runs on the host.",
		Undo:   "Nothing is changed here.",
		Check:  checkGuestOneCPU,
	}
}

func checkGuestOneCPU(h farm.HostFacts, _ Profile) []Finding {
	if h.Topology.Online.Len() != 1 || h.Present.Len() < 2 {
		return nil
	}
	for _, p := range bootParams(h.Kernel.Command) {
		if p.name == "maxcpus" || p.name == "nr_cpus" || p.name == "nosmp" {
			return nil // asked for; guest-boot-parameters looks at it
		}
	}
	return []Finding{{Severity: Fault, Where: "this VM", Wanted: fmt.Sprintf("CPUs %s online", h.Present),
		Got: fmt.Sprintf("only CPU %s is online", h.Topology.Online),
		Manual: "run dmesg | grep -i -e smpboot -e unresponsive here, and cat /sys/module/kvm_intel/parameters/ept " +
			"on the host: it must say Y"}}
}
