// Package hypertest is the contract of hyper.Hypervisor as tests. Every driver runs it; it knows none of them.
package hypertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// timeout bounds every wait; a slow shared machine emulates a firmware's boot in less.
const timeout = 60 * time.Second

// Driver is what the suite needs of a hypervisor under test. All hypervisors that Open returns serve one host.
type Driver struct {
	Open func(t *testing.T) hyper.Hypervisor
	// Machine describes a machine with a fresh ID that runs until it is stopped.
	Machine func(t *testing.T) hyper.Machine
	// Ending describes one that ends by itself soon after it is resumed.
	Ending func(t *testing.T) hyper.Machine
	// Panicking describes one whose kernel panics soon after it is resumed.
	Panicking func(t *testing.T) hyper.Machine
	// Polite describes one that ends when its power button is pressed while it runs; Machine's ignores it.
	Polite func(t *testing.T) hyper.Machine
	// Refused describes one that passes Check and that the hypervisor cannot start.
	Refused func(t *testing.T) hyper.Machine
	// Filling describes one that soon after it is resumed writes to a disk more than its host has space for.
	Filling func(t *testing.T) hyper.Machine
	// Unwatched describes one whose guest starts its watchdog soon after it is resumed, and never resets it.
	Unwatched func(t *testing.T) hyper.Machine
	// Rebooting describes one whose guest reboots soon after it is resumed, and goes on in the same machine.
	Rebooting func(t *testing.T) hyper.Machine
	// Kill ends the hypervisor's daemon without warning and returns what brings it back.
	Kill func(t *testing.T) (restart func())
	// Stick has the daemon keep a machine that has no process, and refuse to drop it, until release.
	Stick func(t *testing.T, m hyper.Machine) (release func())
	// Other opens another host, and returns how a machine of Machine's is there.
	Other func(t *testing.T) (hyper.Hypervisor, func(hyper.Machine) hyper.Machine)
}

// Run runs the contract.
func Run(t *testing.T, d Driver) {
	for name, test := range map[string]func(*suite){
		"life":              (*suite).life,
		"same ID twice":     (*suite).twice,
		"refused":           (*suite).refused,
		"invalid":           (*suite).invalid,
		"cancelled start":   (*suite).cancelled,
		"gone":              (*suite).gone,
		"observe":           (*suite).observe,
		"process":           (*suite).process,
		"display":           (*suite).display,
		"group":             (*suite).group,
		"ends by itself":    (*suite).ends,
		"panics":            (*suite).panics,
		"no space":          (*suite).noSpace,
		"resumed":           (*suite).resumed,
		"watchdog":          (*suite).watchdog,
		"reboot":            (*suite).reboot,
		"stop tells":        (*suite).stopTells,
		"power button":      (*suite).shutdown,
		"agent restarted":   (*suite).reopened,
		"sweep keeps":       (*suite).sweep,
		"daemon killed":     (*suite).daemon,
		"stop without":      (*suite).stopWithout,
		"stuck machine":     (*suite).stuckMachine,
		"many side by side": (*suite).many,
		"move":              (*suite).move,
		"move cancelled":    (*suite).moveCancelled,
		"move forgotten":    (*suite).moveForgotten,
		"move broken":       (*suite).moveBroken,
		"move, no daemon":   (*suite).moveDaemon,
		"move of another":   (*suite).moveOther,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
			defer cancel()
			s := &suite{T: t, d: d, ctx: ctx}
			s.h = d.Open(t)
			test(s)
			for _, f := range s.list() {
				t.Errorf("machine %s is left", f.ID)
				s.must(s.h.Stop(ctx, f.ID))
			}
		})
	}
}

type suite struct {
	*testing.T
	d   Driver
	h   hyper.Hypervisor
	ctx context.Context
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) wantKind(err error, want farm.Kind) {
	s.Helper()
	var e *farm.Error
	if !errors.As(err, &e) || e.Kind != want {
		s.Errorf("got error %v, want one of kind %q", err, want)
	}
}

func (s *suite) start(m hyper.Machine) {
	s.Helper()
	applied, err := s.h.Start(s.ctx, m)
	s.must(err)
	if applied.Accelerator == "" || applied.CPUMode == "" {
		s.Errorf("Start says %+v, not what it applied", applied)
	}
}

