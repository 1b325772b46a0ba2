package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func memoryPressure() Rule {
	return Rule{
		ID:       "memory-pressure",
		Title:    "programs stall because memory is short",
		Severity: Warning,
		Roles:    []Role{Compute, Service, Guest},
		Holds:    "Machines with PSI (Linux 4.20 and later). The bound, a tenth of the last five minutes, is ours.",
		Cost:     "The reported share of time, for the programs concerned.",
		Sources: []Source{
			kernelDoc("accounting/psi",
				"memory pressure is the share of time in which some, or all, tasks were held up by reclaim, by "+
					"refaults of cache just dropped, or by swap"),
			cernTier0("hypervisors short of memory swapped, which caused I/O wait; how much is not said"),
		},
		Why: "Free memory says little: a healthy system uses all of it for cache. Pressure says how long programs " +
			"had to wait until memory was found for them. A tenth of the time means that the machine is busy making " +
			"room: it drops cache that is needed again at once, or swaps. " +
			"It shows before anything is in swap, and it shows a host that is short although its huge pages are free, " +
			"because those are no use to ordinary programs.",
		Fix:   "Run fewer or smaller VMs, make the pool of huge pages smaller, or find the program that grew.",
		Undo:  "Nothing is changed.",
		Check: checkMemoryPressure,
	}
}

const pressureAlarm = 10 // percent

func checkMemoryPressure(h farm.HostFacts, _ Profile) []Finding {
	p := h.Pressure["memory"]
	if p.Some300 < pressureAlarm {
		return nil
	}
	return []Finding{{Severity: Warning, Where: "host",
		Wanted: fmt.Sprintf("programs waiting for memory less than %d %% of the time", pressureAlarm),
		Got: fmt.Sprintf("some waited %.0f %% of the last five minutes, all of them %.0f %%; %s available",
			p.Some300, p.Full300, roughly(available(h))),
		Manual: "end or move VMs, give back huge pages that stay free, or find the program that grew (ps -eo " +
			"rss,args --sort=-rss)"}}
}
