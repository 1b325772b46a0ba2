package tuning

import (
	"github.com/grange-project/grange/internal/farm"
)

func cpusOffline() Rule {
	return Rule{
		ID:       "cpus-offline",
		Title:    "CPUs are offline though SMT is on",
		Severity: Warning,
		Holds:    "Hosts on bare metal with CPUs that are present and not online, where SMT was not turned off.",
		Cost: "The throughput of these CPUs. Where it is the second thread of each core: CERN gained 20 % with " +
			"SMT.",
		Sources: []Source{
			kernelDoc("core-api/cpu_hotplug",
				"CPUs are taken offline by writing 0 to their online file; maxcpus= brings up fewer at boot"),
			cernTopology("SMT leads to 20 % more total throughput"),
		},
		Why: "Somebody or something has taken CPUs out: by hand to try SMT off, by a script against a vulnerability, " +
			"by maxcpus= on the command line, or the kernel's machine-check handling after errors. " +
			"Batch systems and inventories count them still or no more, as they please, and VMs that were pinned to them " +
			"have moved to others without a word.",
		Fix:    "Find out who did it (the kernel log has the errors), then write 1 to each CPU's online file.",
		Danger: "A CPU that was taken out after hardware errors must stay out.",
		Undo:   "Write 0 to the online file.",
		Check:  checkCPUsOffline,
	}
}

func checkCPUsOffline(h farm.HostFacts, _ Profile) []Finding {
	online := h.Topology.Online
	if online.Empty() || h.SMT == "off" || h.SMT == "forceoff" || h.Virtual {
		return nil
	}
	list := online.List()
	present := h.Present.Or(farm.CPURange(0, list[len(list)-1])) // old records do not say what is present
	gone := present.Minus(online)
	if gone.Empty() {
		return nil
	}
	return []Finding{{Severity: Warning, Where: cpusInWords(gone), Wanted: "online", Got: "offline",
		Manual: "look for machine-check errors in the kernel log; when there are none, write 1 to " +
			"/sys/devices/system/cpu/cpuN/online of each"}}
}
