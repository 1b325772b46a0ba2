package cloud

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// stop ends the machine: its guest is asked to power off, and gets its time. A VM whose disks are to go, or that is to
// be deleted, gets none.
func (v *ending) stop() error {
	m, r := v.Current(), v.recordNow()
	v.is(farm.VMStopping, "")
	v.observed() // and with it what it has used
	if !(r.Builds < r.Wanted.Builds && r.fresh()) {
		v.askToEnd(m)
	}
	if err := v.kill(m); err != nil {
		return err
	}
	v.guest.settleTicket(breaker.Nobody, "")
	used := v.leave()
	v.log().Info("cloud VM stopped")
	return v.keep(func(r *record) { r.Boot, r.CPUTime, r.Since = "", r.CPUTime+used, time.Now() })
}

// askToEnd has the guest power off, and returns when it has, when its time is over, or when the VM is wanted deleted.
// grange-guest is asked as soon as it is heard of: an agent that has just come up has not yet. The power button is for
// guests that it does not answer in, and is pressed again, for one that boots hears it late.
func (v *ending) askToEnd(m *machine.Machine) {
	limit := time.After(v.host.config().StopTimeout)
	again := time.NewTicker(askAgain)
	defer again.Stop()
	told := v.tellToEnd(m)
	for press := !told; ; press = false {
		if press {
			v.pressButton(m)
		}
		heard := m.Control.Now(v.ID)
		if w, _ := v.newest(); heard.Gone || farm.Power(w.Power) == farm.PowerDeleted {
			return
		}
		if !told {
			if told = v.tellToEnd(m); told {
				continue
			}
		}
		select {
		case <-heard.Changed:
		case <-v.wake:
		case <-again.C:
			v.pressButton(m)
		case <-limit:
			v.log().Warn("vm does not power off in time, and is ended")
			return
		case <-v.host.ctx.Done():
			return
		}
	}
}

// tellToEnd asks grange-guest to power off. It reports whether there is one that was asked.
func (v *ending) tellToEnd(m *machine.Machine) bool {
	if m.Control.Phase() == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(v.host.ctx, askAgain)
	defer cancel()
	return m.PowerOff(ctx) == nil
}

func (v *ending) pressButton(m *machine.Machine) {
	ctx, cancel := context.WithTimeout(v.host.ctx, askAgain)
	defer cancel()
	if err := v.host.hyper.Shutdown(ctx, m.ID); err != nil {
		v.log().Warn("power button", "error", err)
	}
}

const askAgain = 10 * time.Second

// kill ends the machine, whatever it does, and what it had beside its disks, which are nobody's but ours then.
func (v *ending) kill(m *machine.Machine) error {
	if v.host.ctx.Err() != nil {
		return context.Cause(v.host.ctx) // the agent stops; VMs do not
	}
	v.host.Usage.Look(v.ID)
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	if err := v.host.hyper.Stop(ctx, m.ID); err != nil {
		return err
	}
	m.Unwatch()
	v.host.Machines.ReleaseNetwork(m.Name, v.recordNow().Shape.Network)
	if err := v.host.Machines.Areas.Cloud.Take(m.Name); err != nil {
		return err
	}
	v.host.Machines.ReturnUser(m.Name)
	return os.RemoveAll(m.Sockets)
}

// lives reports whether the process of a machine whose control port has gone may still be there. That it does not
// answer is no proof, and a big one takes its time to go.
func (v *ending) lives(m *machine.Machine) bool {
	ctx, cancel := context.WithTimeout(v.host.ctx, endLimit)
	defer cancel()
	_, err := v.host.hyper.Observe(ctx, m.ID)
	return !farm.IsKind(err, farm.NotFound)
}

// ended takes notice of a machine that ended although nobody wanted it to.
func (v *ending) ended(m *machine.Machine) {
	v.host.Usage.Look(v.ID) // first: this agent may not live to end the record
	end := v.awaitEnd()
	if err := v.kill(m); v.host.ctx.Err() != nil {
		return
	} else if err != nil {
		v.log().Error("cloud VM", "error", err)
	}
	ran := time.Since(v.started)
	reason := "its guest powered off"
	if end != hyper.PoweredOff {
		reason = reasonOf(&farm.Error{Kind: farm.Unavailable, Code: CodeVMEnded,
			Message: "the VM ended, and nobody wanted it to" + m.LastWords()})
		v.guest.settleTicket(breaker.Unclear, machine.FirstLine(errors.New(reason)))
	}
	v.guest.settleTicket(breaker.Nobody, "")
	v.log().Warn("cloud VM ended by itself", "end", string(end), "ran", ran)
	used := v.leave()
	v.kept(func(r *record) {
		r.CPUTime += used
		v.noteEnd(r, end, ran, reason)
	})
	v.poke() // awaitEnd may have taken another's word for its own
}

// leave forgets the machine, and says what it has used as far as that was seen.
func (v *ending) leave() (used time.Duration) {
	v.update(func() {
		used = v.used
		v.machine, v.ready, v.used, v.note = nil, false, 0, ""
		v.silence, v.guest.overdue, v.full = nil, false, false
	})
	v.host.Usage.End(v.ID, api.EndedStopped)
	return used
}

// noteEnd decides what becomes of a VM that ended by itself: see VM.
func (v *ending) noteEnd(r *record, end hyper.End, ran time.Duration, reason string) {
	r.Boot, r.Reason, r.Since = "", reason, time.Now()
	if end == hyper.PoweredOff {
		r.Halt, r.Failures = haltOff, 0
		return
	}
	if ran > calmAfter {
		r.Failures = 0
	}
	if r.Failures++; r.Failures > maxFailures {
		r.Halt = haltFailed
		return
	}
	v.until = time.Now().Add(firstPause << (r.Failures - 1))
}

// awaitEnd is how the machine ended, if anybody says so soon.
func (v *ending) awaitEnd() hyper.End {
	limit := time.After(eventWait)
	for {
		v.mu.Lock()
		end, told := v.end, v.told
		v.mu.Unlock()
		if told {
			return end
		}
		select {
		case <-v.wake:
		case <-limit:
			return ""
		case <-v.host.ctx.Done():
			return ""
		}
	}
}
