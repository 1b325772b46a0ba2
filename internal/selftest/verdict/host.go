package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Daemon is how the host's libvirt answers.
type Daemon struct {
	Answers []time.Duration // to a request that needs to know what QEMU can do, one after the other
	Away    bool            // it did not answer
	Stuck   int             // VMs that have ended, and that it does not let go
	Details []string
}

const (
	// slowAnswer is what libvirt never needs unless it probes QEMU.
	slowAnswer = 2 * time.Second
	// deafAnswer is as long as a whole start.
	deafAnswer = 10 * time.Second
)

// JudgeLibvirt decides whether libvirt answers in time. Its first answer does not count: it may have been idle.
func JudgeLibvirt(d Daemon) Finding {
	if d.Away || len(d.Answers) == 0 {
		return Finding{Verdict: Bad, Reason: "libvirt does not answer", Details: d.Details,
			Remedy: "see that libvirtd or virtqemud runs: systemctl status libvirtd"}
	}
	later := d.Answers[min(1, len(d.Answers)-1):]
	var ms []float64
	for _, t := range later {
		ms = append(ms, milliseconds(t))
	}
	f := Finding{Details: d.Details,
		Figures: map[string]float64{"answer_ms": median(ms), "first_ms": milliseconds(d.Answers[0]),
			"stuck_vms": float64(d.Stuck)}}
	f.Verdict = band(median(ms), milliseconds(slowAnswer), milliseconds(deafAnswer))
	f.Reason = fmt.Sprintf("it says what QEMU can do within %.0f ms", median(ms))
	if f.Verdict != Good {
		f.Remedy = "`grange host show` says why, where the agent knows: often /dev/kvm opens for root and not for " +
			"QEMU's user"
	}
	if d.Stuck > 0 {
		f.Verdict = worse(f.Verdict, Warning)
		f.Reason += fmt.Sprintf(", and keeps %s that ended", count(d.Stuck, "VM"))
		f.Remedy = "`grange host show` names them; restart libvirtd"
	}
	return f
}

// Groups are the host's control groups.
type Groups struct {
	Version     int      // 2; 1; 0: there are none
	Controllers []string // of version 2
}

// JudgeCgroup decides whether jobs can be limited and accounted by control groups.
func JudgeCgroup(g Groups) Finding {
	f := Finding{Figures: map[string]float64{"version": float64(g.Version)}}
	switch g.Version {
	case 0:
		f.Verdict, f.Reason = Bad, "no control groups are mounted"
		f.Remedy = "boot with systemd, or mount cgroup2 at /sys/fs/cgroup"
		return f
	case 1:
		f.Verdict, f.Reason = Warning, "version 1, which kernels and systemd give up"
		f.Remedy = "boot with systemd.unified_cgroup_hierarchy=1, once the batch system can do version 2"
		return f
	}
	var missing []string
	for _, c := range []string{"cpu", "cpuset", "memory"} {
		if !slices.Contains(g.Controllers, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		f.Verdict, f.Reason = Bad, "version 2, without "+strings.Join(missing, " and ")
		f.Remedy = "see the kernel's command line for cgroup_disable, and whether version 1 holds these controllers"
		return f
	}
	f.Verdict, f.Reason = Good, "version 2, with "+strings.Join(g.Controllers, ", ")
	return f
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
