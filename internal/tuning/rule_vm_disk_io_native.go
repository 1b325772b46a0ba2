package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmDiskIONative() Rule {
	return Rule{
		ID:       "vm-disk-io-native",
		Title:    "a block device without host cache is driven by QEMU's worker threads",
		Severity: Advice,
		Holds: "Raw disks on block devices (LVM, partitions, SAN) with cache none or directsync. Not for sparse " +
			"files, where native I/O may block.",
		Cost: "Not measured by the sources: a change of thread for each request.",
		Sources: []Source{
			redHatTuning("I/O mode", "sect-Virtualization_Tuning_Optimization_Guide-BlockIO-IO_mode",
				"native is the kernel's asynchronous I/O with direct I/O, the default of Red Hat Virtualization; "+
					"threads, the default otherwise, is a pool of user-mode threads"),
			libvirtXML("hard-drives-floppy-disks-cdroms",
				"io is threads, native or io_uring; native needs cache none or directsync"),
		},
		Why: "QEMU can hand requests to a pool of its own threads, which block in read and write one each, or to the " +
			"kernel's asynchronous interface, which takes many at a time from one thread. On a block device without " +
			"host cache a request never has to wait for a file system, so the asynchronous way has no drawback: " +
			"fewer threads, fewer changes of context. " +
			"On files that grow the kernel may have to allocate space first and block the submitter, and threads are the " +
			"better choice.",
		Fix:    "Use io='native', or io='io_uring' with QEMU 5.0 and a kernel that has it.",
		Danger: "",
		Undo:   "Put io='threads' back.",
		Check:  checkVMDiskIONative,
	}
}

func checkVMDiskIONative(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		for _, k := range dataDisks(d) {
			uncached := k.Cache == "none" || k.Cache == "directsync"
			if uncached && k.Format == "raw" && strings.HasPrefix(k.Path, "/dev/") &&
				(k.IO == "" || k.IO == "threads") {
				out = append(out, Finding{Severity: Advice, Where: vmName(d), Wanted: "io native or io_uring",
					Got:    fmt.Sprintf("disk %s (%s) with cache %s uses threads", k.Target, k.Path, k.Cache),
					Manual: edit(d, fmt.Sprintf("write io='native' in the <driver> of disk %s", k.Target))})
			}
		}
	}
	return out
}
