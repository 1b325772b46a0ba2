package tuning

import "github.com/grange-project/grange/internal/farm"

func ksmtunedRunning() Rule {
	return Rule{
		ID:       "ksmtuned-running",
		Title:    "ksmtuned or ksm starts KSM by itself, though the profile wants it off",
		Severity: Warning,
		Holds:    "Hosts of the Red Hat family and others with the services ksm and ksmtuned.",
		Cost:     "That of KSM once it runs: 0.9 to 1 % of HS06 with 4 VMs of 8 vCPUs (CERN, August 2015).",
		Sources: []Source{
			cernEPTAndKSM("KSM is turned off by disabling ksmtuned; the kernel thread ksmd stays but uses no CPU time"),
			cernTier0("merged pages that stay behind can later make a host swap"),
		},
		Why: "ksmtuned watches how much memory is free and starts KSM when it falls below a share of the whole. On a " +
			"host whose VMs fill its memory by design, that is always: KSM comes on again " +
			"some time after an administrator wrote 0 to run. The setting in the kernel is only as good as the daemons " +
			"that leave it alone.",
		Fix: "Stop and disable both services; where pages are merged, take them apart as well.",
		Danger: "Stopping ksmtuned leaves merged pages behind, which need memory when guests write to them. Without " +
			"that head-room this audit offers no change.",
		Undo:  "Enable and start the services again.",
		Check: checkKSMTunedRunning,
	}
}

func checkKSMTunedRunning(h farm.HostFacts, p Profile) []Finding {
	if p.KSM != "off" {
		return nil
	}
	var out []Finding
	for _, name := range []string{"ksmtuned", "ksm"} {
		if !runsOrStarts(h, name) {
			continue
		}
		f := Finding{Severity: Warning, Where: "service " + name, Wanted: "stopped and disabled",
			Got: serviceState(h.Services[name])}
		if canUnmerge(h) {
			f.Changes = []Change{{Kind: SetService, Unit: name, Value: "off"}}
			if h.KSM.Run == 1 || h.KSM.Run == 0 && h.KSM.Sharing > 0 {
				f.Changes = append(f.Changes, Change{Kind: Unmerge})
			}
		} else {
			f.Manual = "free memory first, by moving or ending VMs: " + ksmState(h) + ", and only " +
				roughly(available(h)) + " are available"
		}
		out = append(out, f)
	}
	return out
}
