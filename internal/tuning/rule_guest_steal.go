package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func guestSteal() Rule {
	return Rule{
		ID:       "guest-steal",
		Title:    "the host takes CPU time away from this VM",
		Severity: Warning,
		Roles:    []Role{Guest},
		Holds: "KVM guests with Linux 3.0 or newer, which are told their steal time. The figure is the average " +
			"since the guest booted; the rule wants ten minutes of CPU time at least.",
		Cost: "What the finding says: so much of the time that the VM wanted to compute, it waited for a CPU.",
		Sources: []Source{
			{"Linux, commit d910f5c1064d, \"KVM guest: KVM Steal time registration\", 2011",
				"https://git.zx2c4.com/linux-dev/commit/Documentation?id=d910f5c1064d7ff09c31b0191564f9f99e210f91",
				"steal time is the time since a vCPU's creation that it was ready to run and the host ran something " +
					"else"},
			cernTier0("two VMs on the same CPUs, and nothing to be seen from outside: performance from 60 to 155 " +
				"HS06 for the same kind of VM"),
		},
		Why: "Steal time is what a vCPU spends ready to run, on a host that runs something else: another VM on the " +
			"same CPUs, or the host's own work. On a compute host each vCPU should have a CPU, so steal should be " +
			"next to nothing. " + "A few percent mean overcommitment or unpinned neighbours; near a half means that " +
			"two VMs share the same CPUs. Jobs do not see it, they only take longer, and their CPU efficiency falls.",
		Fix: "Have the host looked at: grange tune audit there finds pins that overlap, VMs that roam and more " +
			"vCPUs than CPUs.",
		Danger: "",
		Undo:   "Nothing is changed here.",
		Check:  checkGuestSteal,
	}
}

const (
	stealPercent = 5
	enoughTicks  = 60_000 // ten minutes of CPU time at 100 ticks a second
)

func checkGuestSteal(h farm.HostFacts, _ Profile) []Finding {
	t := h.CPUTime
	wanted := t.User + t.Nice + t.System + t.Steal
	if wanted < enoughTicks || t.Steal*100 < wanted*stealPercent {
		return nil
	}
	return []Finding{{Severity: Warning, Where: "this VM", Wanted: fmt.Sprintf("less than %d %% steal", stealPercent),
		Got: fmt.Sprintf("%.1f %% of the time that it wanted to compute was stolen",
			100*float64(t.Steal)/float64(wanted)),
		Manual: "run grange tune audit and grange tune verify on the host; see vm-pin-overlap and vm-roams-dedicated"}}
}
