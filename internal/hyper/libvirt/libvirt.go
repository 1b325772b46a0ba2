// Package libvirt runs machines through libvirt's QEMU driver. Machines are transient domains: libvirt keeps nothing of
// them once they end. The package never chowns, makes or deletes a disk, never touches a domain that is not ours, and
// never decides that a machine is gone because libvirt does not answer.
package libvirt

import (
	"context"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	cfg      Config
	closing  chan struct{}
	running  sync.WaitGroup
	health   health
	dropping dropping

	accelerator *verdicts

	mu       sync.Mutex
	current  *session                 // nil: there is none
	dialing  *dialing                 // nil: nobody connects
	known    map[string]*knownMachine // by ID
	starting map[string]bool
	moves    map[string]moving // by machine
	watchers map[*watcher]struct{}
}

// knownMachine is what we remember of a machine to be fast; all of it can be found again.
type knownMachine struct {
	entry
	proc *process // nil until it was found
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
	return &Libvirt{
		cfg: cfg, closing: make(chan struct{}), dropping: newDropping(), accelerator: newVerdicts(cfg),
		known: map[string]*knownMachine{}, starting: map[string]bool{}, moves: map[string]moving{},
		watchers: map[*watcher]struct{}{},
	}, nil
}

// Close ends the connection and waits for everything that New and Events started. Machines live on.
func (l *Libvirt) Close() {
	l.mu.Lock()
	if !isClosed(l.closing) {
		close(l.closing)
	}
	s, moves := l.current, slices.Collect(maps.Keys(l.moves))
	l.mu.Unlock()
	for _, id := range moves {
		l.endMoving(id)
	}
	if s != nil {
		s.conn.Close()
	}
	l.running.Wait()
}

// QEMUOwner is the user and group of libvirt's own that QEMU runs as where a machine has none: whoever makes an overlay
// gives it to them, for libvirt chowns nothing.
func (l *Libvirt) QEMUOwner(ctx context.Context) (uid, gid int, err error) {
	s, err := l.ready(ctx)
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
	e, err := l.claim(m, s, h.ownProfile())
	if err != nil {
		return hyper.Applied{}, err
	}
	defer l.release(m.ID)
	l.confine(ctx, &h, m)
	text, applied, err := h.domain(m)
	if err != nil {
		l.forget(m.ID)
		return hyper.Applied{}, err
	}
	defer l.holdAtExec(e, m.Enter).close()

	err = l.create(ctx, s, m, text)
	for pause := 20 * time.Millisecond; kind(err) == farm.Conflict && pause < 4*time.Second &&
		ctx.Err() == nil; pause *= 2 {
		// We stop machines faster than libvirt notices. Wait for it, unless the machine really runs.
		if p, find := l.find(m.ID); find != nil || p != nil {
			break
		}
		time.Sleep(pause)
		err = l.create(ctx, s, m, text)
	}
	if err == nil {
		var p *process
		if p, err = l.made(m.ID); err == nil {
			applied.Confinement, err = h.confinement(p.pid, m.ID)
		}
		if err == nil {
			applied.PID, applied.Started, applied.UID = p.pid, p.start, m.UID
			return applied, nil
		}
		l.killAll(m.ID)
	}
	if kind(err) == farm.Unavailable {
		// The daemon died under us. What it had started is ours to end; Sweep finds what comes later.
		l.killAll(m.ID)
	}
	l.forget(m.ID)
	return hyper.Applied{}, fmt.Errorf("start machine %s: %w", m.ID, err)
}

// made returns the process of a machine that was just made.
func (l *Libvirt) made(id string) (*process, error) {
	p, err := l.find(id)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, &farm.Error{Kind: farm.Internal, Code: hyper.CodeNoMachine,
			Message: "QEMU ended, or was ended, as soon as it was made", Hint: "see libvirt's log of the machine"}
	}
	return p, nil
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
			return l.wrap(s, err)
		case <-ctx.Done():
			return l.abandon(s, m.ID, made, context.Cause(ctx))
		case <-s.ended: // go-libvirt may miss it
			return l.away(net.ErrClosed)
		case <-limit.C:
			if m.Held == nil || !m.Held() {
				return l.abandon(s, m.ID, made, fmt.Errorf("no answer within %s", startTimeout))
			}
			limit.Reset(startTimeout)
		}
	}
}

// claim notes that a machine is being made, and refuses a second one with the same ID.
func (l *Libvirt) claim(m hyper.Machine, s *session, profile bool) (entry, error) {
	if filepath.Base(m.Name) != m.Name {
		return entry{}, &farm.Error{Kind: farm.Invalid, Code: hyper.CodeBadMachine,
			Message: fmt.Sprintf("invalid name %q of a machine", m.Name)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.known[m.ID]
	if l.starting[m.ID] || k != nil && k.proc.alive() {
		return entry{}, &farm.Error{Kind: farm.Conflict, Code: hyper.CodeExists,
			Message: fmt.Sprintf("machine %s runs already", m.ID)}
	}
	uid := s.owner[0]
	if m.UID != 0 {
		uid = int(m.UID)
	}
	e := entry{ID: m.ID, Name: m.Name, UID: uid, Emulator: s.host.emulator, Sockets: socketsOf(m), Profile: profile}
	if err := l.note(e); err != nil {
		return entry{}, fmt.Errorf("note machine %s: %w", m.ID, err)
	}
	l.starting[m.ID] = true
	l.known[m.ID] = &knownMachine{entry: e}
	return e, nil
}

func (l *Libvirt) release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.starting, id)
}

