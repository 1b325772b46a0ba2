package agent

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/hyper"
)

// power says whether a VM's CPUs run. Two may stop them: somebody by order (`grange vm suspend`, or the caller on
// SIGTSTP), and the silence of callers who promised beats. They run when neither does. A VM whose process is itself
// frozen or stopped, by its batch system, is left alone: it runs no instruction, its monitor does not answer, and
// libvirt would wait for it.
type power struct {
	hyper  machines
	frozen func(pid int) bool
	told   func()      // after each change; never under a lock of ours
	hears  func() bool // whether callers can reach us; nil: they can

	acting  sync.Mutex // held while the hypervisor is asked, so that orders do not cross
	mu      sync.Mutex
	machine *machine // nil: there is none whose CPUs run, or have been stopped
	kept
	last      time.Time // of the newest beat
	overruled bool      // somebody resumed the VM by order although its callers are silent: until the next beat
	paused    bool      // the hypervisor has stopped the CPUs
	saved     kept      // what powerFile says
	wake      chan struct{}
}

// wanted says why the CPUs are to be stopped; zero: they are to run.
type wanted struct {
	Suspended bool // by order
	Silent    bool // no caller beats
}

// kept is what the next agent must know.
type kept struct {
	wanted
	Expects bool // callers have promised beats
}

// machines is what power needs of the hypervisor.
type machines interface {
	Suspend(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
}

// heartbeatTimeout is how long callers may be silent before their VM is paused. They beat every second, and three beats
// may be late: on a busy host, or in a memory cgroup at its limit, a caller does not run on the second. A VM that
// pauses without need costs its job the time until the next beat, nothing else.
const heartbeatTimeout = 4 * time.Second

// powerTick is between two looks. Less than a beat, so that a stop is noticed within the timeout and a little more.
const powerTick = 500 * time.Millisecond

// powerFile is beside a VM's sockets: a VM that its callers' silence paused must go on with their next beat, and one
// that was suspended by order must not, whichever agent is there by then.
const powerFile = "power.json"

func newPower(h machines, frozen func(pid int) bool, told func()) *power {
	return &power{hyper: h, frozen: frozen, told: told, wake: make(chan struct{}, 1)}
}

// start lets a machine run its first instruction, as soon as its process is not frozen.
func (p *power) start(ctx context.Context, m *machine) error {
	for p.frozen(m.applied.PID) {
		select {
		case <-time.After(powerTick / 10):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.acting.Lock()
	defer p.acting.Unlock()
	if err := p.hyper.Resume(ctx, m.id); err != nil {
		return err
	}
	p.mu.Lock()
	p.machine, p.paused, p.last = m, false, time.Now()
	p.mu.Unlock()
	return nil
}

// takeOver goes on with a machine of an earlier agent. Its callers have all of their time to come again.
func (p *power) takeOver(m *machine, state hyper.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machine, p.paused, p.last = m, state == hyper.Paused, time.Now()
	text, err := os.ReadFile(m.path(powerFile))
	if err == nil {
		err = json.Unmarshal(text, &p.kept)
	}
	if err != nil {
		p.kept = kept{wanted: wanted{Suspended: p.paused}}
	}
	p.saved = p.kept
}

// drop forgets the machine: it has ended.
func (p *power) drop() {
	p.mu.Lock()
	p.machine, p.wanted, p.saved, p.overruled = nil, wanted{}, kept{}, false
	p.mu.Unlock()
}

// order suspends or resumes the VM because somebody said so. Where the VM has not run yet this decides whether it may.
func (p *power) order(ctx context.Context, suspend bool) error {
	p.mu.Lock()
	before := p.wanted
	p.Suspended = suspend
	if !suspend && p.Silent {
		p.Silent, p.overruled = false, true
	}
	p.mu.Unlock()
	err := p.settle(ctx)
	if err != nil {
		p.mu.Lock()
		p.wanted = before
		p.mu.Unlock()
	}
	p.told()
	return err
}

// expect reports that callers have promised beats, and beat that one came.
func (p *power) expect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.Expects {
		p.Expects, p.last = true, time.Now()
	}
}

// hold keeps a machine that is being made from running until somebody orders it to.
func (p *power) hold() {
	p.mu.Lock()
	p.Suspended = true
	p.mu.Unlock()
}

func (p *power) beat() {
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

// now returns why the CPUs are stopped; zero when they run.
func (p *power) now() wanted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wanted
}

// run looks for silence until ctx ends. attended reports whether the guest is up, for its boot has a time limit, and
// has a caller who could beat: a VM that is kept has none. failed is told what the hypervisor said against it; the next
// look tries again.
func (p *power) run(ctx context.Context, attended func() bool, failed func(error)) {
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
		if err := p.settle(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
	}
}

// listen notes whether the callers are silent, and reports whether that is news. The clock is the monotonic one:
// setting the host's time changes nothing.
func (p *power) listen(attended func() bool) (news bool) {
	silent := p.silent() && attended() // which takes locks of its own
	if silent && p.hears != nil && !p.hears() {
		return false // the silence is ours
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	silent = silent && time.Since(p.last) > heartbeatTimeout // a beat may have come meanwhile
	if silent == p.Silent {
		return false
	}
	p.Silent = silent
	return true
}

func (p *power) silent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Expects && p.machine != nil && !p.overruled && time.Since(p.last) > heartbeatTimeout
}

// settle makes the CPUs do what is wanted, if it is not done already and the process can hear it.
func (p *power) settle(ctx context.Context) error {
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
	if want == paused || p.frozen(m.applied.PID) {
		return nil
	}
	act := p.hyper.Resume
	if want {
		act = p.hyper.Suspend
	}
	if err := act(ctx, m.id); err != nil {
		return err
	}
	p.mu.Lock()
	p.paused = want
	p.mu.Unlock()
	return nil
}

// write replaces the file whole.
func (k kept) write(m *machine) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return atomicfile.Write(m.path(powerFile), text, 0o644)
}
