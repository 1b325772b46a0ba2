package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/facts"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/services"
	"github.com/grange-project/grange/internal/agent/usage"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/journal"
)

// Why a job's context ends.
var (
	errCallerGone = errors.New("the caller has gone")
	errGivenBack  = errors.New("the caller gave its VM back")
	errStopped    = errors.New("stopped by order")
	errShutdown   = errors.New("the agent stops; VMs go on")
)

func newJob(a *Agent, id string, caller Caller) *job {
	return &job{agent: a, id: id, caller: caller, port: -1, changed: make(chan struct{}), over: make(chan struct{})}
}

func (j *job) update(change func()) {
	j.mu.Lock()
	change()
	close(j.changed)
	j.changed = make(chan struct{})
	j.mu.Unlock()
}

func (j *job) publish(e api.JobEvent) { j.update(func() { j.events = append(j.events, e) }) }

// publishWaiting replaces the last event if that told of waiting as well: a queue may move often. What has been told
// already is not told again, whatever attempts were made in vain meanwhile.
func (j *job) publishWaiting(message string) {
	e := api.JobEvent{Event: api.EventWaiting, Message: message}
	j.update(func() {
		if n := len(j.events); n > j.delivered && j.events[n-1].Event == api.EventWaiting {
			j.events[n-1] = e
			return
		}
		for _, told := range slices.Backward(j.events) {
			if told == e {
				return
			}
			if told.Event != api.EventPhase {
				break
			}
		}
		j.events = append(j.events, e)
	})
}

func (j *job) phase(name string, since time.Time) time.Time {
	now := time.Now()
	j.publish(api.JobEvent{Event: api.EventPhase,
		Phase: &api.Phase{Name: name, Milliseconds: milliseconds(now.Sub(since))}})
	j.agent.meter.Phase(name, now.Sub(since))
	return now
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// run takes the job from its entering to its leaving.
func (j *job) run() {
	defer close(j.over)
	defer j.agent.forget(j)
	m, err := j.awaitGuest()
	if err == nil {
		stay{j.vm}.share(j)
		err = j.serve(m)
	}
	j.finish(err)
}

// awaitGuest waits until the VM's guest is up and the job has its port.
func (j *job) awaitGuest() (*machine.Machine, error) {
	v := j.vm
	for {
		v.mu.Lock()
		m, port, up, failed, changed, name := v.machine, j.port, v.up, v.failed, v.changed, v.record.Name
		v.mu.Unlock()
		switch {
		case failed != nil:
			return nil, failed
		case up && port >= 0:
			return m, nil
		case up && j.noWait():
			return nil, &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
				Message: fmt.Sprintf("all %d places in VM %s are taken", len(v.ports), name),
				Hint:    "wait with --wait, or ask for less"}
		}
		if err := j.await(changed); err != nil {
			return m, err
		}
	}
}

// noWait reports whether the job's request, where it is known, refuses to wait.
func (j *job) noWait() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.request != nil && j.request.NoWait
}

func (j *job) imageName() string {
	if j.request.Image != "" {
		return j.request.Image
	}
	return j.agent.config().DefaultImage
}

