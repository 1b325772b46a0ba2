package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func cstatesDeep() Rule {
	return Rule{
		ID:       "cstates-deep",
		Title:    "CPUs may sleep more deeply than the profile wants",
		Severity: Advice,
		Holds: "Hosts on bare metal, and profiles that set a longest wake-up time: of the built-in ones " +
			"generic-service. Not where tuned runs with a profile that holds a latency request, for the kernel then " +
			"leaves deep states alone although they are enabled.",
		Cost: "Not measured with HS06: nothing while all CPUs are busy. A vCPU that wakes waits for the state's " +
			"latency first, which the finding names.",
		Sources: []Source{
			kernelDoc("admin-guide/pm/cpuidle",
				"each idle state has an exit latency; single states can be disabled for each CPU, and limits set by "+
					"PM QoS or on the command line"),
			{"tuned, profile virtual-host, and pull request 132 \"Make virtual-host identical to " +
				"latency-performance\", 2018", "https://github.com/redhat-performance/tuned/pull/132",
				"tests at customers and in performance labs of oVirt found latency-performance better for hosts of " +
					"VMs; " + "since then virtual-host limits the latency to that of the third idle state, or 70 µs " +
					"where there is " + "none"},
			{"tuned, issue 808, 2025", "https://github.com/redhat-performance/tuned/issues/808",
				"on recent Intel processors the third idle state is C6, of 170 µs on Ice Lake, so that this limit " +
					"lets it through"},
		},
		Why: "When a guest's CPU idles, KVM lets the host's CPU sleep, and a wake-up for a disk or network interrupt " +
			"first brings it out of that sleep. For jobs that compute it does not matter, and sleeping siblings even " +
			"leave more turbo to the others; " +
			"so the built-in profiles for jobs set no limit. Services with many short requests are another matter: their " +
			"profile allows 200 µs, which keeps C6 of Intel's servers and leaves out what takes longer, by the " +
			"firmware's own word.",
		Fix: "Run cpupower idle-set -D with the profile's limit, and make a unit that does so at boot; or let " +
			"tuned hold a latency request (profile latency-performance).",
		Danger: "More power, and less turbo for busy cores.",
		Undo:   "Run cpupower idle-set -E.",
		Check:  checkCStatesDeep,
	}
}

func checkCStatesDeep(h farm.HostFacts, p Profile) []Finding {
	if p.MaxIdleLatency <= 0 || h.Virtual || h.Services["tuned"].Running &&
		requestsLatency(h.TunedProfile, p.MaxIdleLatency) {
		return nil
	}
	var deep []string
	cpus := farm.CPUSet{}
	for _, s := range h.Idle {
		if s.LatencyMicros > p.MaxIdleLatency && !s.Enabled.Empty() {
			deep = append(deep, fmt.Sprintf("%s (%d µs)", s.Name, s.LatencyMicros))
			cpus = cpus.Or(s.Enabled)
		}
	}
	if len(deep) == 0 {
		return nil
	}
	return []Finding{{Severity: Advice, Where: cpusInWords(cpus),
		Wanted: fmt.Sprintf("no state that takes more than %d µs to leave", p.MaxIdleLatency),
		Got:    strings.Join(deep, ", ") + " enabled",
		Manual: fmt.Sprintf("run cpupower idle-set -D %d, at each boot", p.MaxIdleLatency+1)}}
}

// slowestC6 is the longest latency of C6 on Intel's servers, which the limit of tuned's virtual-host may let through,
// in microseconds.
const slowestC6 = 200

// requestsLatency reports whether a profile of tuned's holds a latency request (force_latency) that keeps a limit in
// microseconds.
func requestsLatency(profile string, limit int) bool {
	if profile == "virtual-host" {
		return limit >= slowestC6
	}
	for _, name := range []string{"latency-performance", "network-latency", "hpc-compute", "cpu-partitioning",
		"realtime"} {
		if strings.HasPrefix(profile, name) {
			return true
		}
	}
	return false
}