func (s *suite) list() []hyper.Found {
	s.Helper()
	found, err := s.h.List(s.ctx)
	s.must(err)
	return found
}

func (s *suite) state(m hyper.Machine) hyper.State {
	s.Helper()
	for _, f := range s.list() {
		if f.ID == m.ID {
			if f.Name != m.Name || !bytes.Equal(f.Metadata, m.Metadata) {
				s.Errorf("List says name %q and metadata %q, want %q and %q", f.Name, f.Metadata, m.Name, m.Metadata)
			}
			return f.State
		}
	}
	return hyper.Gone
}

// wantState wants List and State to agree. A daemon may notice the end of a machine a little later than List sees it.
func (s *suite) wantState(m hyper.Machine, want hyper.State) {
	s.Helper()
	if got := s.state(m); got != want {
		s.Errorf("machine is %s, want %s", got, want)
	}
	if want == hyper.Gone {
		return
	}
	if got, err := s.h.State(s.ctx, m.ID); err != nil || got != want {
		s.Errorf("State says %s, %v; want %s", got, err, want)
	}
}

func (s *suite) event(events <-chan hyper.Event, id string, end hyper.End) {
	s.Helper()
	e := s.next(events, id, func(e hyper.Event) bool { return !e.NoSpace && !e.Watchdog && !e.Rebooted && !e.Resumed })
	if e.Reason == "" {
		s.Error("the event gives no reason")
	}
	if e.End != end {
		s.Errorf("the event says %q, want %q", e.End, end)
	}
}

// first is the first event of a machine, but for Resumed. An end may be told twice: one of a case before can come late.
func (s *suite) first(events <-chan hyper.Event, id string) hyper.Event {
	s.Helper()
	return s.next(events, id, func(e hyper.Event) bool { return !e.Resumed })
}

// next is the next event of a machine that is wanted; others are passed over.
func (s *suite) next(events <-chan hyper.Event, id string, want func(hyper.Event) bool) hyper.Event {
	s.Helper()
	for limit := time.After(timeout); ; {
		select {
		case e, ok := <-events:
			if !ok {
				s.Fatal("events ended early")
			}
			if e.ID == id && want(e) {
				return e
			}
		case <-limit:
			seen, err := s.h.Observe(s.ctx, id) // tells a lost event from a machine that does not end
			s.Fatalf("no event for machine %s, which is now: %+v, %v", id, seen, err)
		}
	}
}

// until asks again and again: the only thing that a daemon which comes back leaves us.
func (s *suite) until(what string, done func() bool) {
	s.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(timeout); !done(); {
		select {
		case <-tick.C:
		case <-limit:
			s.Fatalf("%s: not after %s", what, timeout)
		}
	}
}

func (s *suite) life() {
	m := s.d.Machine(s.T)
	m.Metadata = []byte("{\"job\": \"<&]]>\"}\x00\xff")
	s.start(m)
	s.wantState(m, hyper.Paused)
	s.must(s.h.Resume(s.ctx, m.ID))
	s.wantState(m, hyper.Running)
	s.must(s.h.Suspend(s.ctx, m.ID))
	s.wantState(m, hyper.Paused)
	s.must(s.h.Resume(s.ctx, m.ID))
	s.wantState(m, hyper.Running)
	s.must(s.h.Stop(s.ctx, m.ID))
	s.wantState(m, hyper.Gone)
	s.until("State says that it is gone", func() bool {
		state, err := s.h.State(s.ctx, m.ID)
		s.must(err)
		return state == hyper.Gone
	})
	s.must(s.h.Stop(s.ctx, m.ID))
}

func (s *suite) twice() {
	m := s.d.Machine(s.T)
	s.start(m)
	_, err := s.h.Start(s.ctx, m)
	s.wantKind(err, farm.Conflict)
	s.wantState(m, hyper.Paused)
	s.must(s.h.Stop(s.ctx, m.ID))
	s.start(m) // free again
	s.must(s.h.Stop(s.ctx, m.ID))
}

func (s *suite) refused() {
	m := s.d.Refused(s.T)
	if _, err := s.h.Start(s.ctx, m); err == nil {
		s.Error("a machine that cannot start started")
	}
	s.wantState(m, hyper.Gone)
	s.must(s.h.Stop(s.ctx, m.ID))
}

