package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func ksmOffNoHeadroom() Rule {
	return Rule{
		ID:       "ksm-off-no-headroom",
		Title:    "KSM should be off, but this host would swap without the memory that it saves",
		Severity: Warning,
		Holds: "Hosts with KSM running, a profile that wants it off, and less memory available than is merged or " +
			"in swap, with 2 GiB to spare.",
		Cost: "KSM itself: 0.9 to 1 % of HS06 with 4 VMs of 8 vCPUs. Stopping it here would cost more: CERN's " +
			"hypervisors swapped, and the VMs of ATLAS's Tier-0 showed 20 to 30 % I/O wait.",
		Sources: []Source{
			cernTier0("hypervisors without KSM swapped, for lack of memory, because of remnants of KSM that had been " +
				"on; KSM was turned on again"),
			cernEPTAndKSM("after KSM is turned off, check that memory is still enough: swapping is a very " +
				"significant loss"),
			{"Moreira et al. (CERN), \"CPU optimizations in the CERN Cloud\", OpenStack Ops Midcycle, Manchester 2016",
				"https://es.slideshare.net/moreirabelmiro/cpu-optimizations-in-the-cern-cloud",
				"with KSM off VMs of ATLAS's Tier-0 showed 20 to 30 % I/O wait, and compute nodes swapped though 2 " +
					"GB were left for the system"},
		},
		Why: "The VMs on this host have been promised more memory than there is, and KSM makes up the difference. " +
			"Stopping KSM does not give that back at once: merged pages stay merged until a guest writes to them, " +
			"and then each needs memory of its own. So the host looks well on the day of the change and swaps a week " +
			"later. The right order is memory first, KSM second.",
		Fix: "Move or end VMs until the memory that is available exceeds what is merged and in swap by 2 GiB; " +
			"then this audit offers to stop KSM.",
		Danger: "Do not stop KSM or ksmtuned before: the host would swap.",
		Undo:   "Nothing is changed.",
		Check:  checkKSMOffNoHeadroom,
	}
}

func checkKSMOffNoHeadroom(h farm.HostFacts, p Profile) []Finding {
	if p.KSM != "off" || !h.KSM.Known || h.KSM.Run != 1 || canUnmerge(h) {
		return nil
	}
	missing := unmergeNeeds(h) - available(h)
	return []Finding{{Severity: Warning, Where: "host", Wanted: "KSM off, and memory enough for it",
		Got: fmt.Sprintf("%s, %s available", ksmState(h), roughly(available(h))),
		Manual: fmt.Sprintf("free %s first, by moving or ending VMs; leave KSM and ksmtuned on until then",
			roughly(missing))}}
}
