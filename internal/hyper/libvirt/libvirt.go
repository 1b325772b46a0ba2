// Package libvirt runs machines through libvirt's QEMU driver. Machines are transient domains: libvirt keeps nothing of them once
// they end. The package never chowns, makes or deletes a disk, never touches a domain that is not ours, and never decides
// that a machine is gone because libvirt does not answer.
package libvirt

import (
	"context"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"strconv"
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
	// Socket is where the daemon listens: /run/libvirt/libvirt-sock, or DIR/run/libvirt-sock of scripts/private-libvirtd.
	Socket string
	// RunDir is an absolute directory that holds every console and port socket of this agent's machines. It tells our machines
	// from another agent's on the same host: a domain or process with no socket below it is not ours.
	RunDir string
	// Accelerator for new machines. Probe finds it.
	Accelerator Accelerator
	// WhyTCG is told with every machine when Accelerator is TCG although KVM was wanted: one line. Empty when TCG was asked for.
	WhyTCG string
}

// Libvirt is a hyper.Hypervisor. It connects when first used, and again after a loss.
type Libvirt struct {
	cfg        Config
	connecting chan struct{} // holds one token while current is made or read
	current    *session
	closing    chan struct{}
	running    sync.WaitGroup

	mu       sync.Mutex
	known    map[string]*knownMachine // by ID
	starting map[string]bool
	watchers map[*watcher]struct{}
}

// knownMachine is what we remember of a machine to be fast; all of it can be found again.
type knownMachine struct {
	proc    process
	sockets []string
}

var _ hyper.Hypervisor = (*Libvirt)(nil)

// New makes a hypervisor. Nothing is connected yet.
func New(cfg Config) (*Libvirt, error) {
	switch {
	case cfg.Socket == "":
		return nil, errors.New("libvirt: no socket configured")
	case !strings.HasPrefix(cfg.RunDir, "/"):
		return nil, fmt.Errorf("libvirt: run directory %q is not an absolute path", cfg.RunDir)
	case cfg.Accelerator != KVM && cfg.Accelerator != TCG:
		return nil, fmt.Errorf("libvirt: accelerator %q is neither kvm nor tcg", cfg.Accelerator)
	}
	cfg.RunDir = strings.TrimRight(cfg.RunDir, "/")
	return &Libvirt{
		cfg: cfg, connecting: make(chan struct{}, 1), closing: make(chan struct{}),
		known: map[string]*knownMachine{}, starting: map[string]bool{}, watchers: map[*watcher]struct{}{},
	}, nil
}

// Close ends the connection and waits for everything that New and Events started. Machines live on.
func (l *Libvirt) Close() {
	l.connecting <- struct{}{}
	if !isClosed(l.closing) {
		close(l.closing)
	}
	if l.current != nil {
		l.current.conn.Close()
	}
	<-l.connecting
	l.running.Wait()
}

// QEMUOwner is the user and group that QEMU runs as: whoever makes an overlay gives it to them, for libvirt chowns nothing.
func (l *Libvirt) QEMUOwner(ctx context.Context) (uid, gid int, err error) {
	s, err := l.session(ctx)
	if err != nil {
		return 0, 0, err
	}
	return s.owner[0], s.owner[1], nil
}

