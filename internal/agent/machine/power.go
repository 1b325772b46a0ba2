package machine

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/hyper"
)

// Power says whether a VM's CPUs run. Two may stop them: somebody by order (`grange vm suspend`, or the caller on
// SIGTSTP), and the silence of callers who promised heartbeats. They run when neither does. A VM whose process is
// itself frozen or stopped, by its batch system, is left alone: it runs no instruction, its monitor does not answer,
// and libvirt would wait for it.
type Power struct {
	hyper  machines
	frozen func(pid int) bool
	told   func() // after each change; never under a lock of ours
	// Resumed is told of each machine that goes on after a stop, before the order to do so is answered; nil: nobody is.
	Resumed   func(*Machine)
	Stopping  func(*Machine) // is told of each machine that is about to be stopped; nil: nobody is
	Reachable func() bool    // whether callers can reach us; nil: they can

	acting  sync.Mutex // held while the hypervisor is asked, so that orders do not cross
	mu      sync.Mutex
	machine *Machine // nil: there is none whose CPUs run, or have been stopped
	kept
	last      time.Time // of the newest heartbeat
	overruled bool      // somebody resumed the VM by order although its callers are silent: until the next heartbeat
	paused    bool      // the hypervisor has stopped the CPUs
	froze     bool      // its process was frozen at the last look
	saved     kept      // what powerFile says
	wake      chan struct{}
}

// Wanted says why the CPUs are to be stopped; zero: they are to run.
type Wanted struct {
	Suspended bool // by order
	Silent    bool // no caller sends heartbeats
}

// kept is what the next agent must know.
type kept struct {
	Wanted
	Expects bool // callers have promised heartbeats
}

