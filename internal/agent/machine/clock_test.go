package machine

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

// clockGuest is a guest whose clock is off, and that answers as slowly as an emulated one on a busy host.
type clockGuest struct {
	older bool // takes no steps
	delay func(n int) time.Duration
	drops int // questions that it does not answer at first

	mu    sync.Mutex
	off   time.Duration
	asked int
	did   []string // "hold", "step" and "release", in order
}

// serve answers at a control port until the test ends.
func (g *clockGuest) serve(t *testing.T) *control {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go guest.Lines(conn, guest.MaxJobLine, func(m guest.ControlMessage) { g.handle(conn, m) })
		}
	}()
	return newControl(path)
}

func (g *clockGuest) handle(conn net.Conn, m guest.ControlMessage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.Hello {
		guest.WriteLine(conn, guest.State{Phase: guest.Ready, Clocks: !g.older, Holds: !g.older})
	}
	if m.Hold {
		g.did = append(g.did, "hold")
	}
	if m.Release {
		g.did = append(g.did, "release")
	}
	if m.Clock == nil {
		return
	}
	if m.Clock.Step != 0 {
		g.did = append(g.did, "step")
	}
	if g.asked++; g.delay != nil {
		time.Sleep(g.delay(g.asked))
	}
	g.off += m.Clock.Step
	now := time.Now().Add(g.off).UnixNano()
	if g.asked > g.drops {
		guest.WriteLine(conn, guest.State{Clock: &guest.Clock{Number: m.Clock.Number, Now: now}})
	}
}

func (g *clockGuest) is() (off time.Duration, asked int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.off, g.asked
}

func TestSetClock(t *testing.T) {
	slow := func(n int) time.Duration { return time.Duration(40+n%3*20) * time.Millisecond }
	for name, g := range map[string]*clockGuest{
		"right":              {},
		"behind":             {off: -5 * time.Second},
		"hours behind":       {off: -9 * time.Hour},
		"ahead":              {off: 300 * time.Millisecond},
		"slow":               {off: -5 * time.Second, delay: slow},
		"questions are lost": {off: -5 * time.Second, drops: 2},
		"the step's answer is lost": {off: -5 * time.Second, delay: func(n int) time.Duration {
			if n == 2 {
				return clockWait * 3 / 2
			}
			return 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := g.serve(t)
			go c.run(ctx)
			if _, err := c.Wait(ctx, "", func(s guest.State) bool { return s.Phase == guest.Ready }); err != nil {
				t.Fatal(err)
			}
			if err := c.SetClock(ctx); err != nil {
				t.Fatal(err)
			}
			if off, asked := g.is(); off.Abs() > 60*time.Millisecond || asked == 0 {
				t.Errorf("the clock is off by %v after %d questions", off, asked)
			}
		})
	}
}

// TestHold: a guest holds before hold returns, and lets go when its clock is set.
func TestHold(t *testing.T) {
	g := &clockGuest{}
	c := g.serve(t)
	go c.run(t.Context())
	if _, err := c.Wait(t.Context(), "", func(s guest.State) bool { return s.Phase == guest.Ready }); err != nil {
		t.Fatal(err)
	}
	c.hold()
	g.mu.Lock()
	g.off = -time.Hour
	if !slices.Equal(g.did, []string{"hold"}) {
		t.Errorf("it did %q", g.did)
	}
	g.mu.Unlock()
	if err := c.SetClock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for done := false; !done; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		done = len(g.did) == 3
		if done && !slices.Equal(g.did, []string{"hold", "step", "release"}) {
			t.Errorf("it did %q", g.did)
		}
		g.mu.Unlock()
	}
}

// TestSetClockOlder: an older guest is not asked, and holds up nothing.
func TestSetClockOlder(t *testing.T) {
	g := &clockGuest{older: true, off: -time.Hour}
	c := g.serve(t)
	go c.run(t.Context())
	if _, err := c.Wait(t.Context(), "", func(s guest.State) bool { return s.Phase == guest.Ready }); err != nil {
		t.Fatal(err)
	}
	if err := c.SetClock(t.Context()); err != nil {
		t.Error(err)
	}
	if _, asked := g.is(); asked != 0 {
		t.Errorf("%d questions", asked)
	}
}

// TestSetClockLater: a guest that is not up yet has its clock set when it is.
func TestSetClockLater(t *testing.T) {
	g := &clockGuest{off: -time.Hour}
	c := g.serve(t)
	if err := c.SetClock(t.Context()); err != nil {
		t.Fatal(err)
	}
	go c.run(t.Context())
	for off, _ := g.is(); off.Abs() > 60*time.Millisecond; off, _ = g.is() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("the clock is off by %v", off)
		}
	}
}

// TestSetClockSilent: a guest that does not answer does not hold up for long.
func TestSetClockSilent(t *testing.T) {
	t.Parallel()
	g := &clockGuest{drops: 1 << 20}
	c := g.serve(t)
	go c.run(t.Context())
	if _, err := c.Wait(t.Context(), "", func(s guest.State) bool { return s.Phase == guest.Ready }); err != nil {
		t.Fatal(err)
	}
	if err := c.SetClock(t.Context()); err == nil {
		t.Error("a silent guest has the right time")
	}
}
