package machine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// heartbeat asks a guest again and again whether it still answers. A guest that does not say that it answers pings, as
// of an older grange-guest or of an image without one, is not asked.
type heartbeat struct {
	control  *control
	settings func() config.Heartbeat
	state    func(ctx context.Context) (hyper.State, error) // as the hypervisor has it
	// nobody lets it run: its process is frozen, or we paused it
	stopped func() bool
	changed func(unresponsive bool) // is called without locks; nil: nobody wants to know
	// wentOn is called, in a goroutine of its own, when its process was frozen or stopped and is not any more, and when
	// the host was suspended; nil: nobody wants to know
	wentOn func()

	changing sync.Mutex // is held until changed has returned: what it reports comes in order

	mu      sync.Mutex
	heard   time.Time // the last answer was; zero: there was none
	since   time.Time // it has not answered; zero: it has
	pinged  time.Time // the last ping was sent
	expired time.Time // its watchdog ran out; zero: it did not, or the guest has been responsive since
	stops   stops
	expires pace // bounds how often expired is set
}

// heartbeatTick is between two looks, and between two pings, of a guest with so much time to answer.
func heartbeatTick(timeout time.Duration) time.Duration { return min(5*time.Second, timeout/8) }

const (
	heartbeatOff  = 5 * time.Second // between looks at whether guests are to be asked
	stateLimit    = 5 * time.Second // for the hypervisor to say whether a VM runs
	pingLimit     = time.Second     // for a ping to be written
	pingsRepeated = 12              // ticks between pings of a guest that is known not to answer
)

func (h *heartbeat) run(ctx context.Context) {
	var p pulse
	for n := 0; ; n++ {
		s, tick := h.settings(), h.tick()
		select {
		case <-time.After(tick):
		case <-ctx.Done():
			return
		}
		h.stoppedLately(tick)
		if h.wentOn != nil && h.goesOn() {
			go h.wentOn()
		}
		answered, asked := h.control.pulse()
		if s.Timeout == 0 || !asked {
			p = pulse{}
			h.note(false, 0, false)
			continue
		}
		can := canAnswer
		if !answered {
			can = h.couldAnswer(ctx)
		}
		silent := p.look(readClocks(), tick, answered, can)
		h.note(answered, silent, silent >= s.Timeout)
		if can == canAnswer && (silent < s.Timeout || n%pingsRepeated == 0) {
			h.mu.Lock()
			h.pinged = time.Now()
			h.mu.Unlock()
			h.control.ping()
		}
	}
}

// note keeps what people see, and reports a change.
func (h *heartbeat) note(answered bool, silent time.Duration, unresponsive bool) {
	h.change(func(now time.Time) {
		if answered {
			h.heard = now
		}
		if answered && h.pinged.After(h.expired) {
			h.expired = time.Time{}
		}
		switch {
		case !unresponsive:
			h.since = time.Time{}
		case h.since.IsZero():
			h.since = now.Add(-silent)
		}
	})
}

// change has set change what people see, and reports it if the guest has become unresponsive, or is no longer.
func (h *heartbeat) change(set func(now time.Time)) {
	h.changing.Lock()
	defer h.changing.Unlock()
	was := h.IsUnresponsive()
	h.mu.Lock()
	set(time.Now())
	h.mu.Unlock()
	if is := h.IsUnresponsive(); is != was && h.changed != nil {
		h.changed(is)
	}
}

// show adds what is known to a view of the VM.
func (h *heartbeat) show(out *api.VM) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if heard := h.heard; !heard.IsZero() {
		out.Heard = &heard
	}
	since := h.since
	if expired := h.expired; !expired.IsZero() {
		out.Watchdog = &expired
		if since.IsZero() {
			since = expired
		}
	}
	if !since.IsZero() {
		out.Unresponsive = &since
	}
}

// IsUnresponsive reports whether the guest does not answer, or let its watchdog run out.
func (h *heartbeat) IsUnresponsive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.since.IsZero() || !h.expired.IsZero()
}

// ability is whether a guest could have answered.
type ability int

const (
	unknownAbility ability = iota // the hypervisor does not say whether the VM runs
	canAnswer
	cannotAnswer // its CPUs are stopped
)

