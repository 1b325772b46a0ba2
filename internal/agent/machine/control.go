package machine

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
)

// control is our end of a VM's control port. QEMU listens on the socket as long as it lives, so a refused connection is
// the proof that the VM has gone, whatever libvirt says or does not say.
type control struct {
	path  string
	fresh bool // the VM has not run yet: its guest will speak first, and need not be asked

	reading pace                 // of what the guest sends; run's alone
	Flood   flood                // of what it sends beyond that
	views   func(farm.GuestView) // takes what it reports of its machine; nil: nobody wants to know

	setting sync.Mutex // one question about the clock at a time
	writing sync.Mutex // one line at a time
	mu      sync.Mutex
	changed chan struct{} // closed and made anew at every change
	conn    net.Conn
	heard   bool                   // the guest has told all that it knows of jobs
	comes   int                    // how often it has: more than once when it was asked again, or has rebooted
	states  map[string]guest.State // of the jobs that we know, by ID
	gone    bool
	pings   bool   // the guest answers pings
	roots   bool   // the guest takes a container's root
	disks   bool   // it takes disks beside its scratch disk
	offers  bool   // it takes services of the host
	shares  bool   // it mounts virtiofs
	sftp    bool   // it mounts by sshfs
	ip6     bool   // it sets up IPv6
	pinged  uint64 // number of the newest ping
	ponged  bool   // it is answered
	clock   clock

	loads loads // that the guest reports with its answers
}

func newControl(path string) *control {
	return &control{path: path, reading: pace{burst: guestBurst, rate: guestRate}, changed: make(chan struct{}),
		states: map[string]guest.State{}}
}

// TakesDisks reports whether the guest that is up mounts more than one scratch disk, and swaps.
func (c *control) TakesDisks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.disks
}

// takesIPv6 reports whether the guest that is up takes an IPv6 address.
func (c *control) takesIPv6() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ip6
}

// TakesBinds reports whether the guest that is up mounts what comes by a gateway.
func (c *control) TakesBinds(by farm.Gateway) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return by == farm.FUSE || by == farm.Virtiofs && c.shares || by == farm.SFTP && c.sftp
}

// TakesServices reports whether the guest that is up takes services of its host.
func (c *control) TakesServices() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offers
}

// TakesRoots reports whether the guest that is up can make a container's file system its root.
func (c *control) TakesRoots() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roots
}

// Know makes the guest's word on a job count: of other jobs it may tell what it likes.
func (c *control) Know(job string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.states[job]; !ok {
		c.states[job] = guest.State{}
	}
}

// run keeps the connection until the VM has gone or ctx ends.
func (c *control) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, c.hangUp)
	defer stop()
	for ctx.Err() == nil {
		conn, err := net.DialTimeout("unix", c.path, 10*time.Second)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			c.update(func() { c.gone = true })
			return
		}
		if err == nil {
			c.talk(ctx, conn)
		}
		select { // a broken connection of a living QEMU is rare
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *control) talk(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	c.update(func() { c.conn = conn })
	if ctx.Err() != nil || !c.fresh && guest.WriteLine(conn, guest.ControlMessage{Hello: true}) != nil {
		return
	}
	c.fresh = false
	lines := slowReader{conn, ctx, &c.reading, func() { c.Flood.Waited(time.Now()) }}
	guest.Lines(lines, guest.MaxGuestLine, func(s guest.State) {
		if s.View != nil && c.views != nil {
			c.views(*s.View)
		}
		c.update(func() { c.take(s) })
	})
}

// take keeps what the guest says, if it makes sense: it may be hostile.
func (c *control) take(s guest.State) {
	switch {
	case s.Pong != 0:
		if s.Load != nil {
			c.loads.take(time.Now(), *s.Load)
		}
		c.ponged = c.ponged || s.Pong == c.pinged
		return
	case s.Clock != nil:
		c.clock.take(*s.Clock)
		return
	case s.Job == "" && s.Phase == guest.Leaving:
		c.pings = false
		return
	case s.Job == "" && s.Phase == guest.Ready:
		c.clock.holds = s.Holds
		c.heard, c.pings, c.roots, c.disks, c.shares = true, s.Pings, s.Roots, s.Disks, s.Shares
		c.sftp = s.SFTP
		c.ip6 = s.IPv6
		c.offers = s.Services
		c.comes++
		if c.clock.takes = s.Clocks; c.clock.due && s.Clocks {
			c.clock.due = false
			go c.SetClock(context.Background()) // which waits for answers: they come by who called us
		}
		return
	}
	s.Message = s.Message[:min(len(s.Message), MaxReason)]
	if old, ok := c.states[s.Job]; ok && s.Phase != "" && old.Phase != guest.Gone &&
		(s.Phase != guest.Exited || s.Exit != nil) {
		c.states[s.Job] = s
	}
}

