package runner

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
)

// heartbeat sends the agent heartbeats, as our request promised. A stop that cannot be caught stops this too,
// and the VM with it.
func (j *Job) heartbeat(ctx context.Context) {
	for wait := 10 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, api.HeartbeatInterval) {
		began := time.Now()
		j.client.Heartbeats(ctx, j.request.ID) // ends when the agent does not know the job yet, or goes
		if time.Since(began) > api.HeartbeatInterval {
			wait = 10 * time.Millisecond
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// keepAsking holds the agent to our job, and finds the next agent when this one goes.
func (j *Job) keepAsking(ctx context.Context) {
	began, wait, told := time.Now(), 10*time.Millisecond, false
	agent := "the agent on " + j.opts.Socket
	j.notes.wait(agent)
	for ctx.Err() == nil {
		asked := time.Now()
		err := j.client.Job(ctx, j.request, func(e api.JobEvent) error {
			began, wait, told = time.Now(), 10*time.Millisecond, false
			return j.event(e)
		})
		if time.Since(asked) > time.Second && !errors.Is(err, api.ErrNoAgent) {
			began = time.Now() // a job in the queue hears nothing for long: the agent was there until now
		}
		j.takeMore() // also where no agent tells us anything
		problem := new(api.Problem)
		switch {
		case errors.As(err, &problem):
			j.finish(outcome{status: j.problemStatus(problem), err: problem})
			return
		case j.tooLong(err, time.Since(began)):
			j.finish(outcome{status: batch.ExitNotStarted, err: err})
			return
		}
		if !told && time.Since(began) > time.Second && !j.running() {
			j.notes.wait(agent)
			j.notes.say("waiting for %s", agent)
			told = true
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, time.Second)
	}
}

// grant asks the agent what the job is to have.
func (j *Job) grant(ctx context.Context) (api.Grant, error) {
	return untilAnswered(ctx, j, func() (api.Grant, error) { return j.client.Pools().Grant(ctx, j.request.Pool) })
}

// untilAnswered asks the agent, and waits for one that is being restarted as keepAsking does.
func untilAnswered[T any](ctx context.Context, j *Job, ask func() (T, error)) (T, error) {
	began, wait := time.Now(), 10*time.Millisecond
	for {
		answer, err := ask()
		if err == nil || ctx.Err() != nil || errors.As(err, new(*api.Problem)) || j.tooLong(err, time.Since(began)) {
			return answer, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		}
		wait = min(2*wait, time.Second)
	}
}

// agentTimeout is how long to look for an agent that has said nothing else: one that is restarted answers in seconds.
const agentTimeout = 10 * time.Second

// tooLong reports whether to stop looking for an agent. Once a job may run we never do. Somebody at a terminal waits
// for a VM that is there; a batch job whose VM has not been given its job goes back to its queue, for nothing of it has
// run.
func (j *Job) tooLong(err error, since time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	timeout, waits := j.waitTimeout, j.vm == nil
	switch {
	case j.batch != nil:
		waits = !j.request.Started
	case errors.Is(err, os.ErrNotExist): // no socket: an agent that was killed leaves one
		timeout = min(timeout, time.Second)
	}
	return waits && (since > timeout || j.request.NoWait && j.vm == nil)
}

// unpreparedStatus returns the exit status where the request makes no sense, or cannot be completed on this host.
func unpreparedStatus(err error) int {
	problem, own := new(api.Problem), new(farm.Error)
	switch {
	case errors.As(err, &problem):
		return notStartedStatus(problem)
	case errors.As(err, &own) && own.Kind == farm.Invalid:
		return exitUsage
	}
	return batch.ExitNotStarted
}

// problemStatus returns the exit status when the agent refuses our job.
func (j *Job) problemStatus(p *api.Problem) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.request.Started { // a new agent that has lost the VM
		return batch.ExitVMLost
	}
	return notStartedStatus(p)
}

// notStartedStatus returns the exit status of a request that makes no sense, or that may work elsewhere or later.
func notStartedStatus(p *api.Problem) int {
	inVM := p.Type == "grange:"+string(farm.CodeJobNotStarted) || p.Type == "grange:"+string(farm.CodeNoDirectory)
	if (p.Status == 400 || p.Status == 404) && !inVM {
		return exitUsage
	}
	return batch.ExitNotStarted
}

// event follows what the agent tells.
func (j *Job) event(e api.JobEvent) error {
	j.takeMore()
	if doing, known := waitingFor(e); known {
		j.notes.wait(doing)
	}
	j.out.show(e)
	switch e.Event {
	case api.EventEnded, api.EventFailed, api.EventLost:
		j.tellOnce.Do(func() { close(j.told) })
	}
	switch e.Event {
	case api.EventVM:
		return j.connect(e.VM)
	case api.EventRetry:
		j.disconnect()
	case api.EventReady:
		if j.start(); e.Steps != nil {
			j.stepping.Do(func() { j.served.Go(func() { j.serveSteps(j.ctx, e.Steps) }) })
		}
	case api.EventFailed:
		j.finish(outcome{status: notStartedStatus(e.Problem), err: e.Problem})
	case api.EventLost:
		j.finish(outcome{status: batch.ExitVMLost, err: e.Problem})
	case api.EventRunning:
		j.startClock()
	case api.EventWarning:
		if e.Code == api.CodePoolEnds { // as a terminal does that closes; what does not end then loses its VM
			j.send(guest.HostMessage{Signal: int(syscall.SIGHUP)})
		}
	}
	return nil
}

// running reports whether the job has our streams: then it needs no agent, and its errors are no place for our notes.
func (j *Job) running() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.started
}
