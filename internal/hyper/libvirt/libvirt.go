// Package libvirt runs machines through libvirt's QEMU driver. Machines are transient domains: libvirt keeps nothing of
// them once they end. The package never chowns, makes or deletes a disk, never touches a domain that is not ours, and
// never decides that a machine is gone because libvirt does not answer.
package libvirt

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
)

// Accelerator is what runs a guest's instructions.
type Accelerator string

// Accelerators.
const (
	KVM Accelerator = "kvm"
	TCG Accelerator = "tcg" // software emulation, many times slower
)

// Config says which libvirt, and which of its domains are ours.
type Config struct {
	// Socket is where the daemon listens, in its own run directory: /run/libvirt/libvirt-sock, or DIR/run/libvirt-sock
	// of scripts/private-libvirtd.
	Socket string
	// RunDir is an absolute directory of root's alone that holds every console and port socket of this agent's
	// machines, and what the agent noted of them. It tells our machines from another agent's on the same host: a domain
	// with no socket below it is not ours.
	RunDir string
	// Accelerator for new machines; "": starts wait until Use says so. Probe finds it.
	Accelerator Accelerator
	// WhyTCG is told with every machine when Accelerator is TCG although KVM was wanted: one line. Empty when TCG was
	// asked for.
	WhyTCG string
}

// Libvirt is a hyper.Hypervisor. It connects when first used, and again after a loss.
type Libvirt struct {
	cfg         Config
	daemon      *daemon
	accelerator *verdicts
	events      *events
	pids        pidFiles
	journal     *journal
	machines    *machines
	moves       *moves
	dropper     *dropper
}

var _ hyper.Hypervisor = (*Libvirt)(nil)

// New makes a hypervisor. Nothing is connected yet.
func New(cfg Config) (*Libvirt, error) {
	switch {
	case cfg.Socket == "":
		return nil, errors.New("libvirt: no socket configured")
	case !strings.HasPrefix(cfg.RunDir, "/"):
		return nil, fmt.Errorf("libvirt: run directory %q is not an absolute path", cfg.RunDir)
	case cfg.Accelerator != KVM && cfg.Accelerator != TCG && cfg.Accelerator != "":
		return nil, fmt.Errorf("libvirt: accelerator %q is neither kvm nor tcg", cfg.Accelerator)
	}
	cfg.RunDir = strings.TrimRight(cfg.RunDir, "/")
	l := &Libvirt{cfg: cfg, accelerator: newVerdicts(cfg), events: &events{watchers: map[*watcher]struct{}{}},
		pids: pidFilesOf(cfg.Socket)}
	l.daemon = &daemon{socket: cfg.Socket, pids: l.pids, accelerator: l.accelerator, events: l.events,
		closing: make(chan struct{})}
	l.journal = &journal{cfg.RunDir, l.pids}
	l.machines = &machines{journal: l.journal, known: map[string]*knownMachine{}, starting: map[string]bool{}}
	l.moves = &moves{daemon: l.daemon, under: map[string]moving{}}
	l.dropper = &dropper{daemon: l.daemon, machines: l.machines, queue: newDropping()}
	return l, nil
}

// Close ends the connection and waits for everything that New and Events started. Machines live on.
func (l *Libvirt) Close() {
	l.daemon.close()
	l.moves.endAll()
	l.daemon.running.Wait()
}

// QEMUOwner is the user and group of libvirt's own that QEMU runs as where a machine has none: whoever makes an overlay
// gives it to them, for libvirt chowns nothing.
func (l *Libvirt) QEMUOwner(ctx context.Context) (uid, gid int, err error) {
	s, err := l.daemon.ready(ctx)
	if err != nil {
		return 0, 0, err
	}
	if s.owner[0] == 0 {
		return 0, 0, rootQEMU()
	}
	return s.owner[0], s.owner[1], nil
}

