package libvirt_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/hyper/libvirt/libvirttest"
)

func (p *private) unwatched(t *testing.T) hyper.Machine {
	m := p.machine(t, libvirttest.StartsWatchdog)
	m.Watchdog = true
	return m
}

// TestWatchdogOfPaused pauses a machine whose watchdog runs: nothing is reported until it has run again for the rest of
// the time.
func TestWatchdogOfPaused(t *testing.T) {
	p := startLibvirtd(t)
	h := p.open(t)
	events := h.Events(t.Context())
	for range 10 {
		if pausedInTime(t, p, h, events) {
			return
		}
	}
	t.Error("this host is too slow to pause a machine within a second")
}

// pausedInTime reports whether the machine was paused before its watchdog ran out.
func pausedInTime(t *testing.T, p *private, h hyper.Hypervisor, events <-chan hyper.Event) bool {
	m := p.unwatched(t)
	if _, err := h.Start(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	defer h.Stop(t.Context(), m.ID)
	console, err := net.Dial("unix", m.Console)
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	if err := h.Resume(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(console, make([]byte, 1)); err != nil { // it is about to start its watchdog
		t.Fatal(err)
	}
	began := time.Now()
	if err := h.Suspend(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	if time.Since(began) > time.Second {
		return false
	}
	if watchdogOf(events, m.ID, 2*libvirttest.WatchdogTime) {
		t.Error("the watchdog of a machine that is paused was reported")
	}
	if err := h.Resume(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	if !watchdogOf(events, m.ID, time.Minute) {
		t.Error("the watchdog of a machine that goes on was not reported")
	}
	return true
}

// watchdogOf reports whether the watchdog of a machine is reported within a time.
func watchdogOf(events <-chan hyper.Event, id string, within time.Duration) bool {
	for limit := time.After(within); ; {
		select {
		case e := <-events:
			if e.ID == id && e.Watchdog {
				return true
			}
		case <-limit:
			return false
		}
	}
}
