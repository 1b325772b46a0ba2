package agent

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
)

// TestPace spends at several times: a burst, then so much a second, and no more than a burst after a rest.
func TestPace(t *testing.T) {
	p, now := pace{burst: 3, rate: 0.5}, time.Now()
	for i := range 3 {
		if w := p.wait(now); w != 0 {
			t.Fatalf("waits %v for the %d. of a burst", w, i+1)
		}
		p.take(now, 1)
	}
	if w := p.wait(now); w <= 0 || w > 10*time.Millisecond {
		t.Errorf("an empty pace waits %v for anything at all", w)
	}
	p.take(now, 1)
	if w := p.wait(now); w < 2*time.Second || w > 2100*time.Millisecond {
		t.Errorf("waits %v for what was taken in advance, not 2 s", w)
	}
	if w := p.wait(now.Add(p.wait(now))); w != 0 {
		t.Errorf("has waited, and waits %v again", w)
	}
	p.wait(now.Add(time.Hour))
	if p.left != 3 {
		t.Errorf("%v are left after a rest, not a burst", p.left)
	}
}

// TestSlowReader reads lines of every length no faster than the pace, and ends with its context while it waits.
func TestSlowReader(t *testing.T) {
	for name, text := range map[string]string{"empty lines": "\n", "short lines": "{\"phase\":\"ready\"}\n",
		"no lines": strings.Repeat("x", 4096)} {
		ctx, cancel := context.WithCancel(t.Context())
		late := false
		p := pace{burst: 64 << 10, rate: 1} // what comes after the burst would take hours
		r := slowReader{io.LimitReader(endless(text), 64<<20), ctx, &p, func() { late = true; cancel() }}
		n, err := io.Copy(io.Discard, r)
		if most := int64(64<<10 + guestChunk); err == nil || !late || n > most {
			t.Errorf("%s: %d bytes were read, at most %d may be; %v", name, n, most, err)
		}
		if lines := n / int64(len(text)); text[len(text)-1] == '\n' && lines > (64<<10)/lineCost+guestChunk {
			t.Errorf("%s: %d lines were read", name, lines)
		}
		cancel()
	}
}

// endless repeats a text.
type endless string

func (e endless) Read(b []byte) (n int, err error) {
	for n < len(b) {
		n += copy(b[n:], e)
	}
	return n, nil
}

// TestHostileGuest has the guest of a cloud VM come up, run and fail as often as it can write lines: it gets its job a
// few times, and the server sees a few changes.
func TestHostileGuest(t *testing.T) {
	f := newFarmhouse(t)
	var jobs atomic.Int64
	listeners := make(chan net.Listener, 1)
	f.host.Refuse = func(m hyper.Machine) error {
		l, err := net.Listen("unix", m.Ports[0].Path)
		if err == nil {
			listeners <- l
		}
		return err
	}
	const rounds = 20_000
	sent := make(chan struct{})
	f.host.Guest = func(ctx context.Context, m hyper.Machine) {
		l := <-listeners
		defer l.Close()
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		go guest.Lines(conn, guest.MaxJobLine, func(c guest.ControlMessage) {
			if c.Job != nil {
				jobs.Add(1)
			}
		})
		ends := context.AfterFunc(ctx, func() { conn.Close() })
		defer ends()
		go func() {
			select {
			case <-time.After(3 * time.Second): // it is read slowly
			case <-ctx.Done():
			}
			close(sent)
		}()
		for i := 0; i < rounds && ctx.Err() == nil; i++ {
			for _, s := range []guest.State{{Phase: guest.Ready}, {Job: m.ID, Phase: guest.Running},
				{Job: m.ID, Phase: guest.Failed, Message: strings.Repeat("x", i%100)},
				{Job: m.ID, Phase: guest.Given}} {
				if guest.WriteLine(conn, s) != nil {
					return
				}
			}
		}
		<-ctx.Done()
	}
	w := f.cloud()
	began := time.Now()
	f.want(w)
	changes := 0
	for over := false; !over; {
		_, changed := f.agent.Observed()
		select {
		case <-changed:
			changes++
		case <-sent:
			over = true
		}
	}
	late := int64(time.Since(began).Seconds()/10) + 1
	if n := jobs.Load(); n == 0 || n > 6+late {
		t.Errorf("the guest was given its job %d times", n)
	}
	// some at its start, and each of its words is seen in two or three steps
	if most := 60 + 4*int(late); changes > most {
		t.Errorf("the server has seen %d changes, want at most %d", changes, most)
	}
	v := f.agent.fleetByID(w.ID)
	if view := v.view(admin); !strings.Contains(strings.Join(view.Applied.Warnings, " "), "read slowly") {
		t.Errorf("nobody sees that it floods: %q", view.Applied.Warnings)
	}
	w.Power = string(farm.PowerDeleted)
	f.want(w)
	f.seesState(w, farm.VMGone)
}
