package hypertest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// pair is a machine that runs, and the host that it is to move to.
type pair struct {
	*suite
	m, there hyper.Machine // at the source, and as it will be at the target
	target   hyper.Hypervisor
	from, to hyper.MoveSockets
}

// pair starts the machine.
func (s *suite) pair() *pair {
	s.Helper()
	target, adapt := s.d.Other(s.T)
	p := &pair{suite: s, m: s.d.Machine(s.T), target: target}
	p.m.Display = displayOf(s.T, p.m.UID)
	p.there = adapt(p.m)
	p.there.Display = displayOf(s.T, p.there.UID)
	p.from, p.to = Sockets(s.T, p.m.UID), Sockets(s.T, p.there.UID)
	Carry(s.T, p.from, p.to)
	s.start(p.m)
	s.must(s.h.Resume(s.ctx, p.m.ID))
	s.Cleanup(func() {
		if err := target.Stop(context.Background(), p.m.ID); err != nil {
			s.Error(err)
		}
	})
	return p
}

// Sockets are in a directory that QEMU's user alone may enter.
func Sockets(t *testing.T, uid uint32) hyper.MoveSockets {
	t.Helper()
	dir, err := os.MkdirTemp("", "mv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if uid != 0 && os.Getuid() == 0 {
		if err := os.Chown(dir, int(uid), -1); err != nil {
			t.Fatal(err)
		}
	}
	return hyper.MoveSockets{Memory: filepath.Join(dir, "memory"), Disks: filepath.Join(dir, "disks")}
}

// Carry takes what is sent to sockets of one side to those of the other, as the agents do.
func Carry(t *testing.T, from, to hyper.MoveSockets) {
	t.Helper()
	carry(t, from.Memory, to.Memory)
	carry(t, from.Disks, to.Disks)
}

func carry(t *testing.T, from, to string) {
	t.Helper()
	l, err := net.Listen("unix", from)
	if err == nil {
		err = os.Chmod(from, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("unix", to)
			if err != nil {
				a.Close()
				continue
			}
			both := func(to, from net.Conn) {
				io.Copy(to, from)
				to.(*net.UnixConn).CloseWrite()
			}
			go both(a, b)
			go both(b, a)
		}
	}()
}

// prepare goes as far as the target waits.
func (p *pair) prepare() (cookie []byte) {
	p.Helper()
	described, err := p.h.Describe(p.ctx, p.m.ID)
	p.must(err)
	fitted, err := p.target.Fit(p.ctx, p.there, described)
	p.must(err)
	if cookie, err = p.h.BeginMove(p.ctx, p.m.ID, fitted); err != nil {
		p.Fatal(err)
	}
	applied, cookie, err := p.target.Await(p.ctx, p.there, fitted, cookie, p.to)
	p.must(err)
	if applied.Accelerator == "" {
		p.Errorf("Await says %+v, not what it applied", applied)
	}
	return cookie
}

// arrive goes as far as the machine is whole on both sides, and runs on neither.
func (p *pair) arrive() {
	p.Helper()
	cookie, err := p.h.Send(p.ctx, p.m.ID, p.prepare(), p.from)
	p.must(err)
	p.must(p.target.Arrive(p.ctx, p.there, cookie))
	p.is(p.h, hyper.Paused)
	p.is(p.target, hyper.Paused)
}

func (p *pair) is(h hyper.Hypervisor, want hyper.State) {
	p.Helper()
	var state hyper.State
	var err error
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if state, err = h.State(p.ctx, p.m.ID); err == nil && state == want {
			return
		}
	}
	where := "source"
	if h == p.target {
		where = "target"
	}
	p.Fatalf("at the %s the machine is %s (%v), want %s", where, state, err, want)
}

