package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func hostSwapWithKSM() Rule {
	return Rule{
		ID:       "host-swap-with-ksm",
		Title:    "the host swaps, and pages merged by KSM are part of the reason",
		Severity: Fault,
		Holds:    "Hosts with pages merged by KSM and memory in swap that could not both come back.",
		Cost: "At CERN in 2015 it showed as I/O wait of 20 to 30 % in the VMs of ATLAS's Tier-0. The loss of " +
			"HS06 was not measured.",
		Sources: []Source{
			cernTier0("hypervisors swapped with KSM off, because of remnants of KSM that had been on; it was mended " +
				"by turning KSM on again"),
			kernelDoc("admin-guide/mm/ksm",
				"a merged page that is swapped out comes back un-shared: it then needs memory of its own until the "+
					"daemon merges it anew"),
			{"Moreira et al. (CERN), \"CPU optimizations in the CERN Cloud\", OpenStack Ops Midcycle, Manchester 2016",
				"https://es.slideshare.net/moreirabelmiro/cpu-optimizations-in-the-cern-cloud",
				"with KSM off VMs of ATLAS's Tier-0 showed 20 to 30 % I/O wait, and compute nodes swapped though 2 " +
					"GB were left for the system"},
		},
		Why: "A host that merges pages has promised its VMs more memory than it has. As soon as guests write to " +
			"merged pages, or KSM is stopped, the difference must come from somewhere, and it comes from swap. " +
			"Swap makes it worse: a merged page that was swapped out is no longer merged when it comes back. The guests " +
			"see disks and CPUs that stall for no reason of their own.",
		Fix: "Move or end VMs until nothing is in swap. Until then leave KSM on, or start it again where it was " +
			"stopped.",
		Danger: "Neither un-merge nor stop KSM while the host swaps.",
		Undo:   "Nothing is changed.",
		Check:  checkHostSwapWithKSM,
	}
}

func checkHostSwapWithKSM(h farm.HostFacts, _ Profile) []Finding {
	if !swapsMuch(h) || !h.KSM.Known || h.KSM.Run == 2 || canUnmerge(h) {
		return nil
	}
	manual := "move or end VMs; leave KSM on until nothing is in swap"
	if h.KSM.Run == 0 {
		manual = "start KSM again (write 1 to /sys/kernel/mm/ksm/run), then move or end VMs"
	}
	return []Finding{{Severity: Fault, Where: "host", Wanted: "nothing in swap",
		Got: fmt.Sprintf("%s in swap, %s", roughly(swapUsed(h)), ksmState(h)), Manual: manual}}
}
