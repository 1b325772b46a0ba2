// Package starts keeps what the starts of VMs take, phase by phase, and says which jobs of a host have not ended, as
// its server is told.
package starts

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
)

// Phases are those of one start. It is safe for several goroutines.
type Phases struct {
	mu  sync.Mutex
	all []api.StartPhase
}

// Add adds a phase that is over now, of a VM that was asked for at a time, and returns all there are. What is returned
// is not changed any more.
func (p *Phases) Add(asked time.Time, name string, began, now time.Time) []api.StartPhase {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) < api.MaxStartPhases {
		p.all = append(p.all, api.StartPhase{Name: name, At: milliseconds(began.Sub(asked)),
			Milliseconds: milliseconds(now.Sub(began))})
	}
	return slices.Clip(p.all)
}

// All are the phases that are over.
func (p *Phases) All() []api.StartPhase {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clip(p.all)
}

// milliseconds are never less than none: the clock may have been set back.
func milliseconds(d time.Duration) float64 { return float64(max(d, 0).Microseconds()) / 1000 }

// states are the agent's words for what VMs do, as the server has them; those with more behind them are known by their
// beginning.
var states = []struct{ begins, state string }{{"running (unresponsive)", fleet.JobUnresponsive},
	{"running", fleet.JobRunning}, {"suspended", fleet.JobSuspended}, {"kept", fleet.JobKept},
	{"waiting", fleet.JobWaiting}}

// Job is a job that has not ended: usage is what its record says, state the agent's word for what its VM does, and why
// what it waits for.
func Job(u api.Usage, state, why string) fleet.Job {
	j := fleet.Job{ID: u.Job, Kind: u.Kind, State: fleet.JobStarting, Why: why, Name: u.Name, Batch: u.Batch,
		Queue: u.Queue, User: u.User, Account: u.Account, Image: u.Image, Shape: u.Shape, Cores: u.Cores,
		Memory: u.Memory, Asked: u.Asked, Phases: u.Phases}
	for _, s := range states {
		if strings.HasPrefix(state, s.begins) {
			j.State = s.state
			break
		}
	}
	return j
}

// Bounded are jobs in an order that lasts, as many as a server takes: those that have a VM before those that wait, and
// the oldest first.
func Bounded(all []fleet.Job) []fleet.Job {
	waits := func(j fleet.Job) int {
		if j.State == fleet.JobWaiting {
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b fleet.Job) int {
		return cmp.Or(cmp.Compare(waits(a), waits(b)), a.Asked.Compare(b.Asked), strings.Compare(a.ID, b.ID))
	})
	return all[:min(len(all), fleet.MaxHostJobs)]
}