// machines is what power needs of the hypervisor.
type machines interface {
	Suspend(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
}

// HeartbeatTimeout is how long callers may be silent before their VM is paused. They send one every second, and three
// may be late: on a busy host, or in a memory cgroup at its limit, a caller does not run on the second. A VM that
// pauses without need costs its job the time until the next heartbeat, nothing else.
const HeartbeatTimeout = 4 * time.Second

// powerTick is between two looks. Less than a heartbeat, so that a stop is noticed within the timeout and a little
// more.
const powerTick = 500 * time.Millisecond

// powerFile is beside a VM's sockets: a VM that its callers' silence paused must go on with their next heartbeat, and
// one that was suspended by order must not, whichever agent is there by then.
const powerFile = "power.json"

// NewPower is of a VM that has no machine yet. told is called after each change.
func NewPower(h machines, frozen func(pid int) bool, told func()) *Power {
	return &Power{hyper: h, frozen: frozen, told: told, wake: make(chan struct{}, 1)}
}

// Start lets a machine run its first instruction, as soon as its process is not frozen.
func (p *Power) Start(ctx context.Context, m *Machine) error {
	for p.frozen(m.Applied.PID) {
		select {
		case <-time.After(powerTick / 10):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.acting.Lock()
	defer p.acting.Unlock()
	if err := p.hyper.Resume(ctx, m.ID); err != nil {
		return err
	}
	p.mu.Lock()
	p.machine, p.paused, p.last = m, false, time.Now()
	p.mu.Unlock()
	return nil
}

// TakeOver goes on with a machine of an earlier agent. Its callers have all of their time to come again, but for those
// who were silent already: their silence ends with a heartbeat.
func (p *Power) TakeOver(m *Machine, state hyper.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machine, p.paused, p.last = m, state == hyper.Paused, time.Now()
	text, err := os.ReadFile(m.Path(powerFile))
	if err == nil {
		err = json.Unmarshal(text, &p.kept)
	}
	if err != nil {
		p.kept = kept{Wanted: Wanted{Suspended: p.paused}}
	}
	p.saved = p.kept
	if p.Silent {
		p.last = time.Time{}
	}
}

// Drop forgets the machine: it has ended.
func (p *Power) Drop() {
	p.mu.Lock()
	p.machine, p.Wanted, p.saved, p.overruled = nil, Wanted{}, kept{}, false
	p.mu.Unlock()
}

// Order suspends or resumes the VM because somebody said so. Where the VM has not run yet this decides whether it may.
func (p *Power) Order(ctx context.Context, suspend bool) error {
	p.mu.Lock()
	before := p.Wanted
	p.Suspended = suspend
	if !suspend && p.Silent {
		p.Silent, p.overruled = false, true
	}
	p.mu.Unlock()
	err := p.settle(ctx)
	if err != nil {
		p.mu.Lock()
		p.Wanted = before
		p.mu.Unlock()
	}
	p.told()
	return err
}

// Expect reports that callers have promised heartbeats.
func (p *Power) Expect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.Expects {
		p.Expects, p.last = true, time.Now()
	}
}

// Hold keeps a machine that is being made from running until somebody orders it to.
func (p *Power) Hold() {
	p.mu.Lock()
	p.Suspended = true
	p.mu.Unlock()
}

// Heartbeat reports that a heartbeat came.
func (p *Power) Heartbeat() {
	p.mu.Lock()
	p.last, p.overruled = time.Now(), false
	silent := p.Silent
	p.mu.Unlock()
	if silent {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// Now returns why the CPUs are stopped; zero when they run.
func (p *Power) Now() Wanted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Wanted
}

// Run looks for silence until ctx ends. attended reports whether the guest is up, for its boot has a time limit, and
// has a caller who could send one: a VM that is kept has none. failed is told what the hypervisor said against it; the
// next look tries again.
func (p *Power) Run(ctx context.Context, attended func() bool, failed func(error)) {
	tick := time.NewTicker(powerTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.wake:
		case <-ctx.Done():
			return
		}
		if p.listen(attended) {
			p.told()
		}
		if m := p.thawed(); m != nil && p.Resumed != nil {
			go p.Resumed(m)
		}
		if err := p.settle(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
	}
}

// thawed returns the machine if its process was frozen or stopped at the last look, and is not any more: its guest may
// have the time at which that began.
func (p *Power) thawed() *Machine {
	p.mu.Lock()
	m := p.machine
	p.mu.Unlock()
	frozen := m != nil && p.frozen(m.Applied.PID)
	p.mu.Lock()
	defer p.mu.Unlock()
	froze := p.froze
	p.froze = frozen
	if !froze || frozen || p.paused || p.machine != m {
		return nil
	}
	return m
}

// listen notes whether the callers are silent, and reports whether that is news. The clock is the monotonic one:
// setting the host's time changes nothing.
func (p *Power) listen(attended func() bool) (news bool) {
	silent := p.silent() && attended() // which takes locks of its own
	if silent && p.Reachable != nil && !p.Reachable() {
		return false // the silence is ours
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	silent = silent && time.Since(p.last) > HeartbeatTimeout // a heartbeat may have come meanwhile
	if silent == p.Silent {
		return false
	}
	p.Silent = silent
	return true
}

func (p *Power) silent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Expects && p.machine != nil && !p.overruled && time.Since(p.last) > HeartbeatTimeout
}

// settle makes the CPUs do what is wanted, if it is not done already and the process can hear it.
func (p *Power) settle(ctx context.Context) error {
	p.acting.Lock()
	defer p.acting.Unlock()
	p.mu.Lock()
	m, now, saved, paused := p.machine, p.kept, p.saved, p.paused
	p.mu.Unlock()
	if m == nil {
		return nil
	}
	if now != saved {
		if err := now.write(m); err != nil {
			return err
		}
		p.mu.Lock()
		p.saved = now
		p.mu.Unlock()
	}
	want := now.Suspended || now.Silent
	if want == paused || p.frozen(m.Applied.PID) {
		return nil
	}
	act := p.hyper.Resume
	if want {
		act = p.hyper.Suspend
	}
	if want && p.Stopping != nil {
		p.Stopping(m)
	}
	if err := act(ctx, m.ID); err != nil {
		if want && p.Resumed != nil {
			p.Resumed(m) // it runs on
		}
		return err
	}
	p.mu.Lock()
	p.paused = want
	p.mu.Unlock()
	if !want && p.Resumed != nil {
		p.Resumed(m)
	}
	return nil
}

// write replaces the file whole.
func (k kept) write(m *Machine) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return atomicfile.Write(m.Path(powerFile), text, 0o644)
}

// ResumeLimit is for the hypervisor to let a machine go on.
const ResumeLimit = 10 * time.Second

// GoOn continues a machine that the hypervisor has stopped by itself, unless somebody wants it stopped.
func (p *Power) GoOn(m *Machine) error {
	p.acting.Lock()
	defer p.acting.Unlock()
	if p.Now() != (Wanted{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), ResumeLimit)
	defer cancel()
	if err := p.hyper.Resume(ctx, m.ID); err != nil {
		return err
	}
	if p.Resumed != nil {
		p.Resumed(m)
	}
	return nil
}
