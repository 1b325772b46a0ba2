package agent

import (
	"context"
	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/services"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
)

// What becomes of a VM whose guest is unresponsive, by [heartbeat] action. Of a VM of jobs none is run again, whatever
// the action: a job that has not ended ends as lost.

// follow has the VM learn whether the guest of its machine answers, whether it floods, and what it sees.
func (v *vm) follow(m *machine.Machine) {
	if len(v.record.Services) > 0 {
		m.Beside = func(ctx context.Context) { services.Follow(ctx, m.Path(guest.ServicePort), v.services) }
	}
	m.Follow(machine.Follower{
		Stopped: func() bool { return v.power.Now() != machine.Wanted{} },
		Changed: func(unresponsive bool) { v.guestChanged(m, unresponsive) },
		Floods: func(text string) {
			v.log().Warn(text)
			v.publish(api.JobEvent{Event: api.EventWarning, Message: text})
		},
		Lost: func(err error) { v.bindLost(m, err) },
		Plan: func() farm.Plan { return v.recordNow().Plan },
		Differs: func(text string) {
			v.log().Warn(text)
			v.publish(api.JobEvent{Event: api.EventWarning, Code: api.CodeGuestDiffers, Message: text})
		}})
}

// services are those of the host that the VM may use by the configuration of now.
func (v *vm) services() []config.Service {
	return services.Of(v.agent.config().Services, v.recordNow().Services)
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
	jobs := v.inside()
	if len(jobs) == 0 {
		v.cancel(err) // its allocation keeps it, for steps that would find it so
	}
	for _, j := range jobs {
		if !j.isEnded() { // one that is kept after its end is there to be looked at
			j.cancel(err)
		}
	}
}
