package agent

import (
	"context"
	"net/http"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/pools"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/procstat"
)

// getPools lists the pools that the caller may use.
func (a routes) getPools(w http.ResponseWriter, _ *http.Request, c Caller) error {
	a.mu.Lock()
	vms := a.inPoolsLocked()
	a.mu.Unlock()
	requests := a.requests()
	all, err := pools.View(requests.config().Pools,
		func(r []policy.Rule) (policy.Who, error) { return requests.who(r, c) }, vms)
	if err != nil {
		return err
	}
	return answer(w, all)
}

// inPoolsLocked is whose VMs there are, of each pool.
func (a *Agent) inPoolsLocked() map[string][]uint32 {
	users := map[string][]uint32{}
	for _, v := range a.vms {
		users[v.recordNow().Pool] = append(users[v.recordNow().Pool], v.owner.charged())
	}
	return users
}

// postActive notes that the user of a job does something.
func (a routes) postActive(w http.ResponseWriter, r *http.Request, c Caller) error {
	if j := a.byID(r.PathValue("id")); j != nil && j.caller.UID == c.UID {
		j.active.Store(new(time.Now()))
	}
	return answer(w, struct{}{}) // to an agent that knows no VM yet it is said again
}

// limited holds a job to the limits of its VM's pool, until stop is called.
func (j *job) limited(m *machine.Machine) (stop context.CancelFunc) {
	ctx, stop := context.WithCancel(j.ctx)
	r := j.vm.recordNow()
	if r.Pool == "" {
		return stop
	}
	age, _ := procstat.Age(m.Applied.PID) // of its QEMU: it may have waited for room before; 0: it ends just now
	go pools.Session{Pool: r.Pool, Began: time.Now().Add(-age), End: j.cancel,
		Pools: func() []config.Pool { return j.agent.config().Pools },
		Used:  func() (time.Duration, error) { return procstat.CPUTime(m.Applied.PID) },
		Active: func() (last time.Time) {
			if at := j.active.Load(); at != nil {
				last = *at
			}
			return last
		},
		Warn: func(code, text string) {
			j.publish(api.JobEvent{Event: api.EventWarning, Code: code, Message: text})
		}}.Follow(ctx)
	return stop
}
