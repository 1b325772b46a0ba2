package libvirt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// Moves go by the steps of libvirt's migration protocol, version 3, which virDomainMigrate would drive from one process
// that reaches both daemons: Begin, Perform and Confirm at the source, Prepare and Finish at the target. Each agent
// calls those of its own daemon.
//
// libvirt ties a migration to the connection that began it: when that is closed, it ends the machine that waits at a
// target, and lets the one at a source be. So a move has a connection of its own, and an agent that dies leaves no
// machine waiting.

// Flags of both sides. Of an overlay the target has the image beneath: what the guest wrote is copied alone. A guest
// that writes faster than can be copied is slowed down until it can.
const (
	moveFlags = rpc.MigrateLive | rpc.MigrateChangeProtection | rpc.MigrateAutoConverge | rpc.MigratePaused
	diskFlags = moveFlags | rpc.MigrateNonSharedInc
)

// moving is a move that this process has begun, at either side.
type moving struct {
	s     *session
	disks []string // those that are copied, by the names that libvirt gives them
}

func (v moving) flags() rpc.DomainMigrateFlags {
	if len(v.disks) == 0 {
		return moveFlags
	}
	return diskFlags
}

// params are a call's parameters.
func (v moving) params(at hyper.MoveSockets, more ...rpc.TypedParam) []rpc.TypedParam {
	if at.Memory != "" {
		more = append(more, textParam("migrate_uri", "unix://"+at.Memory))
	}
	if at.Disks != "" && len(v.disks) > 0 {
		more = append(more, textParam("disks_uri", "unix://"+at.Disks))
	}
	for _, d := range v.disks {
		more = append(more, textParam("migrate_disks", d))
	}
	return more
}

func textParam(name, value string) rpc.TypedParam {
	return rpc.TypedParam{Field: name, Value: *rpc.NewTypedParamValueString(value)}
}

// Describe returns the machine as libvirt describes it for another host.
func (l *Libvirt) Describe(ctx context.Context, id string) ([]byte, error) {
	var text string
	err := l.onDomain(ctx, "describe", id, func(s *session, d rpc.Domain) (err error) {
		text, err = s.DomainGetXMLDesc(d, rpc.DomainXMLMigratable|rpc.DomainXMLSecure)
		return err
	})
	return []byte(text), err
}

// Fit returns m's domain as the guest has seen it elsewhere.
func (l *Libvirt) Fit(ctx context.Context, m hyper.Machine, description []byte) ([]byte, error) {
	h, _, err := l.hostFor(ctx)
	if err != nil {
		return nil, err
	}
	own, _, err := h.domain(m)
	if err != nil {
		return nil, err
	}
	fitted, err := fit(own, description)
	if err != nil {
		return nil, err
	}
	if h.accel == KVM {
		err = l.canDo(ctx, h, fitted)
	}
	return []byte(fitted), err
}

// hostFor is what this host's domains depend on, once all of it is known.
func (l *Libvirt) hostFor(ctx context.Context) (host, *session, error) {
	s, verdict, err := l.runsOn(ctx)
	if err != nil {
		return host{}, nil, err
	}
	h := s.host
	h.accel, h.whyTCG = verdict.Accelerator, verdict.Why
	// Not kept with the session: who installs firmware, as CodeNoFirmware's error says, need not restart the agent.
	h.qboot, h.ovmf = firstFile(qbootPaths), firstFile(ovmfPaths)
	if s.owner[0] == 0 {
		return h, s, rootQEMU()
	}
	return h, s, nil
}

// canDo asks libvirt whether QEMU and KVM of this host can do all that the guest's processor was shown to do.
func (l *Libvirt) canDo(ctx context.Context, h host, fitted string) error {
	var d libvirtxml.Domain
	if err := d.Unmarshal(fitted); err != nil {
		return err
	}
	cpu := compared(*d.CPU, h.hardware.CPU)
	text, err := cpu.Marshal()
	if err != nil {
		return err
	}
	opt := func(s string) rpc.OptString { return rpc.OptString{s} }
	_, err = call(ctx, l.daemon, func(s *session) (int32, error) {
		return s.ConnectCompareHypervisorCPU(opt(h.emulator), opt("x86_64"), opt(d.OS.Type.Machine), opt(d.Type), text,
			uint32(rpc.ConnectCompareCPUFailIncompatible))
	})
	if kind(err) == farm.Unavailable || err == nil {
		return err
	}
	own := new(farm.Error)
	errors.As(err, &own)
	return &farm.Error{Kind: farm.Conflict, Code: hyper.CodeCPU,
		Message: "this host's processor cannot do all that the guest was shown: " + own.Message,
		Hint: "move it to a host of the same kind, or give its shape a CPU model that both have, and have it made " +
			"anew"}
}

