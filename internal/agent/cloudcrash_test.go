package agent

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
)

// mortal is a hypervisor whose agent is killed at one of its calls: before the call does anything, or right behind it.
// Nothing that the agent does afterwards reaches the host.
type mortal struct {
	hyper.Hypervisor
	kill func()

	mu     sync.Mutex
	left   int // calls until the kill; below 0: there is none
	behind bool
	dead   bool
}

var errKilled = errors.New("the agent was killed")

// calls does one call, unless the agent is dead.
func (m *mortal) calls(do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errKilled
	}
	m.left--
	if m.dead = m.left == 0; !m.dead {
		return do()
	}
	if m.behind {
		do()
	}
	m.kill()
	return errKilled
}

func (m *mortal) Start(ctx context.Context, machine hyper.Machine) (a hyper.Applied, err error) {
	err = m.calls(func() error { a, err = m.Hypervisor.Start(ctx, machine); return err })
	return a, err
}

func (m *mortal) Resume(ctx context.Context, id string) error {
	return m.calls(func() error { return m.Hypervisor.Resume(ctx, id) })
}

func (m *mortal) Shutdown(ctx context.Context, id string) error {
	return m.calls(func() error { return m.Hypervisor.Shutdown(ctx, id) })
}

func (m *mortal) Stop(ctx context.Context, id string) error {
	return m.calls(func() error { return m.Hypervisor.Stop(ctx, id) })
}

func (m *mortal) Observe(ctx context.Context, id string) (o numa.Observed, err error) {
	err = m.calls(func() error { o, err = m.Hypervisor.Observe(ctx, id); return err })
	return o, err
}

func (m *mortal) List(ctx context.Context) (l []hyper.Found, err error) {
	err = m.calls(func() error { l, err = m.Hypervisor.List(ctx); return err })
	return l, err
}

func (m *mortal) Describe(ctx context.Context, id string) (text []byte, err error) {
	err = m.calls(func() error { text, err = m.Hypervisor.Describe(ctx, id); return err })
	return text, err
}

func (m *mortal) Fit(ctx context.Context, machine hyper.Machine, description []byte) (fitted []byte, err error) {
	err = m.calls(func() error { fitted, err = m.Hypervisor.Fit(ctx, machine, description); return err })
	return fitted, err
}

func (m *mortal) BeginMove(ctx context.Context, id string, fitted []byte) (cookie []byte, err error) {
	err = m.calls(func() error { cookie, err = m.Hypervisor.BeginMove(ctx, id, fitted); return err })
	return cookie, err
}

func (m *mortal) Await(ctx context.Context, machine hyper.Machine, fitted, cookie []byte,
	at hyper.MoveSockets) (a hyper.Applied, answer []byte, err error) {
	err = m.calls(func() error { a, answer, err = m.Hypervisor.Await(ctx, machine, fitted, cookie, at); return err })
	return a, answer, err
}

func (m *mortal) Send(ctx context.Context, id string, cookie []byte, at hyper.MoveSockets) (answer []byte, err error) {
	err = m.calls(func() error { answer, err = m.Hypervisor.Send(ctx, id, cookie, at); return err })
	return answer, err
}

func (m *mortal) Arrive(ctx context.Context, machine hyper.Machine, cookie []byte) error {
	return m.calls(func() error { return m.Hypervisor.Arrive(ctx, machine, cookie) })
}

func (m *mortal) CancelMove(ctx context.Context, id string) error {
	return m.calls(func() error { return m.Hypervisor.CancelMove(ctx, id) })
}

