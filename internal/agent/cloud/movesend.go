package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

const (
	moveLook  = time.Second      // between looks at the progress
	moveStall = 2 * time.Minute  // without a byte more: the move has failed
	moveTell  = 10 * time.Second // between attempts to tell the target
)

var errMoveCancelled = &farm.Error{Kind: farm.Conflict, Code: CodeMoveCancelled, Message: "the move was cancelled",
	Hint: "order it again when it is wanted"}

// departure is a move of a VM to another host. The VM's lock guards it.
type departure struct {
	*VM
	progress hyper.MoveProgress
}

// send moves the VM to another host, or notes why not. It is watched meanwhile: whoever wants something else of the VM
// ends the move.
func (v *departure) send() error {
	w, _ := v.newest()
	o, m := w.Move, v.Current()
	if o == nil { // taken back since this step was chosen: the next one goes by that
		return nil
	}
	out := moveOut{ID: o.ID, Host: o.Host, Name: o.Name, Address: o.Address, Phase: fleet.MoveCopying}
	switch {
	case o.Cancel:
		return v.staysHere(out, errMoveCancelled)
	case m == nil:
		return v.staysHere(out, badMove(nil, "the VM does not run",
			"a VM that is stopped is not moved: start it first"))
	}
	if err := v.keep(func(r *record) { r.Out = &out }); err != nil {
		return v.staysHere(out, err)
	}
	ctx, cancel := context.WithCancelCause(v.host.ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	var target *moveConn
	go func() {
		var err error
		target, err = v.handOver(ctx, m, out)
		done <- err
	}()
	err := v.watchMove(cancel, o.ID, m, done)
	if v.host.ctx.Err() != nil {
		return context.Cause(v.host.ctx) // the next agent has it run on
	}
	if err == nil {
		err = v.stillGoes(o.ID)
	}
	if err == nil { // from here on it is the target's
		used := v.usedSoFar()
		out.Phase = fleet.MoveGone
		err = v.keep(func(r *record) { r.Out, r.Boot, r.CPUTime = &out, "", used })
	}
	if err != nil {
		if target != nil {
			_ = target.send(moveLine{Word: wordAbort}) // it learns by the end of the connection, too
			target.Close()
		}
		return v.unmove(err)
	}
	v.host.log.Info("cloud VM has gone to another host", "vm", v.Name, "host", o.Name, "move", o.ID)
	v.tellGone(target)
	target.Close()
	return nil // leaveGone does the rest
}

// watchMove waits until the machine is whole at the target.
func (v *departure) watchMove(cancel context.CancelCauseFunc, id string, m *machine.Machine, done <-chan error) error {
	tick := time.NewTicker(moveLook)
	defer tick.Stop()
	moved, last := time.Now(), hyper.MoveProgress{}
	for {
		select {
		case err := <-done:
			return err
		case <-v.wake:
			if err := v.stillGoes(id); err != nil {
				cancel(err)
			}
		case <-tick.C:
			p, err := v.host.hyper.MoveProgress(v.host.ctx, m.ID)
			if err == nil && p != last {
				last, moved = p, time.Now()
				v.update(func() { v.progress = p })
			}
			if time.Since(moved) > moveStall+moveAnswer {
				cancel(badMove(nil, fmt.Sprintf("nothing was copied for %v", moveStall+moveAnswer),
					"see whether both hosts and their network are well"))
			}
		}
	}
}

// stillGoes is nil as long as the move is wanted, and nothing else of the VM.
func (v *departure) stillGoes(id string) error {
	w, unlisted := v.newest()
	r := v.recordNow()
	switch {
	case !unlisted && (w.Move == nil || w.Move.ID != id || w.Move.Cancel):
		return errMoveCancelled
	case farm.Power(w.Power) != farm.PowerOn || w.Boots > r.Boots || w.Builds > r.Builds:
		return badMove(errMoveCancelled, "something else was wanted of the VM", "order the move again")
	}
	return nil
}

// usedSoFar is the CPU time of the VM on all hosts.
func (v *departure) usedSoFar() time.Duration {
	v.observed()
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.record.CPUTime + v.used
}

// handOver goes through the steps of a move until the machine is whole at the target, and stopped on both sides. The
// connection that it returns is the caller's to close.
func (v *departure) handOver(ctx context.Context, m *machine.Machine, o moveOut) (target *moveConn, err error) {
	h := v.host
	described, err := h.hyper.Describe(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	if target, err = h.dialMove(ctx, o, v.opens(o, moveControl)); err != nil {
		return nil, err
	}
	c := target // the result is nil by the time that ctx ends
	defer context.AfterFunc(ctx, func() { c.Close() })()
	failed := func(err error) (*moveConn, error) {
		c.Close()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if own := new(farm.Error); !errors.As(err, &own) {
			err = badMove(err, "the connection to host "+o.Name+" was lost",
				"see the log of its agent, and order the move again")
		}
		return nil, err
	}
	if err := v.sendSeed(ctx, m, o); err != nil {
		return failed(err)
	}
	fitted, err := target.ask(moveLine{Body: described})
	if err != nil {
		return failed(err)
	}
	cookie, err := h.hyper.BeginMove(ctx, m.ID, fitted.Body)
	if err != nil {
		return failed(err)
	}
	awaited, err := target.ask(moveLine{Cookie: cookie})
	if err != nil {
		return failed(err)
	}
	at, closeSockets, err := v.openSockets(ctx, m, o)
	if err != nil {
		return failed(err)
	}
	defer closeSockets()
	if cookie, err = h.hyper.Send(ctx, m.ID, awaited.Cookie, at); err != nil {
		return failed(err)
	}
	whole, err := target.ask(moveLine{Cookie: cookie})
	if err == nil && whole.Word != wordWhole {
		err = fmt.Errorf("unexpected word %.20q", whole.Word)
	}
	if err != nil {
		return failed(err)
	}
	return target, nil
}

func (v *departure) opens(o moveOut, kind string) moveLine {
	return moveLine{Kind: kind, Move: o.ID, VM: v.ID}
}

// sendSeed brings the seed of a full image to the target: its guest may have it mounted, so it must be the same, byte
// for byte.
func (v *departure) sendSeed(ctx context.Context, m *machine.Machine, o moveOut) error {
	f, err := os.Open(filepath.Join(m.Disks, disk.SeedFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	open := v.opens(o, moveSeed)
	open.Size = info.Size()
	c, err := v.host.dialMove(ctx, o, open)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := io.CopyN(c, f, info.Size()); err != nil {
		return err
	}
	_, err = c.receive(moveAnswer)
	return err
}

// openSockets listens where the hypervisor sends to, and takes it to the target.
func (v *departure) openSockets(ctx context.Context, m *machine.Machine, o moveOut) (at hyper.MoveSockets,
	closeAll func(), err error) {
	at = m.MoveSockets()
	dir := filepath.Dir(at.Memory)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o711)); err != nil {
		return at, nil, err
	}
	uid := os.Getuid()
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", m.Applied.PID)); err == nil && m.Applied.PID != 0 {
		uid = int(info.Sys().(*syscall.Stat_t).Uid)
	}
	ctx, cancel := context.WithCancel(ctx)
	closeAll = func() {
		cancel()
		os.RemoveAll(dir)
	}
	for kind, path := range map[string]string{moveMemory: at.Memory, moveDisks: at.Disks} {
		l, err := net.Listen("unix", path)
		if err == nil {
			context.AfterFunc(ctx, func() { l.Close() })
			// root, as which libvirt may connect, needs no right
			err = errors.Join(os.Chown(path, uid, -1), os.Chmod(path, 0o600))
		}
		if err != nil {
			closeAll()
			return at, nil, err
		}
		go v.forward(ctx, l, o, kind)
	}
	return at, closeAll, nil
}

// forward takes each connection of the hypervisor to the target.
func (v *departure) forward(ctx context.Context, l net.Listener, o moveOut, kind string) {
	for {
		local, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			remote, err := v.host.dialMove(ctx, o, v.opens(o, kind))
			if err != nil {
				v.host.log.Warn("a connection of a move is not made", "vm", v.Name, "kind", kind, "error", err)
				local.Close()
				return
			}
			defer context.AfterFunc(ctx, func() { local.Close(); remote.Close() })()
			carry(local.(*net.UnixConn), remote)
		}()
	}
}