// ping has the guest answer, which pulse reports. One that has not answered the last one is sent the same again. A ping
// never waits: for a job that is being written just now, or for a guest that reads nothing.
func (c *control) ping() {
	c.mu.Lock()
	if c.ponged || c.pinged == 0 {
		c.pinged, c.ponged = c.pinged+1, false
	}
	number, conn := c.pinged, c.conn
	c.mu.Unlock()
	if conn == nil || !c.writing.TryLock() {
		return
	}
	defer c.writing.Unlock()
	defer conn.SetWriteDeadline(time.Time{})
	conn.SetWriteDeadline(time.Now().Add(pingLimit))
	guest.WriteLine(conn, guest.ControlMessage{Ping: number}) // what is not written is not answered
}

// pulse reports whether the newest ping is answered, and whether the guest answers pings at all.
func (c *control) pulse() (answered, pings bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ponged, c.pings
}

// stateLocked is what is known of a job: nothing before the guest has spoken, and Ready when it does not know the job.
func (c *control) stateLocked(job string) guest.State {
	s := c.states[job]
	if s.Phase == "" && c.heard {
		s.Phase = guest.Ready
	}
	return s
}

func (c *control) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
	}
}

func (c *control) update(change func()) {
	c.mu.Lock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
}

// Give hands a job over. The guest starts a job once: giving it again is harmless.
func (c *control) Give(ctx context.Context, j *guest.Job) error {
	c.Know(j.ID)
	carried := *j
	carried.Encode()
	return c.say(ctx, guest.ControlMessage{Job: &carried})
}

func (c *control) say(ctx context.Context, m guest.ControlMessage) error {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn == nil {
		return errNotConnected
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // a guest that does not read shall not hold us
	defer stop()
	c.writing.Lock()
	defer c.writing.Unlock()
	return guest.WriteLine(conn, m)
}

var errNotConnected = errors.New("the VM is not connected")

// endTimeout is how long a guest has to end what is left of a job. A sound one needs milliseconds.
const endTimeout = 10 * time.Second

// End has the guest end what is left of a job, and waits until it has. A guest whose CPUs are stopped does so when they
// go on.
func (c *control) End(ctx context.Context, job string, suspended bool) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for {
		err := c.say(ctx, guest.ControlMessage{End: job})
		if err == nil && suspended {
			return
		}
		again, stop := context.WithTimeout(ctx, time.Second) // the connection may have been cut behind the order
		_, err = c.Wait(again, job, func(s guest.State) bool { return s.Phase == guest.Gone || s.Phase == guest.Ready })
		stop()
		if err == nil || errors.Is(err, ErrGone) || ctx.Err() != nil {
			return
		}
	}
}

// ErrGone is the end of waiting for the guest of a VM that has ended.
var ErrGone = errors.New("the VM has ended")

// Phase is the guest's own: "" until it has spoken, Ready from then on.
func (c *control) Phase() guest.Phase { return c.PhaseOf("") }

// PhaseOf is that of a job.
func (c *control) PhaseOf(job string) guest.Phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stateLocked(job).Phase
}

// HasGone reports whether the VM has ended, as far as its control port tells.
func (c *control) HasGone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// Wait blocks until the state of a job satisfies want; errGone when the VM ends first.
func (c *control) Wait(ctx context.Context, job string, want func(guest.State) bool) (guest.State, error) {
	for {
		now := c.Now(job)
		switch {
		case want(now.State):
			return now.State, nil
		case now.Gone:
			return now.State, ErrGone
		}
		select {
		case <-now.Changed:
		case <-ctx.Done():
			return now.State, context.Cause(ctx)
		}
	}
}

// Heard is what is known of a guest and of one of its jobs.
type Heard struct {
	State   guest.State
	Comes   int             // how often it has said all that it knows
	Gone    bool            // the VM has
	Changed <-chan struct{} // closed when something of this changes
}

// Now is what is known at this moment.
func (c *control) Now(job string) Heard {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Heard{c.stateLocked(job), c.comes, c.gone, c.changed}
}
