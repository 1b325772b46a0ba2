package agent

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

const (
	healEvery  = 5 * time.Second
	gateLimit  = time.Minute
	trialLimit = 10 * time.Minute // for one VM of our own, room for it included
)

// closedFile remembers over a restart that it was this agent that closed the host.
func (a healing) closedFile() string { return filepath.Join(a.config().StateDir, "host-closed") }

// heal keeps the batch system's view of this host as the breaker has it, and tries a VM of our own when the host may
// have healed: while it is closed no job comes that could show it.
func (a healing) heal() {
	b := &a.breakers
	if text, err := os.ReadFile(a.closedFile()); err == nil {
		b.mu.Lock()
		b.set.Reopen(time.Now(), string(text))
		b.closed = true
		b.mu.Unlock()
	}
	tick := time.NewTicker(healEvery)
	defer tick.Stop()
	for {
		a.healOnce(time.Now())
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return
		}
	}
}

func (a healing) healOnce(now time.Time) {
	b := &a.breakers
	b.mu.Lock()
	due := b.set.TrialDue(now) && !b.trying
	own, can := "", false
	if due {
		own, can = a.ownImage()
	}
	if due && !can && b.set.Untested(now) {
		a.log.Warn("the host's time to back off is over; there is no micro image to try it with, so jobs show " +
			"whether VMs start")
	}
	host, open := b.set.Host()
	closed := b.closed
	try := due && can
	b.trying = b.trying || try
	b.mu.Unlock()
	switch {
	case open && !closed:
		a.shut(host.Last)
	case !open && closed:
		a.reopen()
	}
	if try {
		a.jobs.Go(func() { a.tryHost(own) })
	}
}

// ownImage is the micro image that the agent tries its host with: one that was built here, of which no boot depends on
// anybody's disk.
func (a healing) ownImage() (name string, ok bool) {
	for _, name := range []string{"micro", a.config().DefaultImage} {
		if image, err := a.images.Get(name); err == nil && image.Kind == vmimage.Kernel {
			return name, true
		}
	}
	return "", false
}

// shut closes the host in the batch system. The file goes first: an agent that dies between would forget what it did.
func (a healing) shut(why string) {
	if a.breakers.gate == nil {
		return
	}
	if err := os.WriteFile(a.closedFile(), []byte(why), 0o600); err != nil {
		a.log.Error("close this host in its batch system", "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(a.ctx, gateLimit)
	defer cancel()
	if err := a.breakers.gate.Close(ctx, "VMs do not start here: "+why); err != nil {
		a.log.Error("close this host in its batch system", "error", err) // tried again
		return
	}
	a.setClosed(true)
	a.log.Warn("host closed in its batch system", "reason", why)
}

func (a healing) reopen() {
	ctx, cancel := context.WithTimeout(a.ctx, gateLimit)
	defer cancel()
	if a.breakers.gate != nil {
		err := a.breakers.gate.Open(ctx)
		// a conflict: somebody else closed it meanwhile, and opens it
		if err != nil && !farm.IsKind(err, farm.Conflict) {
			a.log.Error("open this host in its batch system", "error", err)
			return
		}
		a.log.Info("host opened in its batch system", "kept closed by others", err)
	}
	if err := os.Remove(a.closedFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		a.log.Error("forget that this host was closed", "error", err)
		return
	}
	a.setClosed(false)
}

func (a healing) setClosed(closed bool) {
	a.breakers.mu.Lock()
	defer a.breakers.mu.Unlock()
	a.breakers.closed = closed
}

// ownShape is enough for the micro image, and little enough to find room on a busy host.
var ownShape = farm.Shape{CPUs: 1, Memory: 256 * farm.MiB, Network: farm.NetworkNone}

// tryHost starts a VM of the agent's own that does nothing. guarded has it decide about the host.
func (a healing) tryHost(image string) {
	defer func() {
		a.breakers.mu.Lock()
		a.breakers.trying = false
		a.breakers.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(a.ctx, trialLimit)
	defer cancel()
	c, err := Caller{PID: os.Getpid(), UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}.withLimits()
	if err != nil {
		a.log.Error("try whether VMs start again", "error", err)
		return
	}
	r := &api.JobRequest{ID: api.NewID(), Argv: []string{"/bin/true"}, Dir: "/", Image: image, NoWait: true}
	j := newJob(a.Agent, r.ID, c)
	j.request = r
	j.record = record{Version: recordVersion, Job: r.ID, Created: time.Now(), Shape: ownShape, User: "grange",
		Name: vmName(r.ID), Command: "does this host work?", Caller: c}
	v := newVM(j)
	v.own = true
	if entered, err := a.enter(v, j); err != nil || !entered {
		a.log.Error("try whether VMs start again", "error", err)
		return
	}
	a.jobs.Go(j.run)
	j.follow(ctx, func(e api.JobEvent) error {
		switch e.Event {
		case api.EventRunning, api.EventEnded, api.EventFailed, api.EventLost:
			return http.ErrAbortHandler // enough seen: any error ends the following
		}
		return nil
	})
	j.cancel(errGivenBack)
	<-j.over
}

// backOffs are what backs off now, for people.
func (a healing) backOffs() []api.BackOff {
	b := &a.breakers
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []api.BackOff
	for _, s := range b.set.Open() {
		all = append(all, api.BackOff{Kind: string(s.Kind), Name: s.Name, Since: s.Since, Until: s.Until,
			Trial: s.Trial, Last: s.Last, Closed: s.Kind == breaker.Host && b.closed})
	}
	return all
}
