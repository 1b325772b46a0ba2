package agent

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

// control is our end of a VM's control port. QEMU listens on the socket as long as it lives, so a refused connection is the
// proof that the VM has gone, whatever libvirt says or does not say.
type control struct {
	path  string
	fresh bool // the VM has not run yet: its guest will speak first, and need not be asked

	mu      sync.Mutex
	changed chan struct{} // closed and made anew at every change
	conn    net.Conn
	state   guest.State
	gone    bool
}

func newControl(path string) *control { return &control{path: path, changed: make(chan struct{})} }

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
	guest.Lines(conn, guest.MaxGuestLine, func(s guest.State) {
		if s.Phase != "" && (s.Phase != guest.Exited || s.Exit != nil) { // whatever a hostile guest says
			c.update(func() { c.state = s })
		}
	})
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

// give hands the job over. The guest takes one job only: giving it again is harmless.
func (c *control) give(ctx context.Context, j *guest.Job) error {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // a guest that does not read shall not hold us
	defer stop()
	return guest.WriteLine(conn, guest.ControlMessage{Job: j})
}

var errGone = errors.New("the VM has ended")

func (c *control) phase() guest.Phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Phase
}

// wait blocks until the guest's state satisfies want; errGone when the VM ends first.
func (c *control) wait(ctx context.Context, want func(guest.State) bool) (guest.State, error) {
	for {
		c.mu.Lock()
		state, gone, changed := c.state, c.gone, c.changed
		c.mu.Unlock()
		switch {
		case want(state):
			return state, nil
		case gone:
			return state, errGone
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return state, context.Cause(ctx)
		}
	}
}
