package cloud

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/vmimage"
)

const maxSeed = 256 << 20

// arrival is a move of a VM to this host. The VM's lock guards it.
type arrival struct {
	*VM
	waitsAt  string           // where the source finds this host; "": nothing waits
	incoming *machine.Machine // whose sockets take what a move brings; nil: there is none

	controls chan *moveConn // of sources; run takes them
}

// receive takes the VM of another host, as far as that goes: until it runs here, or it is known that it will not. What
// came of it is in the record.
func (v *arrival) receive() error {
	w, _ := v.newest()
	r := v.recordNow()
	switch {
	case r.In != nil && r.In.Phase == inCome:
		return v.come()
	// of an attempt before
	case r.In != nil && w.Move != nil && w.Move.ID != r.In.ID, r.In == nil && r.Plan.VCPUs != nil:
		return v.dropIncoming(nil)
	case r.In != nil && r.In.Phase == inWhole:
		return v.awaitVerdict(nil)
	case w.Move == nil && r.In != nil: // taken back while no agent was there
		return v.dropIncoming(errMoveCancelled)
	case w.Move == nil: // taken back since this step was chosen: the next one goes by that
		return nil
	}
	in := moveIn{ID: w.Move.ID, Host: w.Move.Host, Name: w.Move.Name}
	if err := v.keep(func(r *record) { r.In = &in }); err != nil {
		return err
	}
	v.is(farm.VMStarting, "moves here from host "+in.Name)
	c, err := v.takeIn(w.Move.Digest)
	if v.host.ctx.Err() != nil {
		return context.Cause(v.host.ctx)
	}
	if err != nil {
		return v.dropIncoming(err)
	}
	return v.awaitVerdict(c)
}

// dropIncoming leaves nothing here of a VM that is another host's; why: this host cannot have it, and the server is
// told; nil: it may be tried anew.
func (v *arrival) dropIncoming(why error) error {
	m := v.Current()
	if m == nil {
		m = v.host.Machines.NewCloud(v.ID, v.Name)
	}
	if err := v.ending.kill(m); err != nil {
		return err
	}
	v.ending.leave()
	if err := removeDisks(m.Disks, func(name string) bool { return name != recordFile }); err != nil {
		return err
	}
	v.host.ledger.Release(v.ID)
	if why != nil {
		v.host.log.Warn("cloud VM of another host does not come here", "vm", v.Name, "error", why)
		v.is(farm.VMFailed, reasonOf(why))
	}
	return v.keep(func(r *record) {
		in := r.In
		if *r = (record{Version: r.Version, Created: r.Created, Wanted: r.Wanted, Out: r.Out}); why != nil &&
			in != nil {
			r.In = &moveIn{ID: in.ID, Host: in.Host, Name: in.Name, Phase: inFailed, Reason: reasonOf(why)}
		}
	})
}

// takeIn makes room for the VM, waits for its source, and returns when all of it is here, proven, and not running. The
// connection is for the source's last word.
func (v *arrival) takeIn(digest string) (*moveConn, error) {
	ctx, cancel := context.WithCancelCause(v.host.ctx)
	defer cancel(nil)
	m := v.host.Machines.NewCloud(v.ID, v.Name)
	m.KeepConsole()
	if err := v.ending.kill(m); err != nil { // what an earlier agent left
		return nil, err
	}
	if err := v.host.Images.Ensure(ctx, digest, func(vmimage.Progress) {}); err != nil {
		return nil, noSuchImage(digest, err)
	}
	image, release, err := v.host.images.Acquire(digest)
	if err != nil {
		return nil, noSuchImage(digest, err)
	}
	defer release()
	if err := v.claimIncoming(image); err != nil {
		return nil, err
	}
	spec, err := v.readyMachine(ctx, m, image)
	if err != nil {
		return nil, err
	}
	address, stop, err := v.host.moves.listen()
	if err != nil {
		return nil, err
	}
	defer stop()
	v.expectSockets(m)
	defer v.expectSockets(nil)
	v.update(func() { v.waitsAt = address })
	defer v.update(func() { v.waitsAt = "" })
	c, err := v.awaitControl(ctx)
	if err != nil {
		return nil, err
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		v.watchIncoming(ctx, cancel, c)
	}()
	err = v.goThrough(ctx, m, spec, image, c)
	cancel(nil)
	<-watched
	if err != nil {
		c.refuse(err)
		c.Close()
		return nil, err
	}
	return c, nil
}