// Start makes the machine, paused. When ctx ends first, what was half made is killed before Start returns.
func (l *Libvirt) Start(ctx context.Context, m hyper.Machine) (hyper.Applied, error) {
	h, s, err := l.hostFor(ctx)
	if err != nil {
		return hyper.Applied{}, err
	}
	if err := m.Check(); err != nil {
		return hyper.Applied{}, err
	}
	e, err := l.machines.claim(m, s, h.ownProfile())
	if err != nil {
		return hyper.Applied{}, err
	}
	defer l.machines.release(m.ID)
	l.confine(ctx, &h, m)
	text, applied, err := h.domain(m)
	if err == nil {
		err = giveFunction(m)
	}
	if err != nil {
		l.machines.forget(m.ID)
		return hyper.Applied{}, err
	}
	defer l.pids.holdAtExec(e, m.Enter).close()

	err = l.create(ctx, s, m, text)
	for pause := 20 * time.Millisecond; kind(err) == farm.Conflict && pause < 4*time.Second &&
		ctx.Err() == nil; pause *= 2 {
		// We stop machines faster than libvirt notices. Wait for it, unless the machine really runs.
		if p, find := l.machines.find(m.ID); find != nil || p != nil {
			break
		}
		time.Sleep(pause)
		err = l.create(ctx, s, m, text)
	}
	if err == nil {
		var p *process
		if p, err = l.machines.made(m.ID); err == nil {
			applied.Confinement, err = h.confinement(p.pid, m.ID)
		}
		if err == nil {
			applied.PID, applied.Started, applied.UID = p.pid, p.start, m.UID
			return applied, nil
		}
		l.machines.kill(m.ID)
	}
	if kind(err) == farm.Unavailable {
		// The daemon died under us. What it had started is ours to end; Sweep finds what comes later.
		l.machines.kill(m.ID)
	}
	l.machines.forget(m.ID)
	return hyper.Applied{}, fmt.Errorf("start machine %s: %w", m.ID, err)
}

// rootQEMU refuses machines whose QEMU would be root: whoever breaks out of one would have the host.
func rootQEMU() error {
	return &farm.Error{
		Kind: farm.Denied, Code: hyper.CodeRootQEMU, Message: "libvirt runs QEMU as root",
		Hint: "give QEMU a user of its own: user and group in libvirt's qemu.conf, as libvirt-qemu or qemu, then " +
			"restart libvirt",
	}
}

// startTimeout is callTimeout but for tests.
var startTimeout = callTimeout

// create asks libvirt for the domain.
func (l *Libvirt) create(ctx context.Context, s *session, m hyper.Machine, text string) error {
	s.enter()
	defer s.leave()
	made := make(chan error, 1)
	go func() {
		_, err := s.DomainCreateXML(text, rpc.DomainStartPaused)
		made <- err
	}()
	limit := time.NewTimer(startTimeout)
	defer limit.Stop()
	for {
		select {
		case err := <-made:
			return l.daemon.wrap(s, err)
		case <-ctx.Done():
			return l.abandon(s, m.ID, made, context.Cause(ctx))
		case <-s.ended: // go-libvirt may miss it
			return l.daemon.away(net.ErrClosed)
		case <-limit.C:
			if m.Held == nil || !m.Held() {
				return l.abandon(s, m.ID, made, fmt.Errorf("no answer within %s", startTimeout))
			}
			limit.Reset(startTimeout)
		}
	}
}

// abandon ends a machine that is being made: kill its process, whenever it comes, until libvirt gives up.
func (l *Libvirt) abandon(s *session, id string, made <-chan error, cause error) error {
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-made:
			if err == nil {
				l.machines.kill(id)
			}
			return l.daemon.away(cause)
		case <-tick.C:
			l.machines.kill(id)
		case <-limit.C:
			s.retire()
			return l.daemon.away(cause)
		}
	}
}

// Resume lets the vCPUs run.
func (l *Libvirt) Resume(ctx context.Context, id string) error {
	return l.onDomain(ctx, "resume", id, func(s *session, d rpc.Domain) error { return s.DomainResume(d) })
}

// Suspend stops the vCPUs; memory stays.
func (l *Libvirt) Suspend(ctx context.Context, id string) error {
	return l.onDomain(ctx, "suspend", id, func(s *session, d rpc.Domain) error { return s.DomainSuspend(d) })
}

// Shutdown presses the power button that ACPI shows the guest.
func (l *Libvirt) Shutdown(ctx context.Context, id string) error {
	return l.onDomain(ctx, "shut down", id, func(s *session, d rpc.Domain) error {
		return s.DomainShutdownFlags(d, rpc.DomainShutdownAcpiPowerBtn)
	})
}

