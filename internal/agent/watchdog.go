package agent

import (
	"time"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/vmimage"
)

// A guest whose watchdog runs out is unresponsive, as one that does not answer: what is done about it is the same. It
// is responsive again when it answers, if it ever does, and when it reboots.

// hasWatchdog reports whether a VM gets a watchdog. Kernels of micro images have no driver for it.
func hasWatchdog(s config.Heartbeat, image vmimage.Image) bool {
	return s.Watchdog && image.Kind == vmimage.Disk
}

// watchdog deals with the watchdog of a machine, which ran out.
func (a *Agent) watchdog(machine string) {
	m := a.machineOf(machine)
	if m == nil || !a.config().Heartbeat.Watchdog {
		return
	}
	if m.pulse.stoppedLately(m.pulse.tick()) {
		a.log.Info("watchdog of a vm ran out because the vm was stopped", "vm", m.name)
		return
	}
	m.pulse.change(func(now time.Time) {
		if m.pulse.expires.wait(now) == 0 {
			m.pulse.expires.take(now, 1)
			m.pulse.expired = now
		}
	})
}

// rebooted deals with a machine whose guest begins anew.
func (a *Agent) rebooted(machine string) {
	if m := a.machineOf(machine); m != nil {
		m.pulse.change(func(time.Time) { m.pulse.expired = time.Time{} })
	}
}

// machineOf returns the machine with an ID; nil: there is none.
func (a *Agent) machineOf(id string) *machine {
	if v := a.fleetByID(id); v != nil {
		return v.current()
	}
	for _, v := range a.all() {
		if m := v.current(); m != nil && m.id == id {
			return m
		}
	}
	return nil
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

// stops remembers when a VM, its host or the agent was last stopped. The clock of a guest whose QEMU was frozen jumps
// when it goes on: its watchdog runs out at once, through no fault of the guest's. It is pure.
type stops struct {
	last clocks // of the last look; zero: there was none
	// by the monotonic clock: the last look at which it was or had been stopped; zero: there was none
	seen time.Duration
}

// look reports whether there was a stop in the last tick.
func (s *stops) look(now clocks, tick time.Duration, stopped bool) bool {
	if stopped || s.last != (clocks{}) && s.last.jumped(now, tick) {
		s.seen = now.monotonic
	}
	s.last = now
	return s.seen != 0 && now.monotonic-s.seen <= tick+late
}