// watchIncoming ends the connection when the VM is not to come any more.
func (v *arrival) watchIncoming(ctx context.Context, cancel context.CancelCauseFunc, c *moveConn) {
	for {
		select {
		case <-v.wake:
			if err := v.stillComes(); err != nil {
				cancel(err)
				c.Close()
				v.poke() // for the step behind
				return
			}
		case <-ctx.Done():
			if v.host.ctx.Err() != nil {
				c.Close()
			}
			return
		}
	}
}

// stillComes is nil as long as the server wants the VM to come here by the move that the record has.
func (v *arrival) stillComes() error {
	w, unlisted := v.newest()
	in := v.recordNow().In
	if unlisted || in != nil && farm.Power(w.Power) != farm.PowerDeleted && w.Move != nil && w.Move.ID == in.ID {
		return nil
	}
	return errMoveCancelled
}

// claimIncoming takes room for the VM by this host's own plan.
func (v *arrival) claimIncoming(image vmimage.Image) error {
	w, _ := v.newest()
	shape, err := v.host.wantedShape(w)
	if err != nil {
		return err
	}
	if err := v.host.Machines.Refusal(); err != nil {
		return err
	}
	planner, err := v.host.planner(shape, nil)
	if err != nil {
		return err
	}
	plan, err := v.host.ledger.ClaimCloud(v.ID, v.holder(), "", v.charge(image, shape), planner)
	if err != nil {
		return err
	}
	return v.keep(func(r *record) {
		r.Plan, r.Shape, r.Image, r.Digest, r.Disks = plan, shape, image.Name, image.Digest, false
		r.Boots, r.Builds, r.Fresh = w.Boots, w.Builds, w.Fresh
	})
}