func (l *Libvirt) onDomain(ctx context.Context, what, id string, f func(*session, rpc.Domain) error) error {
	uuid, err := parseUUID(id)
	if err != nil {
		return hyper.NoMachine(id)
	}
	_, err = call(ctx, l.daemon, func(s *session) (struct{}, error) {
		// libvirt looks at the UUID alone, so asking for the domain first would be a round trip for nothing.
		return struct{}{}, f(s, rpc.Domain{Name: "grange", UUID: uuid, ID: -1})
	})
	if kind(err) == farm.NotFound {
		return hyper.NoMachine(id)
	}
	if err != nil {
		return fmt.Errorf("%s machine %s: %w", what, id, err)
	}
	return nil
}

// Stop kills the machine's process and returns when it is gone; libvirt follows by itself when it sees the monitor
// close. That takes a few milliseconds, where libvirt's own destroy waits in steps of 200, and works with no daemon at
// all.
func (l *Libvirt) Stop(ctx context.Context, id string) error {
	p, err := l.machines.find(id)
	if err == nil && p != nil {
		err = p.kill(ctx)
	}
	if err != nil {
		return fmt.Errorf("stop machine %s: %w", id, err)
	}
	l.moves.end(id)
	l.machines.forget(id)
	return nil
}

// List returns our machines whose process lives.
func (l *Libvirt) List(ctx context.Context) ([]hyper.Found, error) {
	domains, err := call(ctx, l.daemon, func(s *session) ([]rpc.Domain, error) {
		d, _, err := s.ConnectListAllDomains(1, rpc.ConnectListDomainsActive)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	found := []hyper.Found{}
	for _, d := range domains {
		if !strings.HasPrefix(d.Name, namePrefix) {
			continue
		}
		f, err := l.inspect(ctx, d)
		if kind(err) == farm.NotFound {
			continue // ended since we asked
		}
		if err != nil {
			return nil, fmt.Errorf("list machines: %s: %w", d.Name, err)
		}
		if f.State != hyper.Gone {
			found = append(found, f)
		}
	}
	return found, nil
}

// inspect reads one domain. Its state is Gone when it is not ours or has no process.
func (l *Libvirt) inspect(ctx context.Context, d rpc.Domain) (hyper.Found, error) {
	gone := hyper.Found{State: hyper.Gone}
	type reply struct {
		xml   string
		state int32
	}
	r, err := call(ctx, l.daemon, func(s *session) (reply, error) {
		text, err := s.DomainGetXMLDesc(d, 0)
		if err != nil {
			return reply{}, err
		}
		state, _, err := s.DomainGetState(d, 0)
		return reply{text, state}, err
	})
	if err != nil {
		return gone, err
	}
	e, metadata, err := l.journal.entryOf(d, r.xml)
	if err != nil || metadata == nil {
		return gone, err
	}
	p, err := l.machines.find(e.ID)
	if err == nil && p == nil {
		p, err = l.pids.locate(e) // made by an agent that took no notes, or under another name
	}
	if err != nil || p == nil {
		return gone, err
	}
	f := hyper.Found{ID: e.ID, Name: e.Name, State: stateOf(r.state), Metadata: metadata, PID: p.pid, Started: p.start}
	if f.State == hyper.Gone {
		return gone, nil
	}
	l.machines.remember(e, p)
	return f, l.journal.note(e)
}

// Observe reads the threads of the machine's process. Reading where memory is bound walks the machine's page tables, so
// do it before the guest has filled its memory.
func (l *Libvirt) Observe(_ context.Context, id string) (numa.Observed, error) {
	p, err := l.machines.find(id)
	if err != nil {
		return numa.Observed{}, fmt.Errorf("observe machine %s: %w", id, err)
	}
	if p == nil {
		return numa.Observed{}, hyper.NoMachine(id)
	}
	o, err := p.observe()
	if err != nil {
		if !p.alive() {
			return numa.Observed{}, hyper.NoMachine(id)
		}
		return numa.Observed{}, fmt.Errorf("observe machine %s: %w", id, err)
	}
	return o, nil
}

func kind(err error) farm.Kind {
	var e *farm.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

func parseUUID(text string) (rpc.UUID, error) {
	var u rpc.UUID
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(b) != len(u) {
		return u, fmt.Errorf("%q is not a UUID", text)
	}
	return rpc.UUID(b), nil
}

func formatUUID(u rpc.UUID) string {
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
