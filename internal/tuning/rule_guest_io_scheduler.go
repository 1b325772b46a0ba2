package tuning

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func guestIOScheduler() Rule {
	return Rule{
		ID:       "guest-io-scheduler",
		Title:    "this VM sorts disk requests that its host sorts again",
		Severity: Advice,
		Roles:    []Role{Guest},
		Holds: "virtio disks on storage that the host manages. Guests of release 6 have cfq by default; since 7.2 " +
			"virtio-blk has none. Not for disks that are passed through or come by iSCSI.",
		Cost: "No figure was published. Red Hat: guests often benefit greatly from noop.",
		Sources: []Source{
			redHatTuning("I/O scheduling in guests", "sect-virtualization_tuning_optimization_guide-io-scheduler-guest",
				"guests often benefit greatly from noop, because the host sees the requests of all guests and the "+
					"real layout; deadline may be better for some loads: measure"),
		},
		Why: "cfq and bfq divide a disk fairly among processes and hold requests back, waiting a moment for a " +
			"neighbouring one, so that a disk's head moves less. A virtual disk has no head: the guest's order says " +
			"nothing about the layout behind it, and the host, which sees all guests, sorts again. " +
			"What is left of the guest's work is the waiting and the CPU time.",
		Fix:    "Use none (noop on kernels with the old block layer).",
		Danger: "Priorities by ionice no longer count inside the VM.",
		Undo:   "Write the old name into the scheduler file.",
		Check:  checkGuestIOScheduler,
	}
}

func checkGuestIOScheduler(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range h.Disks {
		want := ""
		switch d.Scheduler {
		case "cfq":
			want = "noop" // cfq is of the old block layer only
		case "bfq":
			want = "none"
		}
		if want == "" || !strings.HasPrefix(d.Name, "vd") {
			continue
		}
		out = append(out, Finding{Severity: Advice, Where: "disk " + d.Name, Wanted: "scheduler " + want,
			Got:     "scheduler " + d.Scheduler,
			Changes: []Change{{Kind: SetValue, Path: "sys/block/" + d.Name + "/queue/scheduler", Value: want}}})
	}
	return out
}