// serve is with the VM from its guest's first word to the end of the job, and longer with --keep.
func (j *job) serve(m *machine.Machine) error {
	began := time.Now()
	wait := func(want func(guest.State) bool) (guest.State, error) { return m.Control.Wait(j.ctx, j.id, want) }
	state, err := wait(func(s guest.State) bool { return s.Phase != "" })
	if err == nil && state.Phase == guest.Ready {
		err = j.handOver(m)
	}
	if err == nil {
		state, err = wait(func(s guest.State) bool { return s.Phase != guest.Ready && s.Phase != guest.Given })
	}
	if err != nil {
		return j.lost(m, err)
	}
	since := began
	if began = j.phase("guest", began); j.id == j.vm.id && !j.takenOver {
		j.vm.started("guest", since, began)
	}
	j.publish(api.JobEvent{Event: api.EventRunning})
	defer j.limited(m)()
	seen := !j.takenOver || state.Phase == guest.Running // else an earlier agent has counted it
	state, err = wait(func(s guest.State) bool { return s.Phase != guest.Running })
	if err != nil {
		return j.lost(m, err)
	}
	ran := j.phase("job", began).Sub(began)
	if j.takenOver {
		ran = time.Since(j.record.Created)
	}
	if seen {
		j.agent.meter.Ended(ran, state.Exit != nil && state.Exit.Code == 0)
	}
	j.update(func() { j.ended = true })
	switch {
	case state.Phase == guest.Failed && state.NoDir:
		j.publish(api.JobEvent{Event: api.EventFailed,
			Problem: problemOf(&farm.Error{Kind: farm.Invalid, Code: farm.CodeNoDirectory,
				Message: "the job was not started: " + state.Message,
				Hint:    "bind it with --bind (sbatch --vm-mount), or start elsewhere with --workdir (sbatch --chdir)"})})
	case state.Phase == guest.Failed:
		j.publish(api.JobEvent{Event: api.EventFailed, Problem: problemOf(&farm.Error{
			Kind: farm.Invalid, Code: farm.CodeJobNotStarted, Message: "the job was not started: " + state.Message,
			Hint: "see what the VM says with -v"})})
	case state.Exit != nil:
		j.publish(api.JobEvent{Event: api.EventEnded, Exit: exitOf(state.Exit)})
		j.agent.Usage.Exited(j.vm.id, j.id, *exitOf(state.Exit))
	}
	// The caller takes the rest of the output from the VM before it gives it back.
	_, err = wait(func(guest.State) bool { return false })
	return j.lost(m, err)
}

// handOver gives the job to the guest, once the caller has been told: whoever was told "ready" never starts a second
// VM.
func (j *job) handOver(m *machine.Machine) error {
	request, err := j.awaitRequest()
	if err != nil {
		return err
	}
	image := j.agent.machines.ImageOf(j.vm.recordNow().Digest)
	if err := jobrequest.CheckCommand(len(request.Argv) == 0, image); err != nil {
		return err
	}
	if err := j.writeFile(m); err != nil {
		return err
	}
	j.publish(api.JobEvent{Event: api.EventReady, Steps: j.steps()})
	if err := j.awaitDelivery(); err != nil {
		return err
	}
	description, err := j.agent.requests().guestJob(j, j.vm.recordFor(j), request)
	if err != nil {
		return err
	}
	description.Port, description.Shared, description.Steps = j.port, j.vm.key != "", j.steps() != nil
	if w := services.Offer(description, j.vm.services(), m.Control.TakesServices(), facts.Path); w != "" {
		j.publish(api.JobEvent{Event: api.EventWarning, Message: w})
	}
	j.update(func() { j.handed = true })
	if err := m.Control.Give(j.ctx, description); err != nil {
		return err
	}
	j.update(func() { j.request = jobrequest.Light(request) })
	j.weight.Store(0)
	return nil
}

// given reports whether the guest may know of the job.
func (j *job) given() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.handed || j.takenOver
}

// awaitRequest waits, after a restart of the agent, for the caller to come again: the VM's record does not hold the
// job.
func (j *job) awaitRequest() (*api.JobRequest, error) {
	for {
		j.mu.Lock()
		request, changed := j.request, j.changed
		j.mu.Unlock()
		if request != nil {
			return request, nil
		}
		if err := j.await(changed); err != nil {
			return nil, err
		}
	}
}

// awaitDelivery waits until the caller has been sent all events.
func (j *job) awaitDelivery() error {
	for {
		j.mu.Lock()
		done, changed := j.delivered >= len(j.events), j.changed
		j.mu.Unlock()
		if done {
			return nil
		}
		if err := j.await(changed); err != nil {
			return err
		}
	}
}

func (j *job) await(changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-j.ctx.Done():
		return context.Cause(j.ctx)
	}
}

