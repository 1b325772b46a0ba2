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
		Holds:    "Hosts on metal, and profiles that set a longest wake-up time.",
		Cost:     "Not measured with HS06: nothing while all CPUs are busy. A vCPU that wakes waits for the state's latency first, which the finding names.",
		Sources: []Source{
			kernelDoc("admin-guide/pm/cpuidle", "each idle state has an exit latency; single states can be disabled for each CPU, and limits set by PM QoS or on the command line"),
		},
		Why: "When a guest's CPU idles, KVM lets the host's CPU sleep, and a wake-up for a disk or network interrupt first brings it out of that sleep. For jobs that compute it does not matter, and sleeping siblings even leave more turbo to the others; " +
			"so this is for profiles of services with many short requests. The profile of this host sets a limit, and states beyond it are in use.",
		Fix:    "Run cpupower idle-set -D with the profile's limit, and make a unit that does so at boot; or hold a PM QoS request through tuned.",
		Danger: "More power, and less turbo for busy cores.",
		Undo:   "Run cpupower idle-set -E.",
		Check:  checkCStatesDeep,
	}
}

func checkCStatesDeep(h farm.Host, p Profile) []Finding {
	if p.MaxIdleLatency <= 0 || h.Virtual {
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
	return []Finding{{Severity: Advice, Where: cpusInWords(cpus), Wanted: fmt.Sprintf("no state that takes more than %d µs to leave", p.MaxIdleLatency),
		Got: strings.Join(deep, ", ") + " enabled", Manual: fmt.Sprintf("run cpupower idle-set -D %d, at each boot", p.MaxIdleLatency+1)}}
}
