package agent

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/journal"
	"github.com/grange-project/grange/internal/sdnotify"
)

// An agent serves at once, and learns behind that what runs on its host: its hypervisor may hang, refuse, or take
// minutes. Until it is known what runs nothing is granted and nothing is removed, for a VM that was not listed yet
// holds CPUs, memory and files. Requests that depend on it wait, and say why; all others are answered.

const (
	knownWithin = 5 * time.Second        // that a request waits which cannot say what for
	knownSoon   = 500 * time.Millisecond // that an agent needs after each start, which is not worth a word
)

// takeOverHost learns what runs on the host, as long as that takes, and begins what depends on it. An error ends the
// agent.
func (a recovery) takeOverHost() error {
	if err := a.recover(a.ctx); err != nil {
		return err
	}
	err := a.persist(func() (err error) {
		a.machines.UID, a.machines.GID, err = a.hyper.QEMUOwner(a.ctx)
		return err
	})
	if err != nil {
		return err
	}
	a.jobs.Go(func() { a.machines.KeepVolumes(a.ctx) })
	a.jobs.Go(a.housekeep)
	a.jobs.Go(a.sweep)
	a.jobs.Go(a.watch.watchDisks)
	a.jobs.Go(a.serveAfterMetal)
	a.jobs.Go(a.healing.heal)
	a.jobs.Go(a.Cloud.ServeMetadata)
	a.jobs.Go(func() { a.transfers.Run(a.ctx) })
	a.jobs.Go(func() { a.Images.Run(a.ctx) })
	a.watch.followEvents()
	a.Cloud.Begin()
	return nil
}

// persist asks the hypervisor until it answers, or the agent ends. What it refuses for good is returned.
func (a recovery) persist(ask func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := ask()
		if err == nil || !farm.IsCode(err, hyper.CodeAway) && !farm.IsKind(err, farm.Unavailable) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		}
	}
}

// isKnown reports whether it is known what runs on the host.
func (a *Agent) isKnown() bool {
	select {
	case <-a.Cloud.Recovered():
		return true
	default:
		return false
	}
}

// unknown is why it is not known yet what runs on the host.
func (a *Agent) unknown() string {
	why := "libvirt has not answered yet"
	if d := a.hyper.Daemon(); d.Away != "" {
		why = d.Away
	}
	return "it is not known yet which VMs run on this host: " + why
}

// awaitKnown waits until it is known what runs on the host. It tells why it waits after a moment, and each time that
// changes.
func (a *Agent) awaitKnown(ctx context.Context, told func(why string)) error {
	last, tick := "", time.NewTicker(knownSoon)
	defer tick.Stop()
	for {
		select {
		case <-a.Cloud.Recovered():
			return nil
		case <-tick.C:
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		case <-ctx.Done():
			return &farm.Error{Kind: farm.Unavailable, Code: CodeRecovering, Message: a.unknown(),
				Hint: "try again in a moment; `grange host show` says what the agent waits for"}
		}
		if why := a.unknown(); told != nil && why != last {
			last = why
			told(why)
		}
	}
}

// known has a request wait a moment for it to be known what runs on the host.
func (a routes) known(do action) action {
	return func(w http.ResponseWriter, r *http.Request, c Caller) error {
		ctx, cancel := context.WithTimeout(r.Context(), knownWithin)
		defer cancel()
		if err := a.awaitKnown(ctx, nil); err != nil {
			return err
		}
		return do(w, r, c)
	}
}

// awaitTurn has a job wait until it is known what runs on the host, telling its caller why. sent reports whether the
// answer has begun: then an error is the caller's as an event.
func (a routes) awaitTurn(w http.ResponseWriter, r *http.Request, request *api.JobRequest) (sent bool, err error) {
	ctx, cancel := r.Context(), func() {}
	switch {
	case request.NoWait:
		ctx, cancel = context.WithTimeout(ctx, knownWithin)
	case request.Batch != "" && !request.Started:
		ctx, cancel = context.WithTimeout(ctx, a.config().Batch.WaitTimeout)
	}
	defer cancel()
	var send func(api.JobEvent) error
	err = a.awaitKnown(ctx, func(why string) {
		if send == nil {
			send = lines[api.JobEvent](w)
		}
		send(api.JobEvent{Event: api.EventWaiting, Message: why})
	})
	return send != nil, err
}

