package ledger

import (
	"github.com/grange-project/grange/internal/farm"
)

// look brings what batch systems confine up to date. key is the batch job whose VM is to be placed, if any.
func (l *Ledger) look(key string) {
	if l.host.Jobs == nil {
		return
	}
	l.claims.confined = map[string]farm.Plan{}
	for _, a := range l.host.Jobs(key) {
		cpus := a.CPUs.And(l.claims.topology.Online)
		if cpus.Empty() && a.Memory == 0 {
			continue // it may use anything, and holds nothing
		}
		l.claims.confined[a.Key()] = farm.Plan{Extra: cpus, Cells: spread(l.claims.topology, cpus, a.Memory)}
	}
}

// ServeWaiting looks for room for those who wait: a job on the host has perhaps ended, which nobody tells us.
func (l *Ledger) ServeWaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 {
		l.serve()
	}
}
