package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmDiskCacheService() Rule {
	return Rule{
		ID:       "vm-disk-cache-service",
		Title:    "a disk of a long-lived VM is cached in a way that a crash or a migration may damage",
		Severity: Fault,
		Roles:    []Role{Service},
		Holds: "VMs on service hosts, all disks that they write to. QEMU 4.0 and later can drop its cache when a " +
			"VM moves, and recent libvirt then migrates cached disks on Linux hosts: there writeback and " +
			"writethrough are advice, and a disk without a cache mode is not reported.",
		Cost: "unsafe: the disk's contents, when the host crashes. writeback: live migration, with older " +
			"libvirt. writethrough: speed of writing.",
		Sources: []Source{
			cernTier0("write-back caching precludes live migration"),
			redHatTuning("caching", "sect-Virtualization_Tuning_Optimization_Guide-BlockIO-Caching",
				"none is the mode that supports migration; unsafe ignores the guest's requests to flush"),
			{"libvirt, qemuMigrationSrcIsSafe",
				"https://gitlab.com/libvirt/libvirt/-/blob/master/src/qemu/qemu_migration.c",
				"migration is refused as unsafe for disks whose cache is neither none nor directsync, unless QEMU " +
					"can drop its cache"},
		},
		Why: "In writeback a host keeps a part of the VM's disk in its own memory. A migration starts the VM on " +
			"another host that does not see that memory: what it reads there may be old, so libvirt refuses unless " +
			"QEMU can be told to drop the cache. A crash of the host loses what the guest had not flushed, as a " +
			"power cut does on bare metal, and file systems cope. " +
			"unsafe is different: it ignores the flushes as well, so the order of writes is lost and with it the file " +
			"system, or the database in it.",
		Fix: "Use cache='none'.",
		Danger: "The VM's I/O becomes slower where it lived from the host's memory. cache='none' needs a file system " +
			"with O_DIRECT.",
		Undo:  "Put the old cache mode back.",
		Check: checkVMDiskCacheService,
	}
}

func checkVMDiskCacheService(h farm.HostFacts, p Profile) []Finding {
	if p.DiskCache != "none" {
		return nil
	}
	dropsCache := since(h.Versions.QEMU, 4, 0)
	var out []Finding
	for _, d := range foreign(h) {
		for _, k := range dataDisks(d) {
			f := Finding{Severity: Warning, Where: vmName(d), Wanted: "cache none",
				Got: fmt.Sprintf("disk %s has cache %s", k.Target, k.Cache),
				Manual: edit(d, fmt.Sprintf(
					"write cache='none' io='native' in the <driver> of disk %s (io='threads' if it is a sparse file)",
					k.Target))}
			if dropsCache {
				f.Severity = Advice
			}
			switch {
			case k.Cache == "unsafe":
				f.Severity = Fault
			case k.Cache == "writeback", k.Cache == "writethrough":
			case k.Cache == "" && !dropsCache:
				f.Got = fmt.Sprintf("disk %s has no cache mode: QEMU's default is writeback", k.Target)
			default:
				continue
			}
			out = append(out, f)
		}
	}
	return out
}
