package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// A batch system has given the CPUs that a job's wrapper waits on, and has other hosts. So what keeps the VM of a batch
// job from being made is waited for so long, not for ever; then the job goes back to its queue.

// waitTimeout is how long that is; false: without end, as for everybody who waits at a terminal.
func (v *making) waitTimeout() (time.Duration, bool) {
	if v.request == nil || v.request.Batch == "" {
		return 0, false
	}
	return v.agent.config().Batch.WaitTimeout, true
}

// waitedTooLong reports whether the VM has waited long enough.
func (v *making) waitedTooLong(since time.Time) bool {
	timeout, bounded := v.waitTimeout()
	return bounded && time.Since(since) >= timeout
}

// tiredOf is the end of waiting for a hypervisor.
func (v *making) tiredOf(err error) error {
	timeout, _ := v.waitTimeout()
	e := new(farm.Error)
	errors.As(err, &e)
	return &farm.Error{Kind: farm.Unavailable, Code: e.Code, Message: fmt.Sprintf("waited %v", timeout), Err: err,
		Hint: "start libvirtd on this host; `wait_timeout` in the agent's configuration is how long batch jobs wait for it"}
}

var errWaitTimeout = errors.New("waited long enough")

// claim takes room from the ledger. A batch job that finds none is an anomaly, for its batch system has counted: the
// error names who holds what.
func (v *making) claim(holder string, request numa.Request) (farm.Plan, error) {
	timeout, bounded := v.waitTimeout()
	if !bounded {
		return v.agent.ledger.Claim(v.ctx, v.id, holder, request, v.request.NoWait, v.publishWaiting)
	}
	ctx, cancel := context.WithTimeoutCause(v.ctx, timeout, errWaitTimeout)
	defer cancel()
	var why string // under the ledger's lock, which claim takes last
	told := func(message string) {
		why = message
		v.publishWaiting(message)
	}
	plan, err := v.agent.ledger.Claim(ctx, v.id, holder, request, v.request.NoWait, told)
	if errors.Is(err, errWaitTimeout) {
		err = &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Message: fmt.Sprintf("waited %v for room that the batch system has given to this job: %s", timeout, why),
			Hint: "see who else is on this host: `grange vm list`; a job on the host that has ended is released by the " +
				"batch system's epilog"}
	}
	return plan, err
}
