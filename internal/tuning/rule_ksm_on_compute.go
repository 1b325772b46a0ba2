package tuning

import "github.com/grange-project/grange/internal/farm"

func ksmOnCompute() Rule {
	return Rule{
		ID:       "ksm-on-compute",
		Title:    "KSM scans the memory of VMs for equal pages, though the profile wants it off",
		Severity: Warning,
		Holds: "All kernels with KSM (Linux 2.6.32 and later). Memory in static huge pages, and VMs with " +
			"nosharepages, are not scanned.",
		Cost: "0.9 to 1 % of HS06 with 4 VMs of 8 vCPUs (CERN, August 2015).",
		Sources: []Source{
			cernEPTAndKSM("KSM cost about 1 % of HS06 with 4 VMs of 8 cores that ran the same system"),
			cernSummary("KSM off gained 0.9 %, and may need more memory"),
			kernelDoc("admin-guide/mm/ksm",
				"KSM's scans may use a lot of processing power; run=0 stops and keeps merged pages, run=2 stops and "+
					"takes them apart"),
		},
		Why: "KSM reads the memory of all VMs over and over, to keep one copy of equal pages. That saves memory " +
			"where many guests run the same system with much idle memory. " +
			"Jobs fill their memory with data of their own: there is little to merge, the scan takes CPU time, and a " +
			"merged page must be copied when a job writes to it. " +
			"A merged page also breaks a huge page into small ones. On a host that does not promise its memory twice, " +
			"KSM gives nothing back.",
		Fix: "Take the merged pages apart in steps while memory lasts, stop KSM, and stop ksmtuned and ksm, which " +
			"would start it again.",
		Danger: "Un-merging needs as much memory as merging saved. Without it the host swaps, which costs far more " +
			"than KSM.",
		Undo:  "Write 1 to /sys/kernel/mm/ksm/run and start the services again.",
		Check: checkKSMOnCompute,
	}
}

func checkKSMOnCompute(h farm.HostFacts, p Profile) []Finding {
	if p.KSM != "off" || !h.KSM.Known || h.KSM.Run != 1 || !canUnmerge(h) {
		return nil // without head-room, ksm-off-no-headroom tells
	}
	changes := []Change{{Kind: Unmerge}}
	for _, name := range []string{"ksmtuned", "ksm"} {
		if runsOrStarts(h, name) {
			changes = append(changes, Change{Kind: SetService, Unit: name, Value: "off"})
		}
	}
	return []Finding{{Severity: Warning, Where: "host", Wanted: "KSM off and nothing merged", Got: ksmState(h),
		Changes: changes}}
}
