package agent

import (
	"cmp"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// What becomes of a VM whose guest is unresponsive, by [heartbeat] action. Of a VM of jobs none is run again, whatever
// the action: a job that has not ended ends as lost.

// follow has the VM learn whether the guest of its machine answers, whether it floods, and what it sees.
func (v *vm) follow(m *machine.Machine) {
	m.Follow(machine.Follower{
		Stopped: func() bool { return v.power.Now() != machine.Wanted{} },
		Changed: func(unresponsive bool) { v.guestChanged(m, unresponsive) },
		Floods: func(text string) {
			v.log().Warn(text)
			v.publish(api.JobEvent{Event: api.EventWarning, Message: text})
		},
		Plan: func() farm.Plan { return v.recordNow().Plan },
		Differs: func(text string) {
			v.log().Warn(text)
			v.publish(api.JobEvent{Event: api.EventWarning, Code: api.CodeGuestDiffers, Message: text})
		}})
}

func (v *vm) guestChanged(m *machine.Machine, unresponsive bool) {
	action := v.agent.config().Heartbeat.Action
	v.update(func() {})
	if !unresponsive {
		v.log().Info("guest is no longer unresponsive")
		return
	}
	err := m.Pulse.Problem("")
	v.log().Warn("guest is unresponsive", "action", string(action), "error", err)
	if action == config.HeartbeatReport {
		v.publish(api.JobEvent{Event: api.EventWarning, Message: err.Message})
		return
	}
	err = m.Pulse.Problem(m.LastWords())
	for _, j := range v.inside() {
		if !j.isEnded() { // one that is kept after its end is there to be looked at
			j.cancel(err)
		}
	}
}

// follow has the VM learn whether the guest of its machine answers, whether it floods, and what it sees.
func (v *fleetVM) follow(m *machine.Machine) {
	warn := func(text string) { v.log().Warn(text) }
	m.Follow(machine.Follower{Changed: func(unresponsive bool) { v.guestChanged(m, unresponsive) }, Floods: warn,
		Plan: func() farm.Plan { return v.recordNow().Plan }, Differs: warn})
}

func (v *fleetVM) guestChanged(m *machine.Machine, unresponsive bool) {
	action, err := v.agent.config().Heartbeat.Action, m.Pulse.Problem("")
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
func (v *fleetVM) isOverdue() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.overdue && farm.Power(cmp.Or(v.wanted.Power, v.record.Wanted.Power)) == farm.PowerOn
}

// endSilent ends a machine whose guest is unresponsive. The VM starts anew as one that crashed does, or stays off until
// the server says something new of it.
func (v *fleetVM) endSilent(m *machine.Machine) error {
	reason := reasonOf(m.Pulse.Problem(m.LastWords()))
	if err := v.kill(m); err != nil {
		return err
	}
	v.settleTicket(breaker.Nobody, "")
	ran := time.Since(v.started)
	used := v.leave()
	v.kept(func(r *fleetRecord) {
		r.CPUTime += used
		v.noteEnd(r, hyper.Failed, ran, reason)
		if v.agent.config().Heartbeat.Action == config.HeartbeatEnd {
			r.Halt = haltFailed
		}
	})
	return nil
}
