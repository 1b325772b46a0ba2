package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
)

// Why a job's context ends.
var (
	errCallerGone = errors.New("the caller has gone")
	errGivenBack  = errors.New("the caller gave its VM back")
	errStopped    = errors.New("stopped by order")
	errShutdown   = errors.New("the agent stops; VMs go on")
)

// job is one caller's command and the VM made for it. run, or resume after a restart, sees it from the grant to the clean-up;
// everything else only looks or asks.
type job struct {
	agent  *Agent
	id     string
	caller Caller
	ctx    context.Context // ends with one of the reasons above
	cancel context.CancelCauseFunc
	over   chan struct{} // closed when everything is cleaned up

	mu        sync.Mutex
	changed   chan struct{} // closed and made anew at every change
	request   *api.JobRequest
	record    record
	machine   *machine // nil before the first and after the last
	events    []api.JobEvent
	delivered int // events that a caller has been sent
	followers int
	suspended bool
	takenOver bool // from an earlier agent: what it told the caller is not known
	ended     bool // the job has ended; only a kept VM lives on
	clean     []api.Phase
}

func newJob(a *Agent, id string, caller Caller) *job {
	j := &job{agent: a, id: id, caller: caller, changed: make(chan struct{}), over: make(chan struct{})}
	j.ctx, j.cancel = context.WithCancelCause(a.ctx)
	return j
}

func (j *job) update(change func()) {
	j.mu.Lock()
	change()
	close(j.changed)
	j.changed = make(chan struct{})
	j.mu.Unlock()
}

func (j *job) publish(e api.JobEvent) { j.update(func() { j.events = append(j.events, e) }) }

// publishWaiting replaces the last event if that told of waiting as well: a queue may move often.
func (j *job) publishWaiting(message string) {
	e := api.JobEvent{Event: api.EventWaiting, Message: message}
	j.update(func() {
		if n := len(j.events); n > j.delivered && j.events[n-1].Event == api.EventWaiting {
			j.events[n-1] = e
			return
		}
		if n := len(j.events); n == 0 || j.events[n-1] != e {
			j.events = append(j.events, e)
		}
	})
}

func (j *job) phase(name string, since time.Time) time.Time {
	now := time.Now()
	j.publish(api.JobEvent{Event: api.EventPhase, Phase: &api.Phase{Name: name, Milliseconds: milliseconds(now.Sub(since))}})
	return now
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// run takes the job from the grant to the clean-up.
func (j *job) run() {
	defer close(j.over)
	defer j.agent.forget(j)
	err := j.start()
	if err == nil {
		err = j.serve()
	}
	j.finish(err)
}

// start makes the VM and waits for its guest, trying again where trying again may help.
func (j *job) start() error {
	began := time.Now()
	plan, err := j.grant()
	if err != nil {
		return err
	}
	now := j.phase("grant", began)
	image, release, err := j.agent.images.Acquire(j.imageName())
	if err != nil {
		return err
	}
	defer release() // the running VM's record keeps the image from here on
	j.update(func() { j.record.Image, j.record.Digest, j.record.Plan = image.Name, image.Digest, plan })
	j.phase("image", now)
	for attempt := 1; ; {
		err := j.attempt(image, attempt)
		if err == nil || j.ctx.Err() != nil {
			return err
		}
		j.discard()
		switch {
		case isCode(err, hyper.CodeAway) && !j.request.NoWait:
			j.publishWaiting(err.Error())
			if err := j.sleep(hypervisorPause); err != nil {
				return err
			}
			j.agent.hyper.Sweep(j.ctx) // a daemon that died may have left a process half made; while it is away, later
		case !worthAnotherTry(err) || attempt >= j.agent.config().Attempts:
			return err
		default:
			j.publish(api.JobEvent{Event: api.EventRetry, Message: fmt.Sprintf("attempt %d came to nothing: %v", attempt, err)})
			j.agent.log.Warn("vm came to nothing", "job", j.id, "attempt", attempt, "error", err)
			attempt++
		}
	}
}

// hypervisorPause is between two looks for a hypervisor that is away. Nothing runs meanwhile, so nothing is lost by waiting.
const hypervisorPause = 200 * time.Millisecond

func (j *job) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-j.ctx.Done():
		return context.Cause(j.ctx)
	}
}

func isCode(err error, c farm.Code) bool {
	e := new(farm.Error)
	return errors.As(err, &e) && e.Code == c
}

func (j *job) imageName() string {
	if j.request.Image != "" {
		return j.request.Image
	}
	return j.agent.config().DefaultImage
}

