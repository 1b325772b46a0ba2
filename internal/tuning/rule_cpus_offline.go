package tuning

import (
	"github.com/grange-project/grange/internal/farm"
)

func cpusOffline() Rule {
	return Rule{
		ID:       "cpus-offline",
		Title:    "CPUs are offline though SMT is on",
		Severity: Warning,
		Holds:    "Hosts where the numbers of online CPUs have gaps and SMT was not turned off. CPUs offline at the end of the numbers are not seen.",
		Cost:     "The throughput of these CPUs. Where it is the second thread of each core: CERN gained 20 % with SMT.",
		Sources: []Source{
			kernelDoc("core-api/cpu_hotplug", "CPUs are taken offline by writing 0 to their online file; maxcpus= brings up fewer at boot"),
			cernTopology("SMT leads to 20 % more total throughput"),
		},
		Why: "Somebody or something has taken CPUs out: by hand to try SMT off, by a script against a vulnerability, by maxcpus= on the command line, or the kernel's machine-check handling after errors. " +
			"Batch systems and inventories count them still or no more, as they please, and VMs that were pinned to them have moved to others without a word.",
		Fix:    "Find out who did it (the kernel log tells of errors), then write 1 to each CPU's online file.",
		Danger: "A CPU that was taken out after hardware errors must stay out.",
		Undo:   "Write 0 to the online file.",
		Check:  checkCPUsOffline,
	}
}

func checkCPUsOffline(h farm.Host, _ Profile) []Finding {
	online := h.Topology.Online.List()
	if len(online) == 0 || h.SMT == "off" || h.SMT == "forceoff" || h.Virtual {
		return nil
	}
	var gaps []int
	for cpu := range online[len(online)-1] {
		if !h.Topology.Online.Has(cpu) {
			gaps = append(gaps, cpu)
		}
	}
	if len(gaps) == 0 {
		return nil
	}
	return []Finding{{Severity: Warning, Where: cpusInWords(farm.NewCPUSet(gaps...)), Wanted: "online", Got: "offline",
		Manual: "look for machine-check errors in the kernel log; when there are none, write 1 to /sys/devices/system/cpu/cpuN/online of each"}}
}
