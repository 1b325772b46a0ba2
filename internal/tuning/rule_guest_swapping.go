package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func guestSwapping() Rule {
	return Rule{
		ID:       "guest-swapping",
		Title:    "this VM swaps, and its CPUs wait for it",
		Severity: Fault,
		Roles:    []Role{Guest},
		Holds: "Linux guests with swap in use. I/O wait is the average since boot; where the kernel has pressure " +
			"figures, those of the last minute count as well.",
		Cost: "Up to 30 % I/O wait in VMs that swapped (CERN's Tier-0, 2015).",
		Sources: []Source{
			cernTier0("VM swapping caused up to 30 % I/O wait; multi-core jobs were much better"),
			kernelDoc("accounting/psi", "memory pressure is the share of time in which tasks waited for memory"),
		},
		Why: "Swap is there for peaks. When pages go out and come back all the time, CPUs wait for the disk with a " +
			"job's work at hand, and the disk has no time for the job's own files. In a VM it is worse than on " +
			"metal: the swap device is a file or a volume on a host where other VMs do the same. " +
			"The causes at the Tier-0 were jobs that needed more than their 2 GB for a while, and a leak in the " +
			"application.",
		Fix: "Run fewer jobs at a time, give the VM more memory for each CPU, or run multi-core jobs that share " +
			"their memory.",
		Danger: "",
		Undo:   "Nothing is changed.",
		Check:  checkGuestSwapping,
	}
}

const (
	waitPercent     = 5  // I/O wait that is more than a job's own reading, beside swap traffic
	badWaitPercent  = 30 // the Tier-0's
	pressurePercent = 10
)

func checkGuestSwapping(h farm.HostFacts, _ Profile) []Finding {
	t := h.CPUTime
	total := t.User + t.Nice + t.System + t.Idle + t.IOWait + t.Steal
	if h.Counters["pswpin"] == 0 || h.Memory.SwapTotal == h.Memory.SwapFree || total < enoughTicks {
		return nil
	}
	wait := 100 * float64(t.IOWait) / float64(total)
	pressure := h.Pressure["memory"].Some60
	if wait < waitPercent && pressure < pressurePercent {
		return nil
	}
	f := Finding{Severity: Warning, Where: "this VM", Wanted: "no pages that come back from swap all the time",
		Got: fmt.Sprintf("%.1f %% I/O wait and %.1f %% memory pressure, with %s in swap and %d pages read back "+
			"from it", wait, pressure, roughly(h.Memory.SwapTotal-h.Memory.SwapFree), h.Counters["pswpin"]),
		Manual: "run fewer jobs at a time here, or ask for more memory for each CPU"}
	if wait >= badWaitPercent {
		f.Severity = Fault
	}
	return []Finding{f}
}
