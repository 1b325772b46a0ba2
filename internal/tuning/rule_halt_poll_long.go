package tuning

import (
	"fmt"
	"strconv"

	"github.com/grange-project/grange/internal/farm"
)

func haltPollLong() Rule {
	return Rule{
		ID:       "halt-poll-long",
		Title:    "KVM polls longer than any of its defaults before it lets an idle vCPU sleep",
		Severity: Advice,
		Roles:    []Role{Compute},
		Holds:    "x86 hosts with the module parameter kvm.halt_poll_ns (Linux 4.0 and later).",
		Cost: "Not measured. The kernel's documentation warns that a large value can make a nearly idle host 100 " +
			"% busy; with SMT the polling thread takes execution units from the job on its sibling.",
		Sources: []Source{
			kernelDoc("virt/kvm/halt-polling",
				"polling turns idle CPU time into host kernel time to save a few microseconds at a wake-up; a large "+
					"halt_poll_ns can drive CPU use to 100 % on an otherwise idle machine"),
		},
		Why: "When a vCPU has nothing to do, KVM first spins on the host's CPU for up to halt_poll_ns in the hope of " +
			"an early wake-up. That saves microseconds for servers that answer requests. " +
			"For throughput it is wasted power, and on a core with two threads it slows the other thread. Defaults on " +
			"x86 have been 500,000 ns at most and are 200,000 now; somebody raised it here, and a value for latency " +
			"does not belong on a compute host.",
		Fix:   "Set kvm.halt_poll_ns to 200000.",
		Undo:  "Write the old value back.",
		Check: checkHaltPollLong,
	}
}

// KVM_HALT_POLL_NS_DEFAULT of x86 today, and the largest that it has been (Linux 4.0).
const (
	haltPollDefault = 200_000
	haltPollMost    = 500_000
)

func checkHaltPollLong(h farm.HostFacts, _ Profile) []Finding {
	n, err := strconv.ParseInt(h.KVM.Params["kvm.halt_poll_ns"], 10, 64)
	if err != nil || n <= haltPollMost {
		return nil
	}
	return []Finding{{Severity: Advice, Where: "host", Wanted: fmt.Sprintf("kvm.halt_poll_ns at most %d", haltPollMost),
		Got: fmt.Sprintf("kvm.halt_poll_ns is %d", n),
		Changes: []Change{{Kind: SetValue, Path: "sys/module/kvm/parameters/halt_poll_ns",
			Value: fmt.Sprint(haltPollDefault)}}}}
}