func (s *suite) invalid() {
	for name, spoil := range map[string]func(*hyper.Machine){
		"no vCPUs":       func(m *hyper.Machine) { m.Plan.VCPUs = nil },
		"no memory":      func(m *hyper.Machine) { m.Plan.Cells = nil },
		"odd topology":   func(m *hyper.Machine) { m.Plan.Guest.Cores += 3 },
		"nothing boots":  func(m *hyper.Machine) { m.Boot, m.Disks = hyper.Boot{}, nil },
		"unknown format": func(m *hyper.Machine) { m.Disks = []hyper.Disk{{Path: "/nowhere", Format: "vmdk"}} },
	} {
		m := s.d.Machine(s.T)
		spoil(&m)
		_, err := s.h.Start(s.ctx, m)
		if s.Log(name, ":", err); err == nil {
			s.must(s.h.Stop(s.ctx, m.ID))
		}
		s.wantKind(err, farm.Invalid)
	}
}

func (s *suite) cancelled() {
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond} {
		m := s.d.Machine(s.T)
		ctx, cancel := context.WithTimeout(s.ctx, after)
		_, err := s.h.Start(ctx, m)
		cancel()
		if err == nil { // it was faster
			s.must(s.h.Stop(s.ctx, m.ID))
		}
		s.wantState(m, hyper.Gone)
	}
}

func (s *suite) gone() {
	m := s.d.Machine(s.T)
	s.wantKind(s.h.Resume(s.ctx, m.ID), farm.NotFound)
	s.wantKind(s.h.Suspend(s.ctx, m.ID), farm.NotFound)
	s.wantKind(s.h.Shutdown(s.ctx, m.ID), farm.NotFound)
	_, err := s.h.Observe(s.ctx, m.ID)
	s.wantKind(err, farm.NotFound)
	s.must(s.h.Stop(s.ctx, m.ID))
}

func (s *suite) observe() {
	m := s.d.Machine(s.T)
	s.start(m)
	o, err := s.h.Observe(s.ctx, m.ID)
	s.must(err)
	if diff := cmp.Diff(m.Plan.VCPUs, o.VCPUs); diff != "" {
		s.Errorf("vCPU pins (-want +got):\n%s", diff)
	}
	if !o.Emulator.Equal(m.Plan.Emulator) {
		s.Errorf("emulator runs on %s, want %s", o.Emulator, m.Plan.Emulator)
	}
	if diff := cmp.Diff([]int{m.Plan.Cells[0].Node}, o.Nodes); diff != "" {
		s.Errorf("memory nodes (-want +got):\n%s", diff)
	}
	s.must(s.h.Stop(s.ctx, m.ID))
}

// pid starts a machine and tells its process, which List must know too; 0 where the driver has none.
func (s *suite) pid(m hyper.Machine) int {
	s.Helper()
	applied, err := s.h.Start(s.ctx, m)
	s.must(err)
	for _, f := range s.list() {
		if f.ID == m.ID && (f.PID != applied.PID || f.Started != applied.Started || f.PID != 0 && f.Started == 0) {
			s.Errorf("List says process %d of %d, Start %d of %d", f.PID, f.Started, applied.PID, applied.Started)
		}
	}
	return applied.PID
}

func (s *suite) process() {
	m := s.d.Machine(s.T)
	if pid := s.pid(m); pid != 0 {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		s.must(err)
		if !bytes.Contains(line, []byte(m.ID)) {
			s.Errorf("process %d is not the machine's: %q", pid, line)
		}
	}
	s.must(s.h.Stop(s.ctx, m.ID))
}

// group is one that no user of this machine has: a batch system's range of groups.
const group = 23456

func (s *suite) group() {
	m := s.d.Machine(s.T)
	m.Group = group
	pid := s.pid(m)
	s.must(s.h.Resume(s.ctx, m.ID))
	s.wantState(m, hyper.Running)
	if pid != 0 {
		s.hasGroup(pid)
		for _, port := range m.Ports {
			conn, err := net.Dial("unix", port.Path)
			s.must(err)
			conn.Close()
		}
	}
	s.must(s.h.Stop(s.ctx, m.ID))
}