func (h *heartbeat) couldAnswer(ctx context.Context) ability {
	if h.stopped() {
		return cannotAnswer
	}
	ctx, cancel := context.WithTimeout(ctx, stateLimit)
	defer cancel()
	switch state, err := h.state(ctx); {
	case err != nil:
		return unknownAbility
	case state == hyper.Running:
		return canAnswer
	}
	return cannotAnswer
}

// clocks are the two that setting the time does not move. One stands still while the host is suspended, the other goes
// on.
type clocks struct{ monotonic, boot time.Duration }

func readClocks() clocks {
	var monotonic, boot unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic)
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	return clocks{time.Duration(monotonic.Nano()), time.Duration(boot.Nano())}
}

// pulse counts for how long a guest could have answered and did not. What stops the guest, the host or us starts the
// count anew: a guest that goes on has all its time again. It is pure.
type pulse struct {
	last   clocks // of the last look; zero: there was none
	silent time.Duration
}

// jumped reports whether there was more between two looks than a tick: the host was suspended, or we were stopped.
func (c clocks) jumped(now clocks, tick time.Duration) bool {
	elapsed := now.monotonic - c.monotonic
	return elapsed > tick+late || now.boot-c.boot-elapsed > late
}

// late is how much later than planned a look may come. One that comes later was made by an agent that was itself
// stopped, or starved.
const late = 2 * time.Second

func (p *pulse) look(now clocks, tick time.Duration, answered bool, can ability) time.Duration {
	switch {
	case p.last == clocks{} || answered || can == cannotAnswer || p.last.jumped(now, tick):
		p.silent = 0
	case can == canAnswer:
		p.silent += now.monotonic - p.last.monotonic
	}
	p.last = now
	return p.silent
}

// tick is between two looks at the guest.
func (h *heartbeat) tick() time.Duration {
	if timeout := h.settings().Timeout; timeout > 0 {
		return heartbeatTick(timeout)
	}
	return heartbeatOff
}

// stoppedLately looks whether the VM is stopped, and reports whether it is, or was in the last tick.
func (h *heartbeat) stoppedLately(tick time.Duration) bool {
	stopped := h.stopped()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stops.look(readClocks(), tick, stopped)
}

// goesOn reports, once, that the VM goes on since the last looks.
func (h *heartbeat) goesOn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	goes := h.stops.goesOn
	h.stops.goesOn = false
	return goes
}

// stops remembers when a VM, its host or the agent was last stopped. The clock of a guest whose QEMU was frozen jumps
// when it goes on: its watchdog runs out at once, through no fault of the guest's. It is pure.
type stops struct {
	last clocks // of the last look; zero: there was none
	// by the monotonic clock: the last look at which it was or had been stopped; zero: there was none
	seen   time.Duration
	halted bool // it was stopped at the last look
	goesOn bool // it, or its host, was stopped at a look, and was not at the next
}

// look reports whether there was a stop in the last tick.
func (s *stops) look(now clocks, tick time.Duration, stopped bool) bool {
	if stopped || s.last != (clocks{}) && s.last.jumped(now, tick) {
		s.seen = now.monotonic
	}
	hostSlept := s.last != (clocks{}) && now.boot-s.last.boot-(now.monotonic-s.last.monotonic) > late
	s.goesOn = s.goesOn || !stopped && (s.halted || hostSlept)
	s.last, s.halted = now, stopped
	return s.seen != 0 && now.monotonic-s.seen <= tick+late
}

// Problem is the error of a guest that is unresponsive.
func (h *heartbeat) Problem(more string) *farm.Error {
	message := fmt.Sprintf("the guest has not answered for %v", h.settings().Timeout)
	h.mu.Lock()
	if h.since.IsZero() && !h.expired.IsZero() {
		message = "the guest did not reset its watchdog in time"
	}
	h.mu.Unlock()
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeGuestUnresponsive, Message: message + more,
		Hint: "its kernel may hang, or its memory be used up: see its console; [heartbeat] in the agent's " +
			"configuration says what is done about it"}
}

// Watchdog notes that the guest's watchdog ran out, unless the VM was stopped, which it reports.
func (h *heartbeat) Watchdog() (stopped bool) {
	if h.stoppedLately(h.tick()) {
		return true
	}
	h.change(func(now time.Time) {
		if h.expires.Wait(now) == 0 {
			h.expires.Take(now, 1)
			h.expired = now
		}
	})
	return false
}

// Rebooted notes that the guest begins anew.
func (h *heartbeat) Rebooted() { h.change(func(time.Time) { h.expired = time.Time{} }) }