// compared is what of a guest's processor libvirt is to compare with this host's. It takes a host for one without
// topoext, as QEMU never turns that on by itself; whether the processor has it we see ourselves.
func compared(guest libvirtxml.DomainCPU, here farm.CPUModel) libvirtxml.DomainCPU {
	guest.Topology, guest.Numa = nil, nil
	if slices.Contains(here.Flags, topoext) {
		guest.Features = slices.DeleteFunc(slices.Clone(guest.Features),
			func(f libvirtxml.DomainCPUFeature) bool { return f.Name == topoext })
	}
	return guest
}

// BeginMove has libvirt compare the fitted machine with the one that runs, and keep it from being changed.
func (l *Libvirt) BeginMove(ctx context.Context, id string, fitted []byte) ([]byte, error) {
	disks, err := writable(string(fitted))
	if err != nil {
		return nil, err
	}
	d, err := domainOf(id)
	if err != nil {
		return nil, err
	}
	v, err := l.moves.begin(id, disks)
	if err != nil {
		return nil, err
	}
	cookie, err := moveStep(ctx, l.daemon, v, "begin", func() ([]byte, error) {
		cookie, _, err := v.s.DomainMigrateBegin3Params(d,
			v.params(hyper.MoveSockets{}, textParam("destination_xml", string(fitted))), uint32(v.flags()))
		return cookie, err
	})
	if err != nil {
		l.moves.end(id)
		return nil, fmt.Errorf("move machine %s: %w", id, err)
	}
	return cookie, nil
}

// Await makes the machine that the other side's Send fills.
func (l *Libvirt) Await(ctx context.Context, m hyper.Machine, fitted, cookie []byte,
	at hyper.MoveSockets) (hyper.Applied, []byte, error) {
	h, s, err := l.hostFor(ctx)
	if err != nil {
		return hyper.Applied{}, nil, err
	}
	_, applied, err := h.domain(m)
	if err != nil {
		return hyper.Applied{}, nil, err
	}
	disks, err := writable(string(fitted))
	if err != nil {
		return hyper.Applied{}, nil, err
	}
	own := h.ownProfile()
	if _, err := l.machines.claim(m, s, own); err != nil {
		return hyper.Applied{}, nil, err
	}
	defer l.machines.release(m.ID)
	if l.confine(ctx, &h, m); own != h.ownProfile() { // what Fit wrote counts on it
		l.machines.forget(m.ID)
		return hyper.Applied{}, nil, misfit("its AppArmor profile is not loaded: %s", h.noProfile)
	}
	v, err := l.moves.begin(m.ID, disks)
	if err != nil {
		l.machines.forget(m.ID)
		return hyper.Applied{}, nil, err
	}
	answer, err := prepare(ctx, l.daemon, v, cookie,
		v.params(at, textParam("destination_name", m.Name), textParam("destination_xml", string(fitted))))
	if err == nil {
		var p *process
		if p, err = l.machines.made(m.ID); err == nil {
			applied.Confinement, err = h.confinement(p.pid, m.ID)
		}
		if err == nil {
			applied.PID, applied.Started, applied.UID = p.pid, p.start, m.UID
			return applied, answer, nil
		}
	}
	l.moves.end(m.ID)
	l.machines.kill(m.ID)
	l.machines.forget(m.ID)
	return hyper.Applied{}, nil, fmt.Errorf("await machine %s: %w", m.ID, err)
}

// forgets is how long libvirt may take to see that a process has ended.
const forgets = 5 * time.Second