// unmove has the VM run on here, and notes why it did not go.
func (v *departure) unmove(why error) error {
	out := *v.recordNow().Out
	if m := v.Current(); m != nil {
		ctx, cancel := context.WithTimeout(v.host.ctx, makeLimit)
		defer cancel()
		if err := v.host.hyper.CancelMove(ctx, m.ID); err != nil && !farm.IsKind(err, farm.NotFound) {
			return err // stumble has it tried again
		}
		m.SetClock()
	}
	return v.staysHere(out, why)
}

func (v *departure) staysHere(out moveOut, why error) error {
	out.Phase, out.Reason = fleet.MoveFailed, reasonOf(why)
	v.host.log.Warn("cloud VM stays on this host", "vm", v.Name, "move", out.ID, "target", out.Name,
		"reason", why)
	return v.keep(func(r *record) { r.Out = &out })
}

// tellGone has the target run the VM, and notes that it does. What comes of it is no concern of this host any more.
func (v *departure) tellGone(target *moveConn) error {
	answer, err := target.ask(moveLine{Word: wordGo, CPUTime: v.recordNow().CPUTime.Seconds()})
	if err == nil && answer.Word != wordCome {
		err = fmt.Errorf("unexpected word %.20q", answer.Word)
	}
	if err != nil {
		v.host.log.Warn("the target of a move does not answer; the order is sent again", "vm", v.Name, "error", err)
		return err
	}
	return v.keep(func(r *record) { r.Out.Told = true })
}

// leaveGone ends what is left here of a VM that has gone, and sees that the target knows. Its disks stay until the
// server says that it is elsewhere.
func (v *departure) leaveGone() error {
	if m := v.Current(); m != nil {
		v.host.Usage.Tell(v.ID, func(u *api.Usage) { u.Ended = api.EndedMoved })
		if err := v.ending.kill(m); err != nil {
			return err
		}
		v.guest.settleTicket(breaker.Nobody, "")
		v.ending.leave()
	}
	out := *v.recordNow().Out
	v.is(farm.VMStopped, reasonMoved(out.Name))
	if out.Told {
		return nil
	}
	c, err := v.host.dialMove(v.host.ctx, out, v.opens(out, moveVerdict))
	if err != nil {
		return err
	}
	defer c.Close()
	return v.tellGone(c)
}

func reasonMoved(host string) string { return "moved: the VM has gone to host " + host }
