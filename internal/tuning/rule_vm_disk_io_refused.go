package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmDiskIORefused() Rule {
	return Rule{
		ID:       "vm-disk-io-refused",
		Title:    "a disk's way of I/O does not go with its cache mode, or is not known to QEMU",
		Severity: Fault,
		Holds: "Disks with io='native' and another cache mode than none or directsync, or with none written; io_uring " +
			"with QEMU before 5.0. A VM that runs has started with another definition: there it is a warning.",
		Cost: "The VM does not start.",
		Sources: []Source{
			libvirtXML("hard-drives-floppy-disks-cdroms",
				"io is threads, native or io_uring; native needs cache none or directsync"),
			{"libvirt 9.0, src/qemu/qemu_validate.c",
				"https://gitlab.com/libvirt/libvirt/-/blob/v9.0.0/src/qemu/qemu_validate.c",
				"native I/O needs either no disk cache or directsync cache mode"},
			qemuDoc("system/invocation", "aio of -blockdev is threads, native or, since 5.0, io_uring"),
		},
		Why: "The kernel's asynchronous interface works with files that bypass the page cache. libvirt therefore takes " +
			"io='native' only where the cache mode says so, and refuses the VM otherwise. A disk without a cache mode has " +
			"QEMU's default, writeback, so that io='native' alone is refused as well. The definition is taken when it is " +
			"written, and the error comes at the next start, often months later.",
		Fix:    "Write cache='none' beside io='native', or take io='threads'.",
		Danger: "With cache='none' the guest's reads and writes are not in the host's page cache any more.",
		Undo:   "Put the old <driver> back.",
		Check:  checkVMDiskIORefused,
	}
}

func checkVMDiskIORefused(h farm.HostFacts, p Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		for _, k := range d.Disks {
			f := Finding{Severity: Fault, Where: vmName(d)}
			driver := fmt.Sprintf("devices/disk[target.dev=%s]/driver", k.Target)
			cache := k.Cache
			if cache == "" || cache == "default" {
				cache = "writeback, the default"
			}
			switch {
			case k.IO == "native" && k.Cache != "none" && k.Cache != "directsync":
				f.Wanted = "io native goes with cache none or directsync only"
				f.Got = fmt.Sprintf("disk %s: io native with cache %s; the VM does not start", k.Target, cache)
			case k.IO == "io_uring" && before(h.Versions.QEMU, 5, 0):
				f.Wanted = "io threads or native with QEMU " + h.Versions.QEMU
				f.Got = fmt.Sprintf("disk %s: io_uring, which QEMU has from 5.0 on; the VM does not start", k.Target)
			default:
				continue
			}
			if d.Running {
				f.Severity = Warning
			}
			if k.IO == "native" && p.DiskCache != "writeback" {
				f.Manual = edit(d, fmt.Sprintf("write cache='none' in the <driver> of disk %s, or io='threads'",
					k.Target))
				f.Edits = []Edit{set(d, driver, "cache", "none")}
			} else {
				f.Manual = edit(d, fmt.Sprintf("write io='threads' in the <driver> of disk %s, or cache='none' for native",
					k.Target))
				f.Edits = []Edit{set(d, driver, "io", "threads")}
			}
			out = append(out, f)
		}
	}
	return out
}