// refuse ends a job that has been waiting, with the reason for its caller.
func refuse(w http.ResponseWriter, request *api.JobRequest, err error) error {
	event := api.EventFailed
	if request.Started {
		event = api.EventLost
	}
	return lines[api.JobEvent](w)(api.JobEvent{Event: event, Problem: problemOf(err)})
}

// sweep ends what a hypervisor that died left half made. It may wait long for the hypervisor, and nobody waits for it.
func (a recovery) sweep() {
	var faults journal.Repeated
	tick := time.NewTicker(housekeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return
		}
		err := a.hyper.Sweep(a.ctx)
		if farm.IsCode(err, hyper.CodeAway) || a.ctx.Err() != nil {
			continue
		}
		faults.Log(a.log, "sweep", err)
	}
}

// watch follows libvirt and what becomes of machines.
type watch struct {
	*Agent
	watching sdnotify.Loop // watchDaemon
	full     sync.Mutex    // held while a VM ends for want of disk space
}

// watchDaemon logs how the hypervisor's daemon does, each time that changes.
func (a *watch) watchDaemon() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last hyper.Daemon
	for {
		a.watching.Turned(time.Now())
		now := a.hyper.Daemon()
		a.logDaemon(last, now)
		last = now
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return
		}
	}
}

func (a *watch) logDaemon(last, now hyper.Daemon) {
	switch {
	case now.Away != "" && last.Away == "":
		a.log.Warn("the hypervisor does not answer", "error", now.Away)
	case now.Away == "" && last.Away != "":
		a.log.Info("the hypervisor answers again", "after", time.Since(last.Since).Round(time.Second).String())
	}
	switch {
	case now.Slow != "" && now.Slow != last.Slow:
		a.log.Warn("the hypervisor is slow", "reason", now.Slow)
	case now.Slow == "" && last.Slow != "":
		a.log.Info("the hypervisor is not slow any more", "answer", now.Answer.Round(time.Millisecond).String())
	}
	before := map[string]bool{}
	for _, s := range last.Stuck {
		before[s.ID] = true
	}
	for _, s := range now.Stuck {
		if !before[s.ID] {
			a.log.Warn("the hypervisor keeps a machine that has ended; it holds nothing, and is tried again", "vm",
				s.Name, "error", s.Reason)
		}
		delete(before, s.ID)
	}
	for _, s := range last.Stuck {
		if before[s.ID] {
			a.log.Info("the hypervisor has let a machine go that was stuck", "vm", s.Name, "after",
				fmt.Sprintf("%.0f s", time.Since(s.Since).Seconds()))
		}
	}
}

// daemonView is how the hypervisor's daemon does, for people.
func daemonView(d hyper.Daemon) api.Hypervisor {
	v := api.Hypervisor{Away: d.Away, AnswerMilliseconds: milliseconds(d.Answer), Slow: d.Slow}
	if d.Away != "" {
		v.Since = &d.Since
	}
	for _, s := range d.Stuck {
		v.Stuck = append(v.Stuck, api.StuckVM{ID: s.ID, Name: s.Name, Reason: s.Reason, Since: s.Since,
			Attempts: s.Attempts})
	}
	return v
}

// followEvents takes what the hypervisor says of machines by itself to those who have them.
func (a *watch) followEvents() {
	events := a.hyper.Events(a.ctx)
	a.jobs.Go(func() {
		for e := range events {
			switch {
			case e.NoSpace:
				a.jobs.Go(func() { a.noSpace(e.ID) })
			case e.Watchdog:
				a.jobs.Go(func() { a.watchdog(e.ID) })
			case e.Rebooted:
				a.jobs.Go(func() { a.rebooted(e.ID) })
			default:
				a.Cloud.Ended(e.ID, e.End)
			}
		}
	})
}