// worthAnotherTry tells what may have been bad luck from what will never work.
func worthAnotherTry(err error) bool {
	return !isKind(err, farm.Invalid) && !isKind(err, farm.Denied) && !isKind(err, farm.NoCapacity)
}

func (j *job) grant() (farm.Plan, error) {
	shape := j.record.Shape
	request := j.agent.numaRequest(shape, j.caller.CPUs)
	return j.agent.ledger.claim(j.ctx, j.id, j.record.holder(), request, j.request.NoWait, j.publishWaiting)
}

// serve is with the VM from its guest's first word to the end of the job, and longer with --keep.
func (j *job) serve() error {
	m := j.machine
	began := time.Now()
	state, err := m.control.wait(j.ctx, func(s guest.State) bool { return s.Phase != "" })
	if err == nil && state.Phase == guest.Ready {
		err = j.handOver(m)
	}
	if err == nil {
		state, err = m.control.wait(j.ctx, func(s guest.State) bool { return s.Phase != guest.Ready && s.Phase != guest.Given })
	}
	if err != nil {
		return j.lost(err)
	}
	began = j.phase("guest", began)
	j.publish(api.JobEvent{Event: api.EventRunning})
	state, err = m.control.wait(j.ctx, func(s guest.State) bool { return s.Phase == guest.Exited || s.Phase == guest.Failed })
	if err != nil {
		return j.lost(err)
	}
	j.phase("job", began)
	j.update(func() { j.ended = true })
	if state.Phase == guest.Failed {
		j.publish(api.JobEvent{Event: api.EventFailed, Problem: problemOf(&farm.Error{
			Kind: farm.Invalid, Code: farm.CodeJobNotStarted, Message: "the job was not started: " + state.Message, Hint: "see what the VM says with -v"})})
	} else {
		j.publish(api.JobEvent{Event: api.EventEnded, Exit: exitOf(state.Exit)})
	}
	// The caller takes the rest of the output from the VM before it gives it back.
	_, err = m.control.wait(j.ctx, func(guest.State) bool { return false })
	return j.lost(err)
}

// handOver gives the job to the guest, once the caller has been told: whoever was told "ready" never starts a second VM.
func (j *job) handOver(m *machine) error {
	request, err := j.awaitRequest()
	if err != nil {
		return err
	}
	j.publish(api.JobEvent{Event: api.EventReady})
	if err := j.awaitDelivery(); err != nil {
		return err
	}
	description, err := j.agent.guestJob(j, request)
	if err != nil {
		return err
	}
	return m.control.give(j.ctx, description)
}

// awaitRequest waits, after a restart of the agent, for the caller to come again: the VM's record does not hold the job.
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
func (j *job) lost(err error) error {
	if !errors.Is(err, errGone) {
		return err
	}
	if j.isEnded() {
		return nil // a kept VM, or one that powered off, after its job
	}
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeVMLost, Message: "the VM ended under the job" + j.machine.lastWords(),
		Hint: "a kernel panic or a kill on the host; the job may have run in part and is not run again"}
}

func (j *job) isEnded() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended
}

// finish tells how it went and cleans up, unless the agent itself stops.
func (j *job) finish(err error) {
	if j.ctx.Err() != nil {
		err = context.Cause(j.ctx) // a step may have wrapped it in words of its own
	}
	switch {
	case errors.Is(err, errShutdown):
		j.detach()
		return
	case err == nil, errors.Is(err, errCallerGone), errors.Is(err, errGivenBack):
	case errors.Is(err, errStopped):
		err = &farm.Error{Kind: farm.Conflict, Code: farm.CodeVMStopped, Message: "the VM was stopped by order", Hint: "`grange vm list` shows what runs"}
		fallthrough
	default:
		j.publish(api.JobEvent{Event: j.failureEvent(err), Problem: problemOf(err)})
	}
	began := time.Now()
	j.discard()
	j.agent.ledger.release(j.id)
	j.update(func() { j.clean = []api.Phase{{Name: "clean", Milliseconds: milliseconds(time.Since(began))}} })
	j.agent.log.Info("job over", "job", j.id, "vm", j.record.Name, "user", j.record.User, "cause", err)
}

// failureEvent tells "was not started" from "may have run".
func (j *job) failureEvent(err error) string {
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

// keeps tells whether the VM stays without its caller: it was asked to, and its guest has the job.
func (j *job) keeps() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.record.Keep || j.machine == nil {
		return false
	}
	switch j.machine.control.phase() {
	case guest.Ready:
		return false
	case "":
		return j.takenOver // not heard yet
	}
	return true
}
