package machine

import (
	"testing"
	"time"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/vmimage"
)

// TestPulse walks a guest that never answers through what may happen to it, to its host and to the agent. Each look is
// a tick after the one before, but for what it says.
func TestPulse(t *testing.T) {
	const tick = 5 * time.Second
	type look struct {
		more, asleep time.Duration // since the look before: beyond a tick, and while the host was suspended
		answered     bool
		can          ability
	}
	still := look{can: canAnswer}
	for name, c := range map[string]struct {
		looks []look
		want  time.Duration
	}{
		"never answers":          {[]look{still, still, still}, 3 * tick},
		"answers":                {[]look{still, still, {answered: true, can: canAnswer}, still}, tick},
		"is paused":              {[]look{still, still, {can: cannotAnswer}, {can: cannotAnswer}}, 0},
		"goes on after a pause":  {[]look{still, still, {can: cannotAnswer}, still}, tick},
		"nobody knows":           {[]look{still, still, {can: unknownAbility}, {can: unknownAbility}}, 2 * tick},
		"the host was suspended": {[]look{still, still, {asleep: time.Hour, can: canAnswer}}, 0},
		"the agent was stopped":  {[]look{still, still, {more: time.Minute, can: canAnswer}}, 0},
		"the agent is always late": {[]look{{more: 3 * time.Second, can: canAnswer},
			{more: 3 * time.Second, can: canAnswer}}, 0},
		"the agent is a bit late":   {[]look{{more: time.Second, can: canAnswer}}, tick + time.Second},
		"suspended, then it is not": {[]look{still, {asleep: time.Hour, can: canAnswer}, still, still}, 2 * tick},
	} {
		now := clocks{monotonic: time.Hour, boot: 2 * time.Hour} // it has been suspended before
		var p pulse
		silent := p.look(now, tick, false, canAnswer)
		for _, l := range c.looks {
			now.monotonic += tick + l.more
			now.boot += tick + l.more + l.asleep
			silent = p.look(now, tick, l.answered, l.can)
		}
		if silent != c.want {
			t.Errorf("%s: silent for %v, want %v", name, silent, c.want)
		}
	}
}

func TestHasWatchdog(t *testing.T) {
	for _, c := range []struct {
		on   bool
		kind vmimage.Kind
		want bool
	}{
		{true, vmimage.Disk, true}, {true, vmimage.Kernel, false}, {false, vmimage.Disk, false},
	} {
		if got := HasWatchdog(config.Heartbeat{Watchdog: c.on}, vmimage.Image{Kind: c.kind}); got != c.want {
			t.Errorf("watchdog = %v, an image of kind %s: %v", c.on, c.kind, got)
		}
	}
}

// TestStops looks at a VM every tick, but for what each look says; the last one is when its watchdog has run out.
func TestStops(t *testing.T) {
	const tick = 5 * time.Second
	type look struct {
		more, asleep time.Duration // since the look before: beyond a tick, and while the host was suspended
		stopped      bool
	}
	for name, c := range map[string]struct {
		looks []look
		want  bool
	}{
		"never":                     {[]look{{}, {}, {}}, false},
		"the first look":            {nil, false},
		"is stopped":                {[]look{{}, {stopped: true}}, true},
		"was at the last look":      {[]look{{stopped: true}, {}}, true},
		"was some time before":      {[]look{{stopped: true}, {}, {}}, false},
		"the host was suspended":    {[]look{{}, {asleep: time.Hour}}, true},
		"it was long ago":           {[]look{{asleep: time.Hour}, {}, {}}, false},
		"the agent was stopped":     {[]look{{}, {more: time.Minute}}, true},
		"the agent is a bit late":   {[]look{{}, {more: time.Second}}, false},
		"stopped before the agent":  {[]look{{stopped: true}, {more: time.Minute}}, true},
		"between two looks, unseen": {[]look{{}, {more: -tick / 2}}, false},
	} {
		now := clocks{monotonic: time.Hour, boot: 2 * time.Hour}
		var s stops
		lately := s.look(now, tick, false)
		for _, l := range c.looks {
			now.monotonic += tick + l.more
			now.boot += tick + l.more + l.asleep
			lately = s.look(now, tick, l.stopped)
		}
		if lately != c.want {
			t.Errorf("%s: %v, want %v", name, lately, c.want)
		}
	}
}

// TestGoesOn: a machine goes on once after each stop that a look saw, and when its host was suspended.
func TestGoesOn(t *testing.T) {
	const tick = time.Second
	now := clocks{monotonic: time.Hour, boot: 2 * time.Hour}
	h := &heartbeat{}
	for n, look := range []struct {
		stopped bool
		asleep  time.Duration
		want    bool
	}{{false, 0, false}, {true, 0, false}, {true, 0, false}, {false, 0, true}, {false, 0, false},
		{false, time.Hour, true}, {true, time.Hour, false}, {false, 0, true}, {false, 0, false}} {
		now.monotonic += tick
		now.boot += tick + look.asleep
		h.stops.look(now, tick, look.stopped)
		if goes := h.goesOn(); goes != look.want {
			t.Errorf("look %d: goes on %t, want %t", n, goes, look.want)
		}
	}
}

// TestWatchdogPace has a guest reboot again and again, each time with a watchdog that runs out at once: few of them are
// reported.
func TestWatchdogPace(t *testing.T) {
	changes := 0
	h := &heartbeat{settings: func() config.Heartbeat { return config.Heartbeat{Watchdog: true} },
		stopped: func() bool { return false }, changed: func(bool) { changes++ }, expires: NewPace(5)}
	const times = 1000
	for range times {
		h.Watchdog()
		h.Rebooted()
	}
	if changes == 0 || changes > times/2 {
		t.Errorf("%d watchdogs, each with a reboot, are %d changes", times, changes)
	}
}