// forget drops a machine that is gone, with its sockets.
func (l *Libvirt) forget(id string) {
	l.mu.Lock()
	delete(l.known, id)
	l.mu.Unlock()
	l.strike(id)
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
				l.killAll(id)
			}
			return l.away(cause)
		case <-tick.C:
			l.killAll(id)
		case <-limit.C:
			s.retire()
			return l.away(cause)
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
	_, err = call(ctx, l, func(s *session) (struct{}, error) {
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
	p, err := l.find(id)
	if err == nil && p != nil {
		err = p.kill(ctx)
	}
	if err != nil {
		return fmt.Errorf("stop machine %s: %w", id, err)
	}
	l.endMoving(id)
	l.forget(id)
	return nil
}

// find returns the process of a machine of ours; nil when there is none.
func (l *Libvirt) find(id string) (*process, error) {
	l.mu.Lock()
	k := l.known[id]
	if k != nil && k.proc.alive() {
		defer l.mu.Unlock()
		return k.proc, nil
	}
	l.mu.Unlock()
	var e entry
	if k != nil {
		e = k.entry
	} else {
		var err error
		if e, err = l.noted(id); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	p, err := l.locate(e)
	if err != nil || p == nil {
		return nil, err
	}
	l.remember(e, p)
	return p, nil
}

func (l *Libvirt) remember(e entry, p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[e.ID] = &knownMachine{entry: e, proc: p}
}

// killAll ends the process that libvirt has made for a machine, as far as it can.
func (l *Libvirt) killAll(id string) {
	p, err := l.find(id)
	if err != nil || p == nil {
		return // Sweep comes again
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = p.kill(ctx)
}

// List returns our machines whose process lives.
func (l *Libvirt) List(ctx context.Context) ([]hyper.Found, error) {
	domains, err := call(ctx, l, func(s *session) ([]rpc.Domain, error) {
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
	r, err := call(ctx, l, func(s *session) (reply, error) {
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
	e, metadata, err := l.entryOf(d, r.xml)
	if err != nil || metadata == nil {
		return gone, err
	}
	p, err := l.find(e.ID)
	if err == nil && p == nil {
		p, err = l.locate(e) // made by an agent that took no notes, or under another name
	}
	if err != nil || p == nil {
		return gone, err
	}
	f := hyper.Found{ID: e.ID, Name: e.Name, State: stateOf(r.state), Metadata: metadata, PID: p.pid, Started: p.start}
	if f.State == hyper.Gone {
		return gone, nil
	}
	l.remember(e, p)
	return f, l.note(e)
}

// entryOf reads what we note of a machine from its domain. Without metadata it is not ours.
func (l *Libvirt) entryOf(d rpc.Domain, text string) (entry, []byte, error) {
	about, err := describe(text)
	if err != nil || about.metadata == nil || !l.anyBelow(about.sockets) || filepath.Base(d.Name) != d.Name {
		return entry{}, nil, err
	}
	return entry{ID: formatUUID(d.UUID), Name: d.Name, UID: about.uid, Emulator: about.emulator, Sockets: about.sockets,
		Profile: about.profile}, about.metadata, nil
}

// Observe reads the threads of the machine's process. Reading where memory is bound walks the machine's page tables, so
// do it before the guest has filled its memory.
func (l *Libvirt) Observe(_ context.Context, id string) (numa.Observed, error) {
	p, err := l.find(id)
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

// hostOf takes from libvirt's capabilities what domains depend on.
func (l *Libvirt) hostOf(text string) (host, [2]int, error) {
	var caps struct {
		Cells []struct {
			ID       int `xml:"id,attr"`
			Siblings []struct {
				ID    int `xml:"id,attr"`
				Value int `xml:"value,attr"`
			} `xml:"distances>sibling"`
		} `xml:"host>topology>cells>cell"`
		Guests []struct {
			Arch struct {
				Name     string `xml:"name,attr"`
				Emulator string `xml:"emulator"`
				Domains  []struct {
					Type string `xml:"type,attr"`
				} `xml:"domain"`
			} `xml:"arch"`
		} `xml:"guest"`
		Models []struct {
			Model  string `xml:"model"`
			Labels []struct {
				Type string `xml:"type,attr"`
				Text string `xml:",chardata"`
			} `xml:"baselabel"`
		} `xml:"host>secmodel"`
	}
	if err := xml.Unmarshal([]byte(text), &caps); err != nil {
		return host{}, [2]int{}, fmt.Errorf("read libvirt's capabilities: %w", err)
	}
	h := host{numa: len(caps.Cells) > 0, qboot: findQboot(),
		distance: map[int]map[int]int{}}
	for _, c := range caps.Cells {
		h.distance[c.ID] = map[int]int{}
		for _, s := range c.Siblings {
			h.distance[c.ID][s.ID] = s.Value
		}
	}
	for _, g := range caps.Guests {
		if g.Arch.Name != "x86_64" {
			continue
		}
		h.emulator = g.Arch.Emulator
		for _, d := range g.Arch.Domains {
			h.kvm = h.kvm || d.Type == "kvm"
		}
	}
	owner := [2]int{os.Getuid(), os.Getgid()}
	for _, m := range caps.Models {
		if m.Model != "dac" && m.Model != "none" {
			h.models = append(h.models, m.Model)
		}
		if m.Model != "dac" || len(m.Labels) == 0 {
			continue
		}
		h.label = m.Labels[0].Text
		var err error
		if owner[0], owner[1], err = parseLabel(h.label); err != nil {
			return host{}, owner, err
		}
	}
	if h.confines() {
		h.noProfile = cannotConfine()
	}
	return h, owner, nil
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