// awaitControl waits for the source.
func (v *arrival) awaitControl(ctx context.Context) (*moveConn, error) {
	for {
		select {
		case c := <-v.controls:
			if c.open.Kind == moveControl {
				return c, c.send(moveLine{Word: wordOK})
			}
			c.refuse(badMove(nil, "the VM is not here", ""))
			c.Close()
		case <-v.wake:
			if err := v.stillComes(); err != nil {
				v.poke()
				return nil, err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// goThrough is the target's part of the steps.
func (v *arrival) goThrough(ctx context.Context, m *machine.Machine, spec hyper.Machine, image vmimage.Image,
	c *moveConn) error {
	h := v.host
	described, err := c.receive(moveAnswer)
	if err != nil {
		return lostSource(ctx, err)
	}
	fitted, err := h.hyper.Fit(ctx, spec, described.Body)
	if err != nil {
		return err
	}
	if err := c.send(moveLine{Body: fitted}); err != nil {
		return lostSource(ctx, err)
	}
	begun, err := c.receive(moveAnswer)
	if err != nil {
		return lostSource(ctx, err)
	}
	at := m.MoveSockets()
	dir := filepath.Dir(at.Memory)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.Chown(dir, m.User.UID, m.User.GID)); err != nil {
		return err
	}
	applied, cookie, err := h.hyper.Await(ctx, spec, fitted, begun.Cookie, at)
	if err != nil {
		return err
	}
	m.Applied = applied
	if err := machine.CloseSockets(spec); err != nil {
		return err
	}
	if err := h.Machines.Fence(ctx, networkVM(m.Name, v.recordNow()), applied.PID); err != nil {
		return err
	}
	if err := h.Machines.Proven(ctx, m, spec, v.ID); err != nil { // before a byte is copied
		return err
	}
	if err := c.send(moveLine{Cookie: cookie}); err != nil {
		return lostSource(ctx, err)
	}
	sent, err := c.receive(0) // as long as it takes: the source watches it, and both ends see it when the other goes
	if err != nil {
		return lostSource(ctx, err)
	}
	if err := h.hyper.Arrive(ctx, spec, sent.Cookie); err != nil {
		return err
	}
	if err := h.Machines.Proven(ctx, m, spec, v.ID); err != nil {
		return err
	}
	return v.whole(m, image, c)
}

func lostSource(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if own := new(farm.Error); errors.As(err, &own) {
		return err
	}
	return badMove(err, "the connection of the source was lost", "see the log of its agent")
}

// whole writes down that all is here before the source hears of it: an agent that comes after this one keeps the
// machine for the source's word.
func (v *arrival) whole(m *machine.Machine, image vmimage.Image, c *moveConn) error {
	err := m.KeepApplied()
	names, e := disk.Names(m.Disks)
	err = errors.Join(err, e)
	for _, name := range names {
		if e := atomicfile.SyncDir(filepath.Join(m.Disks, name)); err == nil && !errors.Is(e, os.ErrNotExist) {
			err = e
		}
	}
	if err == nil {
		err = v.keep(func(r *record) { r.In.Phase, r.Disks = inWhole, true })
	}
	if err != nil {
		return err
	}
	m.Control.Know(v.ID)
	v.guest.follow(m)
	m.Watch()
	v.mu.Lock()
	v.machine, v.told = m, false
	v.mu.Unlock()
	v.host.Jobs.Go(func() { v.attend(m, image.Kind) })
	return c.send(moveLine{Word: wordWhole})
}

// awaitVerdict waits for the source's word, by whatever way it comes: c, nil when it has been lost, another connection,
// or the server.
func (v *arrival) awaitVerdict(c *moveConn) error {
	_, stop, err := v.host.moves.listen()
	if err != nil {
		return err
	}
	defer stop()
	words := make(chan verdict, 4)
	listen := func(c *moveConn) {
		go func() {
			l, err := c.receive(0)
			words <- verdict{c, l, err}
		}()
	}
	if c != nil {
		listen(c)
		defer c.Close()
	}
	for {
		select {
		case d := <-words:
			if d.err != nil && !farm.IsCode(d.err, farm.CodeMoveFailed) {
				d.conn.Close()
				continue // the source comes again, or the server knows
			}
			return v.judge(d)
		case c := <-v.controls:
			if c.open.Kind != moveVerdict {
				c.refuse(badMove(nil, "the VM is here already", ""))
				c.Close()
				continue
			}
			defer c.Close()
			if c.send(moveLine{Word: wordOK}) == nil {
				listen(c)
			}
		case <-v.wake:
			if done, err := v.serverKnows(); done {
				return err
			}
		case <-v.host.ctx.Done():
			return context.Cause(v.host.ctx)
		}
	}
}

// verdict is the source's last word.
type verdict struct {
	conn *moveConn
	line moveLine
	err  error
}

func (v *arrival) judge(d verdict) error {
	if d.line.Word != wordGo {
		return v.dropIncoming(badMove(nil, "the VM stays at its source", ""))
	}
	err := v.keep(func(r *record) {
		r.In.Phase, r.CPUTime = inCome, time.Duration(d.line.CPUTime*float64(time.Second))
	})
	if err == nil {
		err = v.come()
	}
	if err == nil {
		_ = d.conn.send(moveLine{Word: wordCome}) // or it asks again
	}
	return err
}

// serverKnows looks whether the server says whose the VM is: it says so only when the source has.
func (v *arrival) serverKnows() (done bool, err error) {
	w, unlisted := v.newest()
	in := v.recordNow().In
	switch {
	case unlisted:
		return false, nil
	case farm.Power(w.Power) == farm.PowerDeleted:
		v.poke()
		return true, nil // the next step removes it
	case w.Move == nil:
		if err := v.keep(func(r *record) { r.In.Phase = inCome }); err != nil {
			return true, err
		}
		return true, v.come()
	case w.Move.ID != in.ID:
		v.poke()
		return true, v.dropIncoming(nil)
	}
	return false, nil
}

// come has the VM run here, where it is now. A machine that has ended meanwhile is started from its disks, as after a
// crash.
func (v *arrival) come() error {
	m, in := v.Current(), *v.recordNow().In
	if m != nil && m.Control.HasGone() && !v.ending.lives(m) {
		m = nil
	}
	if m != nil {
		ctx, cancel := context.WithTimeout(v.host.ctx, endLimit)
		defer cancel()
		err := v.keep(func(r *record) { r.Ran, r.Boot, r.Since = true, machine.BootID(), time.Now() })
		if err != nil {
			return err
		}
		v.host.Usage.Begin(v.ID, usageOf(v.VM), m.Applied.PID, m.Applied.Started) // from here on it is ours
		if err := v.host.hyper.Resume(ctx, m.ID); err != nil {
			return err
		}
		v.started = time.Now()
		m.SetClock()
	}
	v.host.log.Info("cloud VM has come from another host", "vm", v.Name, "host", in.Name, "move", in.ID)
	err := v.keep(func(r *record) { r.In, r.Came, r.From, r.Out, r.Ran = nil, in.ID, in.Host, nil, true })
	v.poke()
	return err
}

// expects reports whether a VM comes here from a host, by a move.
func (v *arrival) expects(host, move string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	in := v.record.In
	return in != nil && in.Host == host && in.ID == move
}

// takeControl hands a connection to whoever waits for the source.
func (v *arrival) takeControl(c *moveConn) {
	select {
	case v.controls <- c:
	case <-time.After(moveDial):
		c.refuse(badMove(nil, "this host is busy with the VM", "it is tried again"))
		c.Close()
	case <-v.host.ctx.Done():
		c.Close()
	}
}

// expectSockets reports which machine the bytes of the hypervisors are for; nil: for none.
func (v *arrival) expectSockets(m *machine.Machine) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.incoming = m
}

func (v *arrival) expected() *machine.Machine {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.incoming
}

// takeBytes takes a connection of the source's hypervisor to this one.
func (v *arrival) takeBytes(c *moveConn) {
	defer c.Close()
	m := v.expected()
	if m == nil {
		c.refuse(badMove(nil, "nothing is awaited", ""))
		return
	}
	path := m.MoveSockets().Memory
	if c.open.Kind == moveDisks {
		path = m.MoveSockets().Disks
	}
	local, err := net.Dial("unix", path)
	if err != nil {
		c.refuse(badMove(err, "the hypervisor does not listen", ""))
		return
	}
	defer context.AfterFunc(v.host.ctx, func() { local.Close(); c.Close() })()
	if c.send(moveLine{Word: wordOK}) != nil {
		local.Close()
		return
	}
	carry(local.(*net.UnixConn), c)
}

// takeSeed writes the seed that the guest knows.
func (v *arrival) takeSeed(c *moveConn) {
	defer c.Close()
	m := v.expected()
	if m == nil || c.open.Size <= 0 || c.open.Size > maxSeed {
		c.refuse(badMove(nil, "no seed of that size is awaited", ""))
		return
	}
	err := c.send(moveLine{Word: wordOK})
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(filepath.Join(m.Disks, disk.SeedFile), os.O_WRONLY|os.O_TRUNC, 0)
	}
	if err == nil {
		_, err = io.CopyN(f, c, c.open.Size)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		c.refuse(err)
		return
	}
	_ = c.send(moveLine{Word: wordOK}) // who does not read it sees the end
}

// incomingIDs are the VMs that are on their way here, whose room the server does not know to be taken.
func (h *Host) incomingIDs() []string {
	var ids []string
	for _, v := range h.All() {
		w, _ := v.newest()
		if v.recordNow().In != nil || w.Move != nil && w.Move.Come {
			ids = append(ids, v.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
