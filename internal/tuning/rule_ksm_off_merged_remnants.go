package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func ksmOffMergedRemnants() Rule {
	return Rule{
		ID:       "ksm-off-merged-remnants",
		Title:    "KSM is stopped, but pages that it merged are still shared",
		Severity: Warning,
		Holds:    "Hosts where KSM or ksmtuned was stopped with run=0 while VMs ran.",
		Cost: "While memory lasts: copies at first writes, not measured. When it does not: CERN's hypervisors " +
			"swapped, and their VMs waited for I/O.",
		Sources: []Source{
			cernTier0("hypervisors swapped for lack of memory with KSM off, because of remnants of KSM that had been " +
				"on before; it was mended by turning KSM on again"),
			kernelDoc("admin-guide/mm/ksm",
				"run=0 stops the daemon but keeps merged pages; run=2 takes them apart; un-merging may suddenly need "+
					"more memory than there is and call the OOM killer"),
		},
		Why: "Stopping ksmtuned or writing 0 to run ends the scan, and nothing else. Every merged page stays shared " +
			"until a guest writes to it; then the kernel must find memory for a copy. " +
			"So a host without KSM goes on needing more memory, for days, at moments that nobody chooses. If that memory " +
			"is there, it is better to take it now, in steps and under control. If it is not, VMs have to go first.",
		Fix: "Take the merged pages apart in steps while memory lasts, or, where it would not last, move VMs away " +
			"or start KSM again.",
		Danger: "Un-merging takes as much memory as is merged. Where that is not available the host swaps or kills " +
			"VMs; this audit then offers no change.",
		Undo:  "Write 1 to /sys/kernel/mm/ksm/run: equal pages are merged again.",
		Check: checkKSMOffMergedRemnants,
	}
}

func checkKSMOffMergedRemnants(h farm.HostFacts, p Profile) []Finding {
	if p.KSM == "on" || !h.KSM.Known || h.KSM.Run != 0 || h.KSM.Sharing <= 0 {
		return nil
	}
	f := Finding{Severity: Advice, Where: "host", Wanted: "nothing merged", Got: ksmState(h),
		Changes: []Change{{Kind: Unmerge}}}
	if !canUnmerge(h) {
		f.Severity = Warning
		f.Got += fmt.Sprintf(", but only %s available", roughly(available(h)))
		f.Changes = nil
		f.Manual = "move VMs away until enough memory is available, or start KSM again (write 1 to " +
			"/sys/kernel/mm/ksm/run); un-merging now would make the host swap"
	}
	return []Finding{f}
}