// hasGroup looks where batch systems look: at the line of all groups.
func (s *suite) hasGroup(pid int) {
	s.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	s.must(err)
	for line := range strings.Lines(string(status)) {
		if groups, ok := strings.CutPrefix(line, "Groups:"); ok &&
			!slices.Contains(strings.Fields(groups), strconv.Itoa(group)) {
			s.Errorf("QEMU's groups are %s, without %d", groups, group)
		}
	}
}

func (s *suite) ends() {
	events := s.h.Events(s.ctx)
	m := s.d.Ending(s.T)
	s.start(m)
	s.wantState(m, hyper.Paused) // it would have ended, had it run
	s.must(s.h.Resume(s.ctx, m.ID))
	s.event(events, m.ID, hyper.PoweredOff)
	s.wantState(m, hyper.Gone)
	s.must(s.h.Stop(s.ctx, m.ID))
}

func (s *suite) panics() {
	events := s.h.Events(s.ctx)
	m := s.d.Panicking(s.T)
	s.start(m)
	s.must(s.h.Resume(s.ctx, m.ID))
	s.event(events, m.ID, hyper.Failed)
	s.until("it is gone", func() bool { return s.state(m) == hyper.Gone })
}

func (s *suite) shutdown() {
	deaf, polite := s.d.Machine(s.T), s.d.Polite(s.T)
	events := s.h.Events(s.ctx)
	s.start(deaf)
	s.must(s.h.Resume(s.ctx, deaf.ID))
	s.must(s.h.Shutdown(s.ctx, deaf.ID))
	s.start(polite)
	s.must(s.h.Resume(s.ctx, polite.ID))
	s.until("it powers off", func() bool { // a guest that has not come so far as to look at its button misses it
		if err := s.h.Shutdown(s.ctx, polite.ID); err != nil {
			s.wantKind(err, farm.NotFound)
		}
		return s.state(polite) == hyper.Gone
	})
	s.event(events, polite.ID, hyper.PoweredOff)
	s.wantState(deaf, hyper.Running)
	s.must(s.h.Stop(s.ctx, deaf.ID))
	s.must(s.h.Stop(s.ctx, polite.ID))
}

// watchdog: that a guest does not reset its watchdog is reported, and is no end.
func (s *suite) watchdog() {
	s.flagged(s.d.Unwatched(s.T), func(e hyper.Event) bool { return e.Watchdog && !e.Rebooted && !e.NoSpace })
}

// reboot: that a guest begins anew is reported, and is no end.
func (s *suite) reboot() {
	s.flagged(s.d.Rebooting(s.T), func(e hyper.Event) bool { return e.Rebooted && !e.Watchdog && !e.NoSpace })
}

// flagged starts a machine, and wants its first event to be one after which it runs on.
func (s *suite) flagged(m hyper.Machine, want func(hyper.Event) bool) {
	s.Helper()
	events := s.h.Events(s.ctx)
	s.start(m)
	s.must(s.h.Resume(s.ctx, m.ID))
	if e := s.first(events, m.ID); e.End != "" || !want(e) {
		s.Errorf("the event is %+v", e)
	}
	s.wantState(m, hyper.Running)
	s.must(s.h.Stop(s.ctx, m.ID))
	s.event(events, m.ID, hyper.Failed)
}

func (s *suite) stopTells() {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	events := s.h.Events(ctx)
	m := s.d.Machine(s.T)
	s.start(m)
	s.must(s.h.Stop(s.ctx, m.ID))
	s.event(events, m.ID, hyper.Failed)
	cancel()
	for range events { // closed when ctx ends
	}
}

func (s *suite) reopened() {
	m := s.d.Machine(s.T)
	s.start(m)
	s.must(s.h.Resume(s.ctx, m.ID))
	s.h = s.d.Open(s.T)
	s.wantState(m, hyper.Running)
	_, err := s.h.Observe(s.ctx, m.ID)
	s.must(err)
	s.must(s.h.Suspend(s.ctx, m.ID))
	s.wantState(m, hyper.Paused)
	s.must(s.h.Stop(s.ctx, m.ID))
}