// prepare makes the process that waits for a machine. libvirt may still believe that the one of an earlier try runs,
// which was killed a moment ago.
func prepare(ctx context.Context, d *daemon, v moving, cookie []byte, params []rpc.TypedParam) (answer []byte,
	err error) {
	for end := time.Now().Add(forgets); ; {
		answer, err = moveStep(ctx, d, v, "prepare", func() ([]byte, error) {
			answer, _, err := v.s.DomainMigratePrepare3Params(params, cookie, uint32(v.flags()))
			return answer, err
		})
		if kind(err) != farm.Conflict || time.Now().After(end) {
			return answer, err
		}
		select {
		case <-time.After(forgets / 50):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Send copies the machine. It takes as long as that takes: whoever calls watches MoveProgress.
func (l *Libvirt) Send(ctx context.Context, id string, cookie []byte, at hyper.MoveSockets) ([]byte, error) {
	v, d, err := l.moves.of(id)
	if err != nil {
		return nil, err
	}
	type result struct {
		answer []byte
		err    error
	}
	done := make(chan result, 1)
	go func() {
		answer, err := v.s.DomainMigratePerform3Params(d, nil, v.params(at), cookie, v.flags())
		done <- result{answer, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			r.err = fmt.Errorf("move machine %s: %w", id, l.daemon.wrap(v.s, r.err))
		}
		return r.answer, r.err
	case <-v.s.ended:
		return nil, l.daemon.away(errConnection)
	case <-ctx.Done():
	}
	l.abort(d)
	select {
	case <-done:
	case <-v.s.ended:
	case <-time.After(callTimeout):
	}
	return nil, context.Cause(ctx)
}

var errConnection = errors.New("the connection of the move was lost")

// abort ends libvirt's job on a domain, if there is one.
func (l *Libvirt) abort(d rpc.Domain) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, _ = call(ctx, l.daemon, func(s *session) (struct{}, error) { return struct{}{}, s.DomainAbortJob(d) })
}

// MoveProgress reads libvirt's figures of memory and disks.
func (l *Libvirt) MoveProgress(ctx context.Context, id string) (p hyper.MoveProgress, err error) {
	err = l.onDomain(ctx, "progress of", id, func(s *session, d rpc.Domain) error {
		_, _, _, total, done, _, _, _, _, _, _, _, err := s.DomainGetJobInfo(d)
		p = hyper.MoveProgress{Total: farm.Bytes(total), Done: farm.Bytes(done)}
		return err
	})
	return p, err
}

// Arrive ends the migration at the target. The machine is one like any other then, and outlives the agent.
func (l *Libvirt) Arrive(ctx context.Context, m hyper.Machine, cookie []byte) error {
	v, _, err := l.moves.of(m.ID)
	if err != nil {
		return err
	}
	_, err = moveStep(ctx, l.daemon, v, "finish", func() ([]byte, error) {
		_, answer, err := v.s.DomainMigrateFinish3Params(v.params(hyper.MoveSockets{},
			textParam("destination_name", m.Name)), cookie, uint32(v.flags()), 0)
		return answer, err
	})
	l.moves.end(m.ID)
	if err != nil {
		return fmt.Errorf("machine %s does not arrive: %w", m.ID, err)
	}
	return nil
}

// CancelMove ends libvirt's migration, which lets the machine run on where it was stopped for it. Of a migration that
// another process began, or that libvirt was restarted under, nothing may be left but a machine that is stopped.
func (l *Libvirt) CancelMove(ctx context.Context, id string) error {
	d, err := domainOf(id)
	if err != nil {
		return err
	}
	if p, err := l.machines.find(id); err != nil {
		return err
	} else if p == nil {
		l.moves.end(id)
		return hyper.NoMachine(id)
	}
	_, confirm := call(ctx, l.daemon, func(s *session) (struct{}, error) {
		return struct{}{}, s.DomainMigrateConfirm3Params(d, nil, nil, uint32(moveFlags&^rpc.MigratePaused), 1)
	})
	if kind(confirm) == farm.Unavailable {
		return confirm
	}
	l.moves.end(id)
	state, err := l.State(ctx, id)
	if err == nil && state == hyper.Paused {
		err = l.Resume(ctx, id)
	}
	if err != nil && confirm != nil {
		err = errors.Join(err, confirm)
	}
	return err
}

// moves are those under way, each with a connection of its own.
type moves struct {
	daemon *daemon
	mu     sync.Mutex
	under  map[string]moving // by machine
}

// begin opens the connection of a move, in place of one that an earlier attempt left.
func (o *moves) begin(id string, disks []string) (moving, error) {
	o.end(id)
	s, err := o.daemon.connect()
	if err != nil {
		return moving{}, o.daemon.away(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.under[id] = moving{s, disks}
	return o.under[id], nil
}

func (o *moves) end(id string) {
	o.mu.Lock()
	v, ok := o.under[id]
	delete(o.under, id)
	o.mu.Unlock()
	if ok {
		v.s.conn.Close()
	}
}

func (o *moves) endAll() {
	o.mu.Lock()
	all := slices.Collect(maps.Keys(o.under))
	o.mu.Unlock()
	for _, id := range all {
		o.end(id)
	}
}

func (o *moves) of(id string) (moving, rpc.Domain, error) {
	d, err := domainOf(id)
	if err != nil {
		return moving{}, d, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.under[id]
	if !ok {
		return v, d, &farm.Error{Kind: farm.Conflict, Code: hyper.CodeRefused,
			Message: fmt.Sprintf("no move of machine %s is under way", id)}
	}
	return v, d, nil
}

// moveStep is one call on a move's connection.
func moveStep[T any](ctx context.Context, d *daemon, v moving, what string, f func() (T, error)) (T, error) {
	var zero T
	if err := context.Cause(ctx); err != nil {
		return zero, err
	}
	t, err := within(d, v.s, callTimeout, what, f)
	if answer := new(rpc.Error); err != nil && errors.As(err, answer) {
		return zero, d.wrap(v.s, *answer)
	}
	if err != nil {
		return zero, d.away(err)
	}
	return t, nil
}

// writable are the names of a domain's disks that are copied.
func writable(text string) (names []string, err error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil || d.Devices == nil {
		return nil, misfit("what the other host made of it cannot be read: %v", err)
	}
	for _, disk := range d.Devices.Disks {
		if disk.ReadOnly == nil && disk.Target != nil {
			names = append(names, disk.Target.Dev)
		}
	}
	return names, nil
}

// domainOf is a machine's domain: libvirt looks at the UUID alone.
func domainOf(id string) (rpc.Domain, error) {
	uuid, err := parseUUID(id)
	if err != nil {
		return rpc.Domain{}, hyper.NoMachine(id)
	}
	return rpc.Domain{Name: "grange", UUID: uuid, ID: -1}, nil
}
