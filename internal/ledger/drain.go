package ledger

import (
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Drain is why a host starts no VMs, and since when. VMs that run are left alone.
type Drain struct {
	Reason string
	Since  time.Time
}

// Refusal returns the error of a VM that may not start on the drained host.
func (d Drain) Refusal() error {
	return &farm.Error{Kind: farm.NoCapacity, Code: CodeHostDrained,
		Message: "no VM starts on this host now: " + d.Reason,
		Hint: "it goes on when that is over; where it was cut short, `grange tune apply --drain` again or `grange " +
			"tune undo --drain`"}
}

// Drain has jobs wait until Resume is called. A second drain takes the place of the first one.
func (l *Ledger) Drain(d Drain) { l.setDrain(&d) }

// Resume ends the drain of the host, if it is drained, and grants to those who wait.
func (l *Ledger) Resume() { l.setDrain(nil) }

func (l *Ledger) setDrain(d *Drain) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drained = d
	l.serve()
}

// Drained returns the drain of the host, and reports whether it is drained.
func (l *Ledger) Drained() (d Drain, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drained == nil {
		return Drain{}, false
	}
	return *l.drained, true
}

// JobHolders names the VMs of jobs that have been granted room: they run, or will.
func (l *Ledger) JobHolders() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, g := range l.claims.grants {
		if !l.claims.cloud[id] {
			out = append(out, g.holder)
		}
	}
	slices.Sort(out) // whoever waits prints them when they change
	return out
}
