package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func hostSwapInUse() Rule {
	return Rule{
		ID:       "host-swap-in-use",
		Title:    "part of the host's memory is in swap",
		Severity: Warning,
		Holds: "Hosts with more than a fiftieth of their memory, and more than 256 MiB, in swap. Below that idle " +
			"pages of daemons are the usual reason.",
		Cost: "CERN calls swapping of a hypervisor a very significant performance impact, and gives no figure " +
			"for it. (The 30 % I/O wait of its Tier-0 was of VMs that swapped themselves.)",
		Sources: []Source{
			cernEPTAndKSM("swapping is a very significant performance impact"),
			cernTier0("two things apart: VMs that swapped showed up to 30 % I/O wait; hypervisors that swapped " +
				"caused I/O wait, of which no figure is given"),
		},
		Why: "A guest believes that all its memory is real. When the host has put some of it on disk, an instruction " +
			"in the guest takes as long as a disk access, and neither the guest's statistics nor the job's say why. " +
			"The usual reasons are VMs that were promised more than there is, huge pages that leave the host too little, " +
			"or a cache of disk images that the kernel valued more than idle guest memory.",
		Fix: "Find what fills the memory: the sum of the VMs, huge pages that nobody uses, programs on the host. " +
			"Then swapoff and swapon, when enough is available.",
		Danger: "swapoff needs as much available memory as is in swap; without it programs are killed.",
		Undo:   "Nothing is changed.",
		Check:  checkHostSwapInUse,
	}
}

func checkHostSwapInUse(h farm.HostFacts, p Profile) []Finding {
	if !swapsMuch(h) || len(checkHostSwapWithKSM(h, p)) > 0 {
		return nil
	}
	got := fmt.Sprintf("%s of %s of swap in use", roughly(swapUsed(h)), roughly(h.Memory.SwapTotal))
	if in, out := h.Counters["pswpin"], h.Counters["pswpout"]; in+out > 0 {
		got += fmt.Sprintf("; since boot %s read from swap, %s written", roughly(farm.Bytes(max(in, 0))*smallPage),
			roughly(farm.Bytes(max(out, 0))*smallPage))
	}
	manual := "make room (fewer or smaller VMs, fewer huge pages that stay free), then run swapoff -a and swapon -a"
	if available(h) >= swapUsed(h)+unmergeMargin {
		manual = "there is room again: run swapoff -a and swapon -a, and watch whether it comes back"
	}
	return []Finding{{Severity: Warning, Where: "host", Wanted: "next to nothing in swap", Got: got, Manual: manual}}
}