func (s *suite) move() {
	p := s.pair()
	p.arrive()
	o, err := p.target.Observe(p.ctx, p.m.ID)
	p.must(err)
	if len(o.VCPUs) != len(p.there.Plan.VCPUs) || !o.VCPUs[0].Equal(p.there.Plan.VCPUs[0]) {
		p.Errorf("at the target its vCPUs may run on %v, planned %v", o.VCPUs, p.there.Plan.VCPUs)
	}
	p.must(p.h.Stop(p.ctx, p.m.ID))
	p.must(p.target.Resume(p.ctx, p.m.ID))
	p.is(p.target, hyper.Running)
	p.is(p.h, hyper.Gone)
	found, err := p.target.List(p.ctx)
	p.must(err)
	if len(found) != 1 || string(found[0].Metadata) != string(p.there.Metadata) || found[0].Name != p.there.Name {
		p.Errorf("the target lists %+v", found)
	}
}

// moveCancelled has each step of a move be its last.
func (s *suite) moveCancelled() {
	p := s.pair()
	for name, step := range map[string]func(){"nothing": func() {}, "awaited": func() { p.prepare() },
		"arrived": p.arrive} {
		step()
		p.must(p.target.Stop(p.ctx, p.m.ID))
		if err := p.h.CancelMove(p.ctx, p.m.ID); err != nil {
			p.Fatalf("cancelled after %s: %v", name, err)
		}
		p.is(p.h, hyper.Running)
		p.is(p.target, hyper.Gone)
	}
	p.must(p.h.Stop(p.ctx, p.m.ID))
	p.wantKind(p.h.CancelMove(p.ctx, p.m.ID), farm.NotFound)
}

// moveForgotten has the agents die: what was begun is cancelled by those that come after them.
func (s *suite) moveForgotten() {
	p := s.pair()
	p.arrive()
	next := p.d.Open(p.T)
	p.must(p.target.Stop(p.ctx, p.m.ID))
	p.must(next.CancelMove(p.ctx, p.m.ID))
	p.is(next, hyper.Running)
	p.must(p.h.Stop(p.ctx, p.m.ID))
}

// moveBroken loses the target in the middle of it: the machine runs on, and the move may be tried again.
func (s *suite) moveBroken() {
	p := s.pair()
	cookie := p.prepare()
	p.must(p.target.Stop(p.ctx, p.m.ID))
	if _, err := p.h.Send(p.ctx, p.m.ID, cookie, p.from); err == nil {
		p.Error("sent to a machine that is gone")
	}
	p.must(p.h.CancelMove(p.ctx, p.m.ID))
	p.is(p.h, hyper.Running)
	p.arrive()
	p.must(p.h.Stop(p.ctx, p.m.ID))
	p.must(p.target.Resume(p.ctx, p.m.ID))
	p.is(p.target, hyper.Running)
}

// moveDaemon has the source's daemon be killed when the machine has arrived: it runs on neither side until somebody
// decides.
func (s *suite) moveDaemon() {
	p := s.pair()
	p.arrive()
	p.d.Kill(p.T)()
	p.is(p.h, hyper.Paused)
	p.must(p.target.Stop(p.ctx, p.m.ID))
	var err error
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = p.h.CancelMove(p.ctx, p.m.ID); err == nil {
			break
		}
	}
	p.must(err)
	p.is(p.h, hyper.Running)
	p.must(p.h.Stop(p.ctx, p.m.ID))
}

// moveOther describes another machine than the one that is to be made.
func (s *suite) moveOther() {
	p := s.pair()
	described, err := p.h.Describe(p.ctx, p.m.ID)
	p.must(err)
	other := p.there
	other.ID = p.d.Machine(p.T).ID
	other.Ports = append(other.Ports, hyper.Port{Name: "another", Path: other.Console + ".another"})
	for name, m := range map[string]hyper.Machine{"another ID": other,
		"another port": {ID: p.there.ID, Name: p.there.Name, Plan: p.there.Plan, Boot: p.there.Boot,
			Disks: p.there.Disks, Ports: other.Ports}} {
		own := new(farm.Error)
		if _, err := p.target.Fit(p.ctx, m, described); !errors.As(err, &own) || own.Code != hyper.CodeDevices {
			p.Errorf("%s: %v, want %s", name, err, hyper.CodeDevices)
		}
	}
	p.must(p.h.Stop(p.ctx, p.m.ID))
}
