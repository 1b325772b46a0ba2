package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func iowaitHigh() Rule {
	return Rule{
		ID:       "iowait-high",
		Title:    "CPUs or programs wait for disks a large part of the time",
		Severity: Warning,
		Roles:    []Role{Compute, Service, Guest},
		Holds: "Machines with 30 % I/O wait since boot, or with PSI (Linux 4.20 and later) and some program " +
			"waiting 30 % of the last five minutes.",
		Cost: "Up to the share that is reported: CPUs in I/O wait do nothing. ATLAS's Tier-0 VMs at CERN showed " +
			"up to 30 %.",
		Sources: []Source{
			cernTier0("VMs that swapped showed up to 30 % I/O wait; swap and scratch space were the remedy, and " +
				"multi-core jobs did much better"),
			kernelDoc("accounting/psi", "some is the share of time in which at least one task waited for I/O"),
		},
		Why: "I/O wait is idle time with a reason: the CPU had nothing to run because its programs waited for a " +
			"disk. On a machine for computing the disk is seldom the work; most often it is swap, a scratch disk " +
			"that is full or shared by too many, or images on a slow disk. " +
			"At CERN 30 % was the sign of VMs that swapped because jobs needed more than 2 GB while they started and " +
			"ended.",
		Fix: "See who does the I/O: swap (vmstat, columns si and so), one VM (virsh domstats --block), or all " +
			"(iostat -x).",
		Undo:  "Nothing is changed.",
		Check: checkIOWaitHigh,
	}
}

// waitAlarm is the share of time, in percent, that CERN saw on workers that swapped.
const waitAlarm = 30

func checkIOWaitHigh(h farm.HostFacts, _ Profile) []Finding {
	manual := "look at swap first (vmstat 5, columns si and so), then at the busiest disk (iostat -x 5) and the VM " +
		"behind it"
	var out []Finding
	t := h.CPUTime
	all := t.User + t.Nice + t.System + t.Idle + t.IOWait + t.Steal // guest time is part of user
	if share := percentOf(t.IOWait, all); share >= waitAlarm {
		out = append(out, Finding{Severity: Warning, Where: "host",
			Wanted: fmt.Sprintf("I/O wait below %d %%", waitAlarm), Got: fmt.Sprintf("%.0f %% since boot", share),
			Manual: manual})
	}
	if p := h.Pressure["io"]; p.Some300 >= waitAlarm {
		out = append(out, Finding{Severity: Advice, Where: "pressure",
			Wanted: fmt.Sprintf("programs waiting for I/O less than %d %% of the time", waitAlarm),
			Got: fmt.Sprintf("some waited %.0f %% of the last five minutes, all of them %.0f %%", p.Some300,
				p.Full300), Manual: manual})
	}
	return out
}

func percentOf(part, all int64) float64 {
	if part <= 0 || all <= 0 {
		return 0
	}
	return 100 * float64(part) / float64(all)
}
