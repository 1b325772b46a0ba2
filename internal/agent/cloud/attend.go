package cloud

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/vmimage"
)

// guestState is what is known of a VM's guest. The VM's lock guards it.
type guestState struct {
	*VM
	overdue bool            // it is unresponsive, and something is to be done about that
	ticket  *breaker.Ticket // of a start that nobody knows yet to have worked
}

// give sends what it is to a guest that has just come up, or that has been asked what it knows. A guest that knows does
// nothing.
func (v *guestState) give(m *machine.Machine, kind vmimage.Kind) {
	w, _ := v.newest()
	job, err := guestJob(w, kind != vmimage.Kernel)
	if err == nil {
		ctx, cancel := context.WithTimeout(v.host.ctx, giveLimit)
		defer cancel()
		err = m.Control.Give(ctx, job)
	}
	if err != nil {
		v.log().Warn("guest of a cloud VM", "error", err)
		v.NoteThat(reasonOf(err))
	}
}

// giveLimit is for a guest that does not read.
const giveLimit = 10 * time.Second

// NoteThat records for people what is wrong with a machine that runs.
func (v *VM) NoteThat(text string) {
	v.update(func() { v.note = text })
	v.poke()
}

// isNews reports whether what the guest says of its job is not what people see already.
func (v *guestState) isNews(s guest.State) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.Phase == guest.Failed {
		return v.note != notMadeReady(s)
	}
	return v.ready != (s.Phase == guest.Running)
}

func notMadeReady(s guest.State) string {
	return reasonOf(&farm.Error{Kind: farm.Invalid, Code: farm.CodeJobNotStarted,
		Message: "the guest was not made ready: " + s.Message})
}

// report takes what the guest reports of its job, which is news. The first time that it runs, the start has worked.
func (v *guestState) report(s guest.State) {
	if s.Phase == guest.Failed {
		v.NoteThat(notMadeReady(s))
		return
	}
	ready := s.Phase == guest.Running
	v.update(func() {
		v.ready = ready
		if ready {
			v.note = ""
		}
	})
	v.poke()
	if ready {
		v.startWorked()
	}
}

func (v *guestState) isReady() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ready
}

// withoutGuest is what a disk lacks whose system has not started grange-guest.
const withoutGuest = "its image has no cloud-init that reads the seed, or another processor's system. The VM runs " +
	"without what they do: its name, keys, address and user data are the image's own, it is never ready, and it is " +
	"ended by its power button"

// tooSilent notes that the guest has not spoken. A full image may do without grange-guest, so only an image of ours is
// to blame.
func (v *guestState) tooSilent(kind vmimage.Kind) {
	if v.isReady() {
		return
	}
	blame := breaker.Nobody
	if kind == vmimage.Kernel {
		blame = breaker.Unclear
	}
	text := fmt.Sprintf("the guest has not said within %v that it is up", v.host.config().BootTimeout)
	v.settleTicket(blame, text)
	if kind == vmimage.Disk {
		text += ": " + withoutGuest
	}
	v.NoteThat(reasonOf(&farm.Error{Kind: farm.Unavailable, Code: machine.CodeGuestSilent, Message: text}))
}

// takeTicket is the ticket of the VM's start, which nobody gets twice; nil where there is none.
func (v *guestState) takeTicket() *breaker.Ticket {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.ticket
	v.ticket = nil
	return t
}

func (v *guestState) startWorked() {
	if t := v.takeTicket(); t != nil && v.host.Started(t) {
		v.log().Info("host healed")
	}
}

// settleTicket reports whose fault it is that a start came to nothing, if that is not known yet.
func (v *guestState) settleTicket(blame breaker.Blame, text string) {
	t := v.takeTicket()
	if t == nil {
		return
	}
	for _, key := range v.host.Failed(t, blame, text) {
		v.host.log.Error("backs off", "what", key.String(), "image", t.Image, "user", t.User, "error", text)
	}
}

// follow has the VM learn whether the guest of its machine answers, whether it floods, and what it sees.
func (v *guestState) follow(m *machine.Machine) {
	warn := func(text string) { v.log().Warn(text) }
	m.Follow(machine.Follower{Changed: func(unresponsive bool) { v.guestChanged(m, unresponsive) }, Floods: warn,
		Plan: func() farm.Plan { return v.recordNow().Plan }, Differs: warn})
}

func (v *guestState) guestChanged(m *machine.Machine, unresponsive bool) {
	action, err := v.host.config().Heartbeat.Action, m.Pulse.Problem("")
	v.update(func() {
		v.silence, v.overdue = nil, false
		if unresponsive {
			v.silence, v.overdue = err, action != config.HeartbeatReport
		}
	})
	if unresponsive {
		v.log().Warn("guest is unresponsive", "action", string(action), "error", err)
	} else {
		v.log().Info("guest is no longer unresponsive")
	}
	v.poke()
}

// isOverdue reports whether the guest is unresponsive, and the VM is to be ended for it.
func (v *guestState) isOverdue() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.overdue && farm.Power(cmp.Or(v.wanted.Power, v.record.Wanted.Power)) == farm.PowerOn
}

// endSilent ends a machine whose guest is unresponsive. The VM starts anew as one that crashed does, or stays off until
// the server says something new of it.
func (v *guestState) endSilent(m *machine.Machine) error {
	reason := reasonOf(m.Pulse.Problem(m.LastWords()))
	if err := v.ending.kill(m); err != nil {
		return err
	}
	v.settleTicket(breaker.Nobody, "")
	ran := time.Since(v.started)
	used := v.ending.leave()
	v.kept(func(r *record) {
		r.CPUTime += used
		v.ending.noteEnd(r, hyper.Failed, ran, reason)
		if v.host.config().Heartbeat.Action == config.HeartbeatEnd {
			r.Halt = haltFailed
		}
	})
	return nil
}

// StandStill notes whether the cloud VM waits for space.
func (v *VM) StandStill(full bool) {
	v.update(func() { v.full = full })
	if full {
		v.log().Error("cloud VM stands still, its disks find no space on the host")
	} else {
		v.log().Info("cloud VM goes on, there is space again")
	}
	v.poke()
}

// GoOn continues a VM that waits for space, once there is some.
func (v *VM) GoOn() {
	v.mu.Lock()
	m, full := v.machine, v.full
	v.mu.Unlock()
	if m == nil || !full || !v.host.Machines.SpaceAgain(m) {
		return
	}
	ctx, cancel := context.WithTimeout(v.host.ctx, machine.ResumeLimit)
	defer cancel()
	v.StandStill(false) // first: it may be stopped again at once
	if err := v.host.hyper.Resume(ctx, m.ID); err != nil {
		v.log().Error("cloud VM does not go on", "error", err)
		v.StandStill(true)
		return
	}
	m.SetClock()
}
