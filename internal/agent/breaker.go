package agent

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

// Gate closes and opens this host in its batch system. Closing or opening it twice is no error; what somebody else
// closed stays closed.
type Gate interface {
	Close(ctx context.Context, reason string) error
	Open(ctx context.Context) error
}

// breakers keep away what keeps failing to start.
type breakers struct {
	gate Gate // nil: no batch system to tell

	mu       sync.Mutex
	set      *breaker.Set
	pending  map[string]*breaker.Ticket // workers' VMs that run, and whose nodes have not been seen yet
	starting map[string]bool            // workers' VMs that boot; true: the node was given up meanwhile
	closed   bool                       // we closed the host in the batch system, also in an earlier life
	trying   bool                       // a VM of our own is the trial
}

const (
	healEvery  = 5 * time.Second
	gateLimit  = time.Minute
	trialLimit = 10 * time.Minute // for one VM of our own, room for it included
)

// guarded makes the VM, unless its image, its user or this host backs off, and remembers what became of it.
func (v *making) guarded() error {
	r := v.recordNow()
	image, user := v.image, r.User
	if r.Worker != nil { // they are the site's, whoever's name it asks in
		image, user = r.Worker.Image, ""
	}
	b := &v.agent.breakers
	b.mu.Lock()
	ticket, err := b.set.Admit(time.Now(), breaker.Start{Image: image, User: user, Own: v.own})
	if err == nil && r.Worker != nil {
		b.starting[v.id] = false
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	err = v.start()
	b.mu.Lock()
	defer b.mu.Unlock()
	blame, text := machine.BlameFor(err), ""
	if err != nil {
		text = machine.FirstLine(err)
	}
	if b.starting[v.id] && err != nil && blame == breaker.Nobody { // ended, for it took too long
		blame, text = breaker.Unclear, tooLate
	}
	delete(b.starting, v.id)
	switch {
	case err == nil && r.Worker != nil: // what its guest says is not enough
		b.pending[v.id] = ticket
	case err == nil:
		if b.set.Started(time.Now(), ticket) {
			v.log().Info("host healed")
		}
	case blame == breaker.Nobody:
		b.set.Left(ticket)
	default:
		for _, key := range b.set.Failed(time.Now(), ticket, blame, text) {
			v.agent.log.Error("backs off", "what", key.String(), "image", image, "user", user, "error", err)
		}
	}
	return err
}

// healing closes the host while VMs do not start on it, and opens it again.
type healing struct{ *Agent }

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

// admit lets a VM start unless its image, its owner or this host backs off.
func (b *breakers) admit(s breaker.Start) (*breaker.Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set.Admit(time.Now(), s)
}

// started notes that a start has worked, and reports whether the host has healed by it.
func (b *breakers) started(t *breaker.Ticket) (healed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set.Started(time.Now(), t)
}

// failed notes that a start came to nothing, and returns what backs off now.
func (b *breakers) failed(t *breaker.Ticket, blame breaker.Blame, text string) []breaker.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set.Failed(time.Now(), t, blame, text)
}