// lost turns the end of a VM under a job into something to tell; the caller's own leaving is no loss.
func (j *job) lost(m *machine.Machine, err error) error {
	if !errors.Is(err, machine.ErrGone) {
		return err
	}
	j.vm.update(func() { j.vm.closed = true })
	j.agent.Usage.Look(j.vm.id) // before it is waited for the last words
	if j.isEnded() {
		return nil // a kept VM, or one that powered off, after its job
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeVMLost,
		Message: "the VM ended under the job" + m.LastWords(),
		Hint:    "a kernel panic or a kill on the host; the job may have run in part and is not run again"}
}

func (j *job) isEnded() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended
}

// finish reports how it went and leaves the VM, unless the agent itself stops.
func (j *job) finish(err error) {
	if j.ctx.Err() != nil {
		err = context.Cause(j.ctx) // a step may have wrapped it in words of its own
	}
	switch {
	case errors.Is(err, errShutdown):
		return
	case err == nil, errors.Is(err, errCallerGone), errors.Is(err, errGivenBack):
	case errors.Is(err, errStopped):
		err = &farm.Error{Kind: farm.Conflict, Code: CodeVMStopped, Message: "the VM was stopped by order",
			Hint: "`grange vm list` shows what runs"}
		fallthrough
	default:
		j.agent.meter.Failed(err)
		j.publish(api.JobEvent{Event: j.failureEvent(), Problem: problemOf(err)})
		j.agent.Usage.Tell(j.vm.id, func(u *api.Usage) { usage.Failed(u, err) })
	}
	clean := j.vm.leave(j)
	j.update(func() { j.clean = clean })
	j.log().Log(context.Background(), endLevel(err), "job over", "id", j.id, "cause", err)
}

// failureEvent distinguishes "was not started" from "may have run".
func (j *job) failureEvent() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.takenOver {
		return api.EventLost
	}
	for _, e := range j.events {
		if e.Event == api.EventReady || e.Event == api.EventRunning {
			return api.EventLost
		}
	}
	return api.EventFailed
}

// follow sends the job's events to a caller until the job is over, ctx ends or send fails.
func (j *job) follow(ctx context.Context, send func(api.JobEvent) error) {
	j.update(func() { j.followers++ })
	defer j.update(func() { j.followers-- })
	for at := 0; ; {
		j.mu.Lock()
		fresh, changed := slices.Clone(j.events[min(at, len(j.events)):]), j.changed
		j.mu.Unlock()
		for _, e := range fresh {
			if send(e) != nil {
				return
			}
			at++
			j.update(func() { j.delivered = max(j.delivered, at) })
		}
		if len(fresh) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-j.over:
			if j.sent(at) {
				return
			}
		}
	}
}

func (j *job) sent(at int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return at >= len(j.events)
}

// callerLeft ends the job when nobody follows it any more, unless it is to be kept.
func (j *job) callerLeft() {
	j.mu.Lock()
	alone := j.followers == 0
	j.mu.Unlock()
	if alone && !j.keeps() && j.agent.ctx.Err() == nil { // an agent that stops cuts all connections itself
		j.cancel(errCallerGone)
	}
}

// keeps reports whether the VM stays without its caller: it was asked to, and its guest has the job.
func (j *job) keeps() bool {
	m := j.vm.current()
	if !j.record.Keep || m == nil {
		return false
	}
	switch m.Control.PhaseOf(j.id) {
	case guest.Ready:
		return false
	case "":
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.takenOver // not heard yet
	}
	return true
}

// log is for what is about this job of its VM.
func (j *job) log() *slog.Logger {
	return j.agent.log.With("vm", j.vm.recordNow().Name, "user", j.record.User).
		With(journal.JobAttrs(j.vm.key, j.id)...)
}

// endLevel tells the end of a job that this host could not run from others: what the caller did, or asked for, is no
// fault of the host's.
func endLevel(err error) slog.Level {
	own := new(farm.Error)
	switch {
	case err == nil, errors.Is(err, errCallerGone), errors.Is(err, errGivenBack):
		return slog.LevelInfo
	case errors.As(err, &own) && own.Kind != farm.Unavailable && own.Kind != farm.Internal:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
