package agent

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
)

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
		_, changed := f.agent.Cloud.Observed()
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
	v := f.agent.Cloud.ByID(w.ID)
	if view := v.View(true); !strings.Contains(strings.Join(view.Applied.Warnings, " "), "read slowly") {
		t.Errorf("nobody sees that it floods: %q", view.Applied.Warnings)
	}
	w.Power = string(farm.PowerDeleted)
	f.want(w)
	f.seesState(w, farm.VMGone)
}