func (s *suite) sweep() {
	a, b := s.d.Machine(s.T), s.d.Machine(s.T)
	s.start(a)
	s.start(b)
	s.must(s.h.Resume(s.ctx, b.ID))
	s.must(s.h.Sweep(s.ctx))
	s.must(s.d.Open(s.T).Sweep(s.ctx)) // nor does an agent that remembers nothing
	s.wantState(a, hyper.Paused)
	s.wantState(b, hyper.Running)
	s.must(s.h.Stop(s.ctx, a.ID))
	s.must(s.h.Stop(s.ctx, b.ID))
}

func (s *suite) daemon() {
	events := s.h.Events(s.ctx)
	m := s.d.Machine(s.T)
	s.start(m)
	s.must(s.h.Resume(s.ctx, m.ID))
	restart := s.d.Kill(s.T)
	_, err := s.h.List(s.ctx)
	s.wantKind(err, farm.Unavailable)
	s.wantKind(s.h.Suspend(s.ctx, m.ID), farm.Unavailable)
	s.wantKind(s.h.Shutdown(s.ctx, m.ID), farm.Unavailable)
	s.wantKind(s.h.Sweep(s.ctx), farm.Unavailable)
	_, err = s.h.Start(s.ctx, s.d.Machine(s.T))
	s.wantKind(err, farm.Unavailable)
	if _, err := s.h.Observe(s.ctx, m.ID); err != nil {
		s.wantKind(err, farm.Unavailable)
	}
	restart()
	s.until("the daemon answers", func() bool { _, err := s.h.List(s.ctx); return err == nil })
	s.until("the machine is found again", func() bool { return s.state(m) == hyper.Running })
	s.must(s.h.Sweep(s.ctx))
	s.must(s.h.Suspend(s.ctx, m.ID))
	s.wantState(m, hyper.Paused)
	s.must(s.h.Stop(s.ctx, m.ID))
	s.event(events, m.ID, hyper.Failed)
}

func (s *suite) stopWithout() {
	m := s.d.Machine(s.T)
	s.start(m)
	s.must(s.h.Resume(s.ctx, m.ID))
	restart := s.d.Kill(s.T)
	s.must(s.h.Stop(s.ctx, m.ID))
	restart()
	s.until("the daemon answers", func() bool { _, err := s.h.List(s.ctx); return err == nil })
	s.wantState(m, hyper.Gone)
}

func (s *suite) many() {
	const n = 4
	var machines []hyper.Machine
	errs := make(chan error, n)
	for range n {
		m := s.d.Machine(s.T)
		machines = append(machines, m)
		go func() {
			_, err := s.h.Start(s.ctx, m)
			errs <- err
		}()
	}
	for range n {
		s.must(<-errs)
	}
	if got := len(s.list()); got != n {
		s.Errorf("List has %d machines, want %d", got, n)
	}
	for _, m := range machines {
		go func() { errs <- s.h.Stop(s.ctx, m.ID) }()
	}
	for range n {
		s.must(<-errs)
	}
}

// A machine that has ended and that the daemon does not let go is shown, and is in nobody's way.
func (s *suite) stuckMachine() {
	stuck := s.d.Machine(s.T)
	release := s.d.Stick(s.T, stuck)
	began := time.Now()
	s.must(s.h.Sweep(s.ctx))
	if took := time.Since(began); took > timeout/6 {
		s.Errorf("Sweep waited %v for what does not go", took)
	}
	s.wantState(stuck, hyper.Gone)
	s.await("the stuck machine is shown", func() bool {
		return slices.ContainsFunc(s.h.Daemon().Stuck, func(x hyper.Stuck) bool {
			return x.ID == stuck.ID && x.Name == stuck.Name && x.Reason != "" && x.Attempts > 0 && !x.Since.IsZero()
		})
	})
	other := s.d.Machine(s.T)
	s.start(other)
	s.must(s.h.Stop(s.ctx, other.ID))
	release()
	s.await("the machine is dropped", func() bool {
		s.must(s.h.Sweep(s.ctx))
		return len(s.h.Daemon().Stuck) == 0
	})
}

func (s *suite) await(what string, done func() bool) {
	s.Helper()
	for deadline := time.Now().Add(timeout); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("not within %v: %s", timeout, what)
		}
	}
}
