package slow

import (
	"cmp"
	"fmt"
	"slices"
)

// Bounds from which a cause is named: shares in per cent, and counts a second and vCPU. Nobody would notice less.
const (
	muchWaiting = 2
	muchKernel  = 5
	muchQEMU    = 3
	muchDisk    = 5
	muchFaults  = 10
	manyExits   = 5000
	manyMMU     = 3000
	manyHalts   = 8000
)

// causes are what slows the VM, what costs most first.
func (r Report) causes() []Cause {
	out := append([]Cause{}, // none is an empty list in JSON
		slices.Concat(r.ofCPUs(), r.ofQEMU(), r.ofMemory(), r.ofDisks(), r.ofKernel(), r.ofExits())...)
	slices.SortStableFunc(out, func(a, b Cause) int { return cmp.Compare(b.Cost, a.Cost) })
	return out
}

func (r Report) ofCPUs() []Cause {
	if r.Waits < muchWaiting {
		return nil
	}
	wants := r.Guest + r.QEMU + r.Kernel + r.Waits
	return []Cause{{"steal", r.Waits,
		fmt.Sprintf("its vCPUs have no CPU for %.0f %% of the time that they want to run: others run there",
			100*r.Waits/wants),
		"`grange tune verify VM`: who else may run there; `grange host show`: what is promised"}}
}

func (r Report) ofQEMU() []Cause {
	switch {
	case r.QEMU < muchQEMU:
		return nil
	case r.Guest == 0:
		return []Cause{{"no-kvm", r.QEMU, "it runs without KVM: QEMU emulates all of it",
			"`grange agent --check`: why KVM is not used"}}
	}
	return []Cause{{"emulation", r.QEMU, fmt.Sprintf("QEMU emulates devices for it in %.0f %% of its time", r.QEMU),
		"use virtio devices, and no old clocks: `grange tune audit`"}}
}

func (r Report) ofMemory() (out []Cause) {
	if r.Swapped > 0 {
		out = append(out, Cause{"swap", 0, fmt.Sprintf("%v of its memory are swapped out by the host", r.Swapped),
			"`grange tune audit --rule host-swap-in-use`: what fills the host's memory"})
	}
	if r.Faults >= muchFaults {
		out = append(out, Cause{"disk-faults", 0,
			fmt.Sprintf("%.0f of its page faults a second wait for a disk", r.Faults),
			"see the host's memory: `grange tune audit --rule memory-pressure`"})
	}
	return out
}

func (r Report) ofDisks() []Cause {
	if r.Disk < muchDisk {
		return nil
	}
	return []Cause{{"disk", r.Disk, fmt.Sprintf("a thread of QEMU waits for disks in %.0f %% of the time", r.Disk),
		"`grange disk bench`: what the disks of this host give"}}
}

func (r Report) ofKernel() []Cause {
	if mmu := r.counted("pf_fixed", "pf_taken", "invlpg", "mmu_pte_write"); mmu >= manyMMU {
		return []Cause{{"page-tables", r.Kernel,
			fmt.Sprintf("its page tables change all the time: KVM sees to them %.0f times a second of each vCPU", mmu),
			"`grange tune audit --rule ept-off`; huge pages: `grange tune audit --rule vm-no-hugepages`"}}
	}
	if r.Kernel < muchKernel {
		return nil
	}
	return []Cause{{"kernel", r.Kernel,
		fmt.Sprintf("the host's kernel works for it in %.0f %% of its time", r.Kernel),
		"the counters of exits say for what"}}
}

func (r Report) ofExits() (out []Cause) {
	if n := r.counted("io_exits", "mmio_exits"); n >= manyExits {
		out = append(out, Cause{"device-exits", 0,
			fmt.Sprintf("each vCPU leaves the guest for a device %.0f times a second", n),
			"use virtio devices with more queues; look for a guest that polls a clock"})
	}
	if n := r.counted("halt_exits"); n >= manyHalts {
		out = append(out, Cause{"halts", 0, fmt.Sprintf("each vCPU falls asleep %.0f times a second", n),
			"look at what the guest waits for; `grange tune audit --rule halt-poll-long`"})
	}
	return out
}

func (r Report) counted(exits ...string) (sum float64) {
	for _, n := range exits {
		sum += r.Exits[n]
	}
	return sum
}
