package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func vmDiskCacheCompute() Rule {
	return Rule{
		ID:       "vm-disk-cache-compute",
		Title:    "a throw-away disk on a compute host bypasses or writes through the host's cache",
		Severity: Warning,
		Roles:    []Role{Compute},
		Holds: "Disks of VMs that are made for jobs and lost without regret. A disk without a cache mode has " +
			"QEMU's default, writeback, and is right.",
		Cost: "Two orders of magnitude in IOPS, by CERN's word on its compute cells (2015); which mode that was " +
			"compared with is not said.",
		Sources: []Source{
			cernTier0("compute cells use write-back caching in KVM: it gains two orders of magnitude in IOPS and " +
				"precludes live migration"),
			redHatTuning("caching", "sect-Virtualization_Tuning_Optimization_Guide-BlockIO-Caching",
				"writeback caches the guest's I/O on the host; none bypasses the cache; writethrough is slow and "+
					"scales badly"),
		},
		Why: "With cache='writeback' a write of the guest is done when it is in the host's memory, and the disk " +
			"follows in its own time, with requests merged and ordered; a flush of the guest still waits for the " +
			"disk. With none or directsync each request goes to the disk, with writethrough each write does. " +
			"A job's scratch is written once, read once and deleted, often before the disk would have seen it. If the " +
			"host crashes the job is lost in any case, so there is nothing to protect.",
		Fix: "Use cache='writeback' for disks of job VMs.",
		Danger: "Unflushed data are lost when the host crashes. Older libvirt refuses to migrate such a VM. The " +
			"cache needs memory that is not in the pool of huge pages.",
		Undo:  "Put the old cache mode back.",
		Check: checkVMDiskCacheCompute,
	}
}

func checkVMDiskCacheCompute(h farm.HostFacts, p Profile) []Finding {
	if p.DiskCache != "writeback" {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		for _, k := range dataDisks(d) {
			if slices.Contains([]string{"none", "directsync", "writethrough"}, k.Cache) {
				out = append(out, Finding{Severity: Warning, Where: vmName(d), Wanted: "cache writeback",
					Got: fmt.Sprintf("disk %s has cache %s", k.Target, k.Cache),
					Manual: edit(d, fmt.Sprintf(
						"if disk %s can be lost, write cache='writeback' io='threads' in its <driver>: io='native' "+
							"goes "+
							"with none and directsync only", k.Target))})
			}
		}
	}
	return out
}