// TestCloudAgentIsKilled kills the agent before and behind each call of the hypervisor on the way from each state of a
// VM to each other, and has the next agent go on, without a server at first: the VM is there once, as it is wanted,
// with its disk; and nothing is left in the end.
func TestCloudAgentIsKilled(t *testing.T) {
	f := newFarmhouse(t)
	for name, c := range map[string]struct {
		from, to func(w *fleet.WantedVM)
		fresh    bool // the disk is made anew
	}{
		"made":    {to: func(*fleet.WantedVM) {}, fresh: true},
		"stopped": {to: func(w *fleet.WantedVM) { w.Power = string(farm.PowerOff) }},
		"started": {from: func(w *fleet.WantedVM) { w.Power = string(farm.PowerOff) },
			to: func(w *fleet.WantedVM) { w.Power = string(farm.PowerOn) }},
		"restarted": {to: func(w *fleet.WantedVM) { w.Boots++ }},
		"resized":   {to: func(w *fleet.WantedVM) { w.Builds++; w.Shape.Memory += uint64(32 * farm.MiB) }},
		"rebuilt":   {to: func(w *fleet.WantedVM) { w.Builds++; w.Fresh = w.Builds }, fresh: true},
		"deleted":   {to: func(w *fleet.WantedVM) { w.Power = string(farm.PowerDeleted) }},
	} {
		t.Run(name, func(t *testing.T) {
			f.T = t
			for call := 2; ; call++ { // the first is that of the agent's start
				killed := false
				for _, behind := range []bool{false, true} {
					killed = f.killedOnTheWay(name, c.from, c.to, c.fresh, call, behind) || killed
				}
				if !killed {
					t.Logf("%d calls", call-2)
					return
				}
			}
		})
	}
}

// killedOnTheWay reports whether the way was so long that the agent was killed on it.
func (f *farmhouse) killedOnTheWay(name string, from, to func(*fleet.WantedVM), fresh bool, call int,
	behind bool) bool {
	f.Helper()
	w := f.cloud()
	if name != "made" {
		f.want(w)
		f.settled(w)
		f.mark(w)
		if from != nil {
			from(w)
			f.want(w)
			f.settled(w)
		}
	}
	f.close()
	m := &mortal{left: call, behind: behind, kill: func() { f.stop(errShutdown) }}
	f.wrap = func(h hyper.Hypervisor) hyper.Hypervisor { m.Hypervisor = h; return m }
	f.open()
	to(w)
	f.want(w)
	killed := f.settledOr(w, f.agent.ctx.Done())
	f.close()
	f.wrap = nil
	f.open()
	f.want() // the server is late, and says nothing of the VM
	f.want(w)
	f.settled(w)
	running := 0
	if w.Power == string(farm.PowerOn) {
		running = 1
	}
	if n := f.machines(); n != running {
		f.Errorf("killed at call %d, behind it %v: %d machines, want %d", call, behind, n, running)
	}
	if w.Power != string(farm.PowerDeleted) {
		if f.marked(w) == fresh {
			f.Errorf("killed at call %d, behind it %v: the disk is the old one: %v", call, behind, !fresh)
		}
		w.Power = string(farm.PowerDeleted)
		f.want(w)
		f.settled(w)
	}
	f.nothingLeft()
	f.want()
	f.sees("nothing of it", w, func(o fleet.Observed) bool { return o.ID == "" })
	return killed
}

// settled waits until the VM is as it is wanted.
func (f *farmhouse) settled(w *fleet.WantedVM) {
	f.Helper()
	f.seesState(w, settledState[farm.Power(w.Power)])
}

var settledState = map[farm.Power]farm.VMState{farm.PowerOn: farm.VMRunning, farm.PowerOff: farm.VMStopped,
	farm.PowerDeleted: farm.VMGone}

// settledOr is settled, unless the agent dies before; it reports whether that happened.
func (f *farmhouse) settledOr(w *fleet.WantedVM, died <-chan struct{}) bool {
	f.Helper()
	state := settledState[farm.Power(w.Power)]
	for {
		vms, changed := f.agent.Cloud.Observed()
		for _, o := range vms {
			if o.ID == w.ID && o.State == string(state) &&
				(state != farm.VMRunning || o.Ready && o.Boots == w.Boots && o.Builds == w.Builds) {
				return false
			}
		}
		select {
		case <-changed:
		case <-died:
			return true
		}
	}
}
