package ledger

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// look brings what batch systems confine up to date. key is the batch job whose VM is to be placed, if any.
func (l *Ledger) look(key string) {
	if l.host.Jobs == nil {
		return
	}
	l.confined = map[string]farm.Plan{}
	for _, a := range l.host.Jobs(key) {
		cpus := a.CPUs.And(l.topology.Online)
		if cpus.Empty() && a.Memory == 0 {
			continue // it may use anything, and holds nothing
		}
		l.confined[a.Key()] = farm.Plan{Extra: cpus, Cells: spread(l.topology, cpus, a.Memory)}
	}
}

// besides are the plans of confined jobs that a VM of the batch job key, "" for any other, has to leave alone. A job
// that its batch system confines itself goes where the batch system puts it: that knows what it has given to its other
// jobs, and may let two of them, of which one is suspended, share CPUs. Those that are passed over are left out.
func (l *Ledger) besides(key string, inVMs, passed map[string]bool) []farm.Plan {
	own := l.confined[key]
	var plans []farm.Plan
	for of, plan := range l.confined {
		if _, claimed := l.metal[of]; claimed || of == key || passed[of] {
			continue
		}
		if inVMs[of] || own.Cells != nil {
			plan.Cells = nil
		}
		if !own.Extra.Empty() {
			plan.Extra = farm.CPUSet{}
		}
		plans = append(plans, plan)
	}
	return plans
}

// confinedHolders says, for people, what jobs without a VM hold.
func (l *Ledger) confinedHolders() []string {
	inVMs := map[string]bool{}
	for _, key := range l.keys {
		inVMs[key] = true
	}
	var lines []string
	for key, plan := range l.confined {
		if _, claimed := l.metal[key]; !claimed && !inVMs[key] {
			lines = append(lines, fmt.Sprintf("%s on the host holds CPUs %v and %v", key, plan.Held(), plan.Memory()))
		}
	}
	return lines
}

// ServeWaiting looks for room for those who wait: a job on the host has perhaps ended, which nobody tells us.
func (l *Ledger) ServeWaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 {
		l.serve()
	}
}
