package agent

import (
	"cmp"
	"fmt"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// What becomes of a VM whose guest is unresponsive, by [heartbeat] action. Of a VM of jobs none is run again, whatever
// the action: a job that has not ended ends as lost.

// problem is the error of a guest that is unresponsive.
func (h *heartbeat) problem(more string) *farm.Error {
	message := fmt.Sprintf("the guest has not answered for %v", h.settings().Timeout)
	h.mu.Lock()
	if h.since.IsZero() && !h.expired.IsZero() {
		message = "the guest did not reset its watchdog in time"
	}
	h.mu.Unlock()
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeGuestUnresponsive, Message: message + more,
		Hint: "its kernel may hang, or its memory be used up: see its console; [heartbeat] in the agent's " +
			"configuration says what is done about it"}
}

// follow has the VM learn whether the guest of its machine answers, whether it floods, and what it sees.
func (v *vm) follow(m *machine) {
	m.pulse.stopped = func() bool { return v.power.now() != wanted{} || frozen(m.applied.PID) }
	m.pulse.changed = func(unresponsive bool) { v.guestChanged(m, unresponsive) }
	m.control.flood.notice = func() {
		v.log().Warn(floodNotice)
		v.publish(api.JobEvent{Event: api.EventWarning, Message: floodNotice})
	}
	v.agent.looks(m, func() farm.Plan { return v.recordNow().Plan }, func(text string) {
		v.log().Warn(text)
		v.publish(api.JobEvent{Event: api.EventWarning, Code: api.CodeGuestDiffers, Message: text})
	})
}

func (v *vm) guestChanged(m *machine, unresponsive bool) {
	action := v.agent.config().Heartbeat.Action
	v.update(func() {})
	if !unresponsive {
		v.log().Info("guest is no longer unresponsive")
		return
	}
	err := m.pulse.problem("")
	v.log().Warn("guest is unresponsive", "action", string(action), "error", err)
	if action == config.HeartbeatReport {
		v.publish(api.JobEvent{Event: api.EventWarning, Message: err.Message})
		return
	}
	err = m.pulse.problem(m.lastWords())
	for _, j := range v.inside() {
		if !j.isEnded() { // one that is kept after its end is there to be looked at
			j.cancel(err)
		}
	}
}

// follow has the VM learn whether the guest of its machine answers, whether it floods, and what it sees.
func (v *fleetVM) follow(m *machine) {
	m.pulse.changed = func(unresponsive bool) { v.guestChanged(m, unresponsive) }
	m.control.flood.notice = func() { v.log().Warn(floodNotice) }
	plan := func() farm.Plan { return v.recordNow().Plan }
	v.agent.looks(m, plan, func(text string) { v.log().Warn(text) })
}

func (v *fleetVM) guestChanged(m *machine, unresponsive bool) {
	action, err := v.agent.config().Heartbeat.Action, m.pulse.problem("")
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
func (v *fleetVM) endSilent(m *machine) error {
	reason := reasonOf(m.pulse.problem(m.lastWords()))
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