// Start makes the machine, paused. When ctx ends first, what was half made is killed before Start returns.
func (l *Libvirt) Start(ctx context.Context, m hyper.Machine) (hyper.Applied, error) {
	s, err := l.session(ctx)
	if err != nil {
		return hyper.Applied{}, err
	}
	text, applied, err := s.host.domain(m)
	if err != nil {
		return hyper.Applied{}, err
	}
	if err := l.claim(m); err != nil {
		return hyper.Applied{}, err
	}
	defer l.release(m.ID)

	err = l.create(ctx, s, m.ID, text)
	for pause := 20 * time.Millisecond; kind(err) == farm.Conflict && pause < 4*time.Second && ctx.Err() == nil; pause *= 2 {
		// We stop machines faster than libvirt notices. Wait for it, unless the machine really runs.
		if p, _, find := l.find(m.ID); find != nil || p.pid != 0 {
			break
		}
		time.Sleep(pause)
		err = l.create(ctx, s, m.ID, text)
	}
	if err == nil {
		if applied.PID, err = l.pid(m.ID); err == nil {
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

// pid is the process of a machine that was just made.
func (l *Libvirt) pid(id string) (int, error) {
	p, _, err := l.find(id)
	if err != nil {
		return 0, err
	}
	if p.pid == 0 {
		return 0, &farm.Error{Kind: farm.Internal, Code: hyper.CodeNoMachine, Message: "QEMU ended, or was ended, as soon as it was made",
			Hint: "see libvirt's log of the machine"}
	}
	return p.pid, nil
}

// create asks libvirt for the domain.
func (l *Libvirt) create(ctx context.Context, s *session, id, text string) error {
	made := make(chan error, 1)
	go func() {
		_, err := s.DomainCreateXML(text, rpc.DomainStartPaused)
		made <- err
	}()
	limit := time.NewTimer(callTimeout)
	defer limit.Stop()
	select {
	case err := <-made:
		return l.wrap(s, err)
	case <-ctx.Done():
		return l.abandon(s, id, made, context.Cause(ctx))
	case <-limit.C:
		return l.abandon(s, id, made, fmt.Errorf("no answer within %s", callTimeout))
	}
}

// claim notes that a machine is being made, and refuses a second one with the same ID.
func (l *Libvirt) claim(m hyper.Machine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.known[m.ID]
	if l.starting[m.ID] || k != nil && k.proc.alive() {
		return &farm.Error{Kind: farm.Conflict, Code: hyper.CodeExists, Message: fmt.Sprintf("machine %s runs already", m.ID)}
	}
	l.starting[m.ID] = true
	k = &knownMachine{}
	for _, path := range append([]string{m.Console}, portPaths(m.Ports)...) {
		if path != "" {
			k.sockets = append(k.sockets, path)
		}
	}
	l.known[m.ID] = k
	return nil
}

func (l *Libvirt) release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.starting, id)
}

func (l *Libvirt) forget(id string) {
	l.mu.Lock()
	k := l.known[id]
	delete(l.known, id)
	l.mu.Unlock()
	if k != nil {
		l.removeSockets(k.sockets)
	}
}

// removeSockets removes what QEMU leaves behind: libvirt made the sockets, so QEMU does not know their paths.
func (l *Libvirt) removeSockets(paths []string) {
	for _, path := range paths {
		if l.below(path) {
			_ = os.Remove(path) // at worst a dead socket stays, which the next machine replaces
		}
	}
}

func (l *Libvirt) below(path string) bool { return strings.HasPrefix(path, l.cfg.RunDir+"/") }

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
			s.conn.Close()
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

// Stop kills the machine's process and returns when it is gone; libvirt follows by itself when it sees the monitor close.
// That takes a few milliseconds, where libvirt's own destroy waits in steps of 200, and works with no daemon at all.
func (l *Libvirt) Stop(ctx context.Context, id string) error {
	p, sockets, err := l.find(id)
	if err != nil {
		return fmt.Errorf("stop machine %s: %w", id, err)
	}
	if p.pid != 0 {
		if err := p.kill(ctx, id); err != nil {
			return fmt.Errorf("stop machine %s: %w", id, err)
		}
	}
	l.forget(id)
	l.removeSockets(sockets)
	return nil
}

// find tells the process of a machine; its pid is 0 when there is none.
func (l *Libvirt) find(id string) (process, []string, error) {
	l.mu.Lock()
	if k := l.known[id]; k != nil && k.proc.pid != 0 && k.proc.alive() {
		defer l.mu.Unlock()
		return k.proc, k.sockets, nil
	}
	l.mu.Unlock()
	all, err := machineProcesses()
	if err != nil {
		return process{}, nil, err
	}
	p, ok := all[id]
	if !ok {
		return process{}, nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.known[id]
	if k == nil {
		k = &knownMachine{sockets: p.sockets()}
		l.known[id] = k
	}
	k.proc = p.process
	return k.proc, k.sockets, nil
}

// killAll ends whatever process has the machine's ID, as far as it can.
func (l *Libvirt) killAll(id string) {
	all, err := machineProcesses()
	if err != nil {
		return // Sweep comes again
	}
	if p, ok := all[id]; ok {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = p.kill(ctx, id)
	}
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
	procs, err := machineProcesses()
	if err != nil {
		return nil, err
	}
	found := []hyper.Found{}
	for _, d := range domains {
		if !strings.HasPrefix(d.Name, namePrefix) {
			continue
		}
		f, err := l.inspect(ctx, d, procs)
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
func (l *Libvirt) inspect(ctx context.Context, d rpc.Domain, procs map[string]machineProcess) (hyper.Found, error) {
	id := formatUUID(d.UUID)
	p, ok := procs[id]
	if !ok || !p.alive() {
		return hyper.Found{State: hyper.Gone}, nil
	}
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
		return hyper.Found{}, err
	}
	sockets, metadata, err := describe(r.xml)
	if err != nil {
		return hyper.Found{}, err
	}
	if metadata == nil || !l.anyBelow(sockets) {
		return hyper.Found{State: hyper.Gone}, nil
	}
	f := hyper.Found{ID: id, Name: d.Name, State: hyper.Paused, Metadata: metadata, PID: p.pid}
	switch rpc.DomainState(r.state) {
	case rpc.DomainRunning, rpc.DomainBlocked, rpc.DomainShutdown:
		f.State = hyper.Running
	case rpc.DomainShutoff, rpc.DomainCrashed:
		f.State = hyper.Gone
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[id] = &knownMachine{proc: p.process, sockets: sockets}
	return f, nil
}

func (l *Libvirt) anyBelow(paths []string) bool {
	for _, path := range paths {
		if l.below(path) {
			return true
		}
	}
	return false
}

// Observe reads the threads of the machine's process. Reading where memory is bound walks the machine's page tables, so do it
// before the guest has filled its memory.
func (l *Libvirt) Observe(_ context.Context, id string) (numa.Observed, error) {
	p, _, err := l.find(id)
	if err != nil {
		return numa.Observed{}, fmt.Errorf("observe machine %s: %w", id, err)
	}
	if p.pid == 0 {
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

// Sweep kills processes of ours that libvirt does not know, and tells libvirt to drop domains of ours that have no process.
// It does nothing while the daemon is away: unknown is not gone.
func (l *Libvirt) Sweep(ctx context.Context) error {
	// Processes first: libvirt knows a domain before it starts the process, so what runs and is then not listed is an orphan.
	procs, err := machineProcesses()
	if err != nil {
		return err
	}
	domains, err := call(ctx, l, func(s *session) ([]rpc.Domain, error) {
		d, _, err := s.ConnectListAllDomains(1, 0)
		return d, err
	})
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	listed := map[string]bool{}
	for _, d := range domains {
		listed[formatUUID(d.UUID)] = true
	}
	var errs []error
	for id, p := range procs {
		if listed[id] || l.isStarting(id) {
			continue
		}
		sockets := p.sockets()
		if !l.anyBelow(sockets) {
			continue
		}
		if err := p.kill(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("sweep process %d of machine %s: %w", p.pid, id, err))
			continue
		}
		l.forget(id)
		l.removeSockets(sockets)
	}
	return errors.Join(append(errs, l.dropEmpty(ctx, domains))...)
}

// dropEmpty ends domains of ours that have no process: libvirt does so by itself, except when it missed the end.
func (l *Libvirt) dropEmpty(ctx context.Context, domains []rpc.Domain) error {
	ours := domains[:0]
	for _, d := range domains {
		// Asked before the processes are read, or a machine that finishes starting in between would look dead.
		if strings.HasPrefix(d.Name, namePrefix) && !l.isStarting(formatUUID(d.UUID)) {
			ours = append(ours, d)
		}
	}
	procs, err := machineProcesses()
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range ours {
		if p, ok := procs[formatUUID(d.UUID)]; ok && p.alive() {
			continue
		}
		_, err := call(ctx, l, func(s *session) (struct{}, error) {
			text, err := s.DomainGetXMLDesc(d, 0)
			if err != nil {
				return struct{}{}, err
			}
			sockets, metadata, err := describe(text)
			if err != nil || metadata == nil || !l.anyBelow(sockets) {
				return struct{}{}, err
			}
			return struct{}{}, s.DomainDestroyFlags(d, rpc.DomainDestroyDefault)
		})
		if k := kind(err); err != nil && k != farm.NotFound && k != farm.Conflict {
			errs = append(errs, fmt.Errorf("sweep domain %s: %w", d.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (l *Libvirt) isStarting(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starting[id]
}

// readHost takes from libvirt's capabilities what domains depend on.
func (l *Libvirt) readHost(text string) (host, [2]int, error) {
	var caps struct {
		Cells []struct {
			ID       int `xml:"id,attr"`
			Siblings []struct {
				ID    int `xml:"id,attr"`
				Value int `xml:"value,attr"`
			} `xml:"distances>sibling"`
		} `xml:"host>topology>cells>cell"`
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
	h := host{accel: l.cfg.Accelerator, whyTCG: l.cfg.WhyTCG, numa: len(caps.Cells) > 0, qboot: findQboot(),
		distance: map[int]map[int]int{}}
	for _, c := range caps.Cells {
		h.distance[c.ID] = map[int]int{}
		for _, s := range c.Siblings {
			h.distance[c.ID][s.ID] = s.Value
		}
	}
	owner := [2]int{os.Getuid(), os.Getgid()}
	for _, m := range caps.Models {
		if m.Model != "dac" || len(m.Labels) == 0 {
			continue
		}
		h.label = m.Labels[0].Text
		uid, gid, _ := strings.Cut(h.label, ":")
		var err1, err2 error
		owner[0], err1 = strconv.Atoi(strings.TrimPrefix(uid, "+"))
		owner[1], err2 = strconv.Atoi(strings.TrimPrefix(gid, "+"))
		if err := errors.Join(err1, err2); err != nil {
			return host{}, owner, fmt.Errorf("read libvirt's DAC label %q: %w", h.label, err)
		}
	}
	return h, owner, nil
}

func portPaths(ports []hyper.Port) []string {
	var paths []string
	for _, p := range ports {
		paths = append(paths, p.Path)
	}
	return paths
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
