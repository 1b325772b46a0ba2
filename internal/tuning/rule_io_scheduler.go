package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func ioScheduler() Rule {
	return Rule{
		ID:       "io-scheduler",
		Title:    "a rotating disk has no I/O scheduler",
		Severity: Advice,
		Holds: "Rotating disks under kernels with multi-queue block devices: Linux 5.0 and later, and 4.18 of " +
			"RHEL 8. Disks behind a RAID controller with a cache of its own may do well without.",
		Cost: "Not measured here. Requests of several VMs go to the disk in the order they come, so it seeks " +
			"back and forth.",
		Sources: []Source{
			{"Red Hat Enterprise Linux 8, \"Setting the disk scheduler\"",
				"https://access.redhat.com/documentation/en-us/red_hat_enterprise_linux/8/html/monitoring_and_managing_system_status_and_performance/setting-the-disk-scheduler_monitoring-and-managing-system-status-and-performance", "mq-deadline or bfq for a traditional disk, none for fast solid-state disks; mq-deadline orders requests by place and bounds their wait"},
		},
		Why: "A rotating disk does a hundred or two requests a second when it must seek for each, and many more when " +
			"they come in the order in which they lie. Several VMs, each with a file of its own, make a mix that " +
			"only a scheduler can sort. " +
			"none is right for solid-state disks, which do not seek, and installers and udev rules made for those " +
			"sometimes set it for all disks.",
		Fix:   "Write mq-deadline to the disk's scheduler file.",
		Undo:  "Write none again.",
		Check: checkIOScheduler,
	}
}

func checkIOScheduler(h farm.HostFacts, _ Profile) []Finding {
	if h.Virtual || !runsVMs(h) {
		return nil // a virtual disk calls itself rotating
	}
	var out []Finding
	for _, d := range h.Disks {
		if !d.Rotational || d.Scheduler != "none" || !wholeDisk(d.Name) || !multiQueue(h, d) {
			continue
		}
		out = append(out, Finding{Severity: Advice, Where: "disk " + d.Name, Wanted: "mq-deadline",
			Got: fmt.Sprintf("%s, on a rotating disk", d.Scheduler),
			Changes: []Change{{Kind: SetValue, Path: "sys/block/" + d.Name + "/queue/scheduler",
				Value: "mq-deadline"}}})
	}
	return out
}

// multiQueue reports whether a disk can have mq-deadline. Before 5.0 a kernel may have it and say so; its single-queue
// disks have noop, which sorts.
func multiQueue(h farm.HostFacts, d farm.BlockDevice) bool {
	return !before(h.Kernel.Release, 5, 0) || slices.Contains(d.Schedulers, "mq-deadline")
}

// wholeDisk reports whether a device is a disk and not built on one (dm-0, md0, drbd0, nbd0), which has no scheduler of
// its own.
func wholeDisk(name string) bool {
	return len(name) > 2 && slices.Contains([]string{"sd", "hd"}, name[:2])
}
