// Package fake is a hypervisor in memory, for tests. It keeps the contract of package hypertest and starts nothing: a
// machine is an entry in a table, and its guest, if any, a function of the test.
package fake

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
)

// Host holds machines. Every Hypervisor opened on it sees the same ones, as a restarted agent would.
type Host struct {
	// Guest, when set, runs from the first Resume of each machine; the machine ends when it returns. Its context ends
	// when the machine is stopped.
	Guest func(ctx context.Context, m hyper.Machine)
	// Refuse, when set, may refuse to start a machine.
	Refuse func(m hyper.Machine) error
	// Deaf, when set, says which machines ignore their power button.
	Deaf func(m hyper.Machine) bool
	// Observe, when set, says something else than the plan.
	Observe func(m hyper.Machine) numa.Observed
	// Moving, when set, is called at each step of a move, and may refuse it, or keep it waiting.
	Moving func(ctx context.Context, step, id string) error

	mu        sync.Mutex
	away      bool
	awaySince time.Time
	machines  map[string]*machine
	stuck     map[string]hyper.Stuck // by ID
	watchers  map[*watcher]struct{}
	guests    sync.WaitGroup
}

type machine struct {
	hyper.Machine
	state hyper.State
	still bool               // for want of space
	stop  context.CancelFunc // nil until the guest runs

	display net.Listener // nil: it has none

	begun    bool          // a move of it, at its source
	incoming func()        // at a target, until it has arrived
	received chan struct{} // closed when its memory has come
}

type watcher struct {
	queue []hyper.Event
	wake  chan struct{}
}

// NewHost makes an empty host.
func NewHost() *Host {
	return &Host{machines: map[string]*machine{}, stuck: map[string]hyper.Stuck{}, watchers: map[*watcher]struct{}{}}
}

// Open makes a hypervisor on the host.
func (h *Host) Open() hyper.Hypervisor { return hypervisor{h} }

// Kill makes the daemon go away; machines run on.
func (h *Host) Kill() { h.setAway(true) }

// Restart brings the daemon back.
func (h *Host) Restart() { h.setAway(false) }

func (h *Host) setAway(away bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away, h.awaySince = away, time.Now()
}

// Stick has the daemon keep a machine that has ended, and refuse to drop it, until release is called.
func (h *Host) Stick(id, name string) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stuck[id] = hyper.Stuck{ID: id, Name: name, Reason: "the fake daemon does not drop it", Since: time.Now(),
		Attempts: 1}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.stuck, id)
	}
}

// End ends a machine as if its process had been killed. It is no error when there is none.
func (h *Host) End(id, reason string) { h.endAs(id, hyper.Failed, reason) }

// PowerOff ends a machine as its guest does. It is no error when there is none.
func (h *Host) PowerOff(id string) { h.endAs(id, hyper.PoweredOff, poweredOff) }

const poweredOff = "the guest powered off"

func (h *Host) endAs(id string, end hyper.End, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(id, end, reason)
}

// NoSpace stops a machine's vCPUs, as when the host has no space for what its guest writes. It is no error when there
// is none.
func (h *Host) NoSpace(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.machines[id]; m != nil {
		m.state, m.still = hyper.Paused, true
		for w := range h.watchers {
			w.add(noSpace(id))
		}
	}
}

// Watchdog has the watchdog of a machine run out, if it has one and runs.
func (h *Host) Watchdog(id string) { h.report(id, hyper.Event{ID: id, Watchdog: true}) }

// Reboot has the guest of a machine begin anew, if it runs.
func (h *Host) Reboot(id string) { h.report(id, hyper.Event{ID: id, Rebooted: true}) }

// report publishes what a machine that runs reports.
func (h *Host) report(id string, e hyper.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.machines[id]
	if m == nil || m.state != hyper.Running || e.Watchdog && !m.Watchdog || h.away {
		return
	}
	for w := range h.watchers {
		w.add(e)
	}
}

func noSpace(id string) hyper.Event {
	return hyper.Event{ID: id, NoSpace: true, Reason: "no space is left on the host"}
}

