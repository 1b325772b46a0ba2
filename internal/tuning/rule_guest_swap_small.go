package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func guestSwapSmall() Rule {
	return Rule{
		ID:       "guest-swap-small",
		Title:    "this VM has too little swap for what jobs need for a moment",
		Severity: Fault,
		Roles:    []Role{Guest},
		Holds: "VMs for jobs whose need of memory has peaks. VMs with so much memory for each CPU that the peaks " +
			"fit are left out.",
		Cost: "Jobs are killed by the kernel for want of memory, with all they had computed (CERN's Tier-0, 2015).",
		Sources: []Source{
			cernTier0("workers of 24 cores with very little swap: jobs killed frequently, because they need more " +
				"than 2 GB in their first and last phase; more swap, then taken from the jobs' disk space, had jobs " +
				"killed for want of that"),
		},
		Why: "A job that has 2 GB of memory by contract may need more while it starts and while it merges its " +
			"output. Most of what it holds then is not used again and could wait in swap. Without swap the kernel " +
			"has no place to put it, and kills a process. " +
			"Swap for peaks is not swapping all day: guest-swapping tells the two apart. At CERN's Tier-0 the swap was " +
			"then taken from the scratch space, which was too small in turn; a disk that serves both must be large " +
			"enough for both.",
		Fix: "Give the VM a swap device with the size that the profile asks for, from a larger disk and not out " +
			"of the scratch space.",
		Danger: "Swap on the disk of the jobs' scratch competes with it for speed.",
		Undo:   "swapoff and remove the device.",
		Check:  checkGuestSwapSmall,
	}
}

// jobMemory is what a job has by contract for each CPU. The Tier-0's jobs needed more than that at times.
const jobMemory = 2 * farm.GiB

func checkGuestSwapSmall(h farm.HostFacts, p Profile) []Finding {
	cpus := farm.Bytes(h.Topology.Online.Len())
	if p.SwapPerCPU == 0 || cpus == 0 || h.Memory.Total == 0 || h.Memory.Total/cpus >= jobMemory+p.SwapPerCPU {
		return nil
	}
	want := p.SwapPerCPU * cpus
	if h.Memory.SwapTotal >= want-want/50 { // a partition's header and rounding
		return nil
	}
	f := Finding{Severity: Warning, Where: "this VM",
		Wanted: fmt.Sprintf("%s of swap for %d CPUs", roughly(want), cpus),
		Got: fmt.Sprintf("%s of swap, and %s of memory for each CPU", roughly(h.Memory.SwapTotal),
			roughly(h.Memory.Total/cpus)),
		Manual: fmt.Sprintf("give the VM a swap disk of %s (in Nova the flavor's swap), beside the disk for scratch",
			roughly(want))}
	if h.Memory.SwapTotal < want/4 {
		f.Severity = Fault
	}
	return []Finding{f}
}
