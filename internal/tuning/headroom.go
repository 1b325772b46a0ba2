package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// unmergeMargin is what has to stay free of the host's memory when merged pages are taken apart. CERN saw hosts swap
// that kept 2 GiB for themselves.
const unmergeMargin = 2 * farm.GiB

const smallPage = 4 * farm.KiB

// merged is the memory that KSM saves, and that un-merging takes back.
func merged(h farm.HostFacts) farm.Bytes { return farm.Bytes(max(h.KSM.Sharing, 0)) * smallPage }

// available is the memory that can be had without swapping. Kernels before 3.14 do not say: there only what is free
// counts.
func available(h farm.HostFacts) farm.Bytes {
	if h.Memory.Available > 0 {
		return h.Memory.Available
	}
	return h.Memory.Free
}

// unmergeNeeds is the memory that has to be available before all merged pages are taken apart: for them, for what is in
// swap and has to come back first, and the margin.
func unmergeNeeds(h farm.HostFacts) farm.Bytes {
	needs := merged(h) + unmergeMargin
	if swapsMuch(h) {
		needs += swapUsed(h)
	}
	return needs
}

// canUnmerge reports whether there is memory to take all merged pages apart.
func canUnmerge(h farm.HostFacts) bool { return h.KSM.Sharing == 0 || available(h) >= unmergeNeeds(h) }

// ksmState says in words what KSM does and holds.
func ksmState(h farm.HostFacts) string {
	state := [...]string{"KSM is stopped", "KSM runs", "KSM is stopped and un-merged"}[min(max(h.KSM.Run, 0), 2)]
	if h.KSM.Sharing > 0 && h.KSM.Run != 2 {
		state += fmt.Sprintf(", %s merged", roughly(merged(h)))
	}
	return state
}

func runsOrStarts(h farm.HostFacts, service string) bool {
	s := h.Services[service]
	return s.Running || s.Enabled
}

func serviceState(s farm.Service) string {
	switch {
	case s.Running && s.Enabled:
		return "running, and started at boot"
	case s.Running:
		return "running"
	}
	return "not running, but started at boot"
}

// swapUsed is how much of the host's memory is in swap.
func swapUsed(h farm.HostFacts) farm.Bytes {
	if h.Memory.SwapTotal < h.Memory.SwapFree {
		return 0
	}
	return h.Memory.SwapTotal - h.Memory.SwapFree
}

// swapsMuch reports whether more is in swap than the idle pages that any kernel puts there in time: a fiftieth of
// memory, and 256 MiB at least. The bounds are ours.
func swapsMuch(h farm.HostFacts) bool {
	return swapUsed(h) >= max(256*farm.MiB, h.Memory.Total/50)
}

// ownNeed is the memory that has to stay out of pools of huge pages for the host's own programs: what the profile keeps
// for them, or what they use now and half of the profile's amount on top, when that is more.
func ownNeed(h farm.HostFacts, p Profile) farm.Bytes {
	if h.Memory.Available == 0 || h.Memory.Available > h.Memory.Total {
		return p.Reserved // what is in use and what is cache cannot be told apart
	}
	used, vms := h.Memory.Total-h.Memory.Available, farm.Bytes(0)
	for _, pool := range h.Pages {
		vms += farm.Bytes(max(staticPages(h, pool.Size), 0)) * pool.Size
	}
	for _, d := range h.Domains {
		if d.Running && !d.HugePages && len(d.Pages) == 0 {
			vms += d.Memory
		}
	}
	if used <= vms {
		return p.Reserved
	}
	return max(p.Reserved, used-vms+p.Reserved/2)
}