func (w *watcher) add(e hyper.Event) {
	w.queue = append(w.queue, e)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close stops every machine and waits for the guests.
func (h *Host) Close() {
	h.mu.Lock()
	for id := range h.machines {
		h.end(id, hyper.Failed, "the host was closed")
	}
	h.mu.Unlock()
	h.guests.Wait()
}

func (h *Host) end(id string, end hyper.End, reason string) {
	m := h.machines[id]
	if m == nil {
		return
	}
	delete(h.machines, id)
	if m.stop != nil {
		m.stop()
	}
	if m.incoming != nil {
		m.incoming()
	}
	if m.display != nil {
		m.display.Close()
	}
	for w := range h.watchers {
		w.add(hyper.Event{ID: id, End: end, Reason: reason})
	}
}

type hypervisor struct{ host *Host }

// locked runs f on the host while its daemon answers.
func (v hypervisor) locked(ctx context.Context, f func(h *Host) error) error {
	v.host.mu.Lock()
	defer v.host.mu.Unlock()
	err := context.Cause(ctx)
	if err == nil && !v.host.away {
		return f(v.host)
	}
	return &farm.Error{Kind: farm.Unavailable, Code: hyper.CodeAway, Message: "the fake hypervisor does not answer",
		Err: err}
}

func (v hypervisor) Start(ctx context.Context, m hyper.Machine) (hyper.Applied, error) {
	if err := m.Check(); err != nil {
		return hyper.Applied{}, err
	}
	err := v.locked(ctx, func(h *Host) error {
		if h.machines[m.ID] != nil {
			return &farm.Error{Kind: farm.Conflict, Code: hyper.CodeExists,
				Message: fmt.Sprintf("machine %s runs already", m.ID)}
		}
		if h.Refuse != nil {
			if err := h.Refuse(m); err != nil {
				return err
			}
		}
		m.Metadata = bytes.Clone(m.Metadata)
		made := &machine{Machine: m, state: hyper.Paused}
		if err := made.show(); err != nil {
			return err
		}
		h.machines[m.ID] = made
		return nil
	})
	if err != nil {
		return hyper.Applied{}, err
	}
	return hyper.Applied{Accelerator: "tcg", CPUMode: "maximum", UID: m.UID}, nil
}

// show serves the machine's display, if it has one: of its protocol the first line only.
func (m *machine) show() (err error) {
	if m.Display == "" {
		return nil
	}
	if m.display, err = net.Listen("unix", m.Display); err != nil {
		return err
	}
	go func() {
		for {
			conn, err := m.display.Accept()
			if err != nil {
				return // the machine has ended
			}
			io.WriteString(conn, "RFB 003.008\n")
			conn.Close()
		}
	}()
	return nil
}

func (v hypervisor) Resume(ctx context.Context, id string) error {
	return v.set(ctx, id, hyper.Running)
}

func (v hypervisor) Suspend(ctx context.Context, id string) error {
	return v.set(ctx, id, hyper.Paused)
}

func (v hypervisor) Shutdown(ctx context.Context, id string) error {
	return v.locked(ctx, func(h *Host) error {
		m := h.machines[id]
		if m == nil {
			return hyper.NoMachine(id)
		}
		if m.state == hyper.Running && (h.Deaf == nil || !h.Deaf(m.Machine)) {
			h.end(id, hyper.PoweredOff, poweredOff)
		}
		return nil
	})
}

func (v hypervisor) set(ctx context.Context, id string, state hyper.State) error {
	return v.locked(ctx, func(h *Host) error {
		m := h.machines[id]
		if m == nil {
			return hyper.NoMachine(id)
		}
		if m.incoming != nil {
			return &farm.Error{Kind: farm.Conflict, Code: hyper.CodeRefused, Message: "the machine has not arrived"}
		}
		if state == hyper.Running && m.state == hyper.Paused {
			for w := range h.watchers {
				w.add(hyper.Event{ID: id, Resumed: true})
			}
		}
		m.state, m.still = state, m.still && state != hyper.Running
		if state == hyper.Running && m.stop == nil && h.Guest != nil {
			var guest context.Context
			guest, m.stop = context.WithCancel(context.Background())
			h.guests.Add(1)
			go func() {
				defer h.guests.Done()
				h.Guest(guest, m.Machine)
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.machines[id] == m { // and not a later one with the same ID
					h.end(id, hyper.PoweredOff, poweredOff)
				}
			}()
		}
		return nil
	})
}

func (v hypervisor) Stop(_ context.Context, id string) error {
	v.host.endAs(id, hyper.Failed, "it was stopped")
	return nil
}

func (v hypervisor) List(ctx context.Context) ([]hyper.Found, error) {
	found := []hyper.Found{}
	err := v.locked(ctx, func(h *Host) error {
		for _, m := range h.machines {
			found = append(found, hyper.Found{ID: m.ID, Name: m.Name, State: m.state,
				Metadata: bytes.Clone(m.Metadata)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b hyper.Found) int { return bytes.Compare([]byte(a.ID), []byte(b.ID)) })
	return found, nil
}

func (v hypervisor) State(ctx context.Context, id string) (hyper.State, error) {
	state := hyper.Gone
	err := v.locked(ctx, func(h *Host) error {
		if m := h.machines[id]; m != nil {
			state = m.state
		}
		return nil
	})
	return state, err
}

func (v hypervisor) Observe(_ context.Context, id string) (numa.Observed, error) {
	v.host.mu.Lock()
	defer v.host.mu.Unlock()
	m := v.host.machines[id]
	if m == nil {
		return numa.Observed{}, hyper.NoMachine(id)
	}
	if v.host.Observe != nil {
		return v.host.Observe(m.Machine), nil
	}
	o := numa.Observed{VCPUs: slices.Clone(m.Plan.VCPUs), Emulator: m.Plan.Emulator}
	for _, c := range m.Plan.Cells {
		o.Nodes = append(o.Nodes, c.Node)
	}
	slices.Sort(o.Nodes)
	o.Nodes = slices.Compact(o.Nodes)
	return o, nil
}

func (v hypervisor) Sweep(ctx context.Context) error {
	return v.locked(ctx, func(*Host) error { return nil })
}

func (v hypervisor) Daemon() hyper.Daemon {
	v.host.mu.Lock()
	defer v.host.mu.Unlock()
	d := hyper.Daemon{Stuck: slices.SortedFunc(maps.Values(v.host.stuck),
		func(x, y hyper.Stuck) int { return strings.Compare(x.Name, y.Name) })}
	if v.host.away {
		d.Away, d.Since = "the fake hypervisor does not answer", v.host.awaySince
	}
	return d
}

func (v hypervisor) Events(ctx context.Context) <-chan hyper.Event {
	h, w, out := v.host, &watcher{wake: make(chan struct{}, 1)}, make(chan hyper.Event)
	h.mu.Lock()
	h.watchers[w] = struct{}{}
	for id, m := range h.machines {
		if m.still {
			w.add(noSpace(id))
		}
	}
	h.mu.Unlock()
	go func() {
		defer close(out)
		for {
			h.mu.Lock()
			events := w.queue
			w.queue = nil
			h.mu.Unlock()
			for _, e := range events {
				select {
				case out <- e:
				case <-ctx.Done():
				}
			}
			select {
			case <-w.wake:
			case <-ctx.Done():
				h.mu.Lock()
				defer h.mu.Unlock()
				delete(h.watchers, w)
				return
			}
		}
	}()
	return out
}
