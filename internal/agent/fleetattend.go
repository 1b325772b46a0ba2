package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"

	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/vmimage"
)

// give tells a guest that has just come up, or that has been asked what it knows, what it is. A guest that knows does
// nothing.
func (v *fleetVM) give(m *machine.Machine, kind vmimage.Kind) {
	w, _ := v.newest()
	job, err := v.agent.fleetGuest(w, kind != vmimage.Kernel)
	if err == nil {
		ctx, cancel := context.WithTimeout(v.agent.ctx, giveLimit)
		defer cancel()
		err = m.Control.Give(ctx, job)
	}
	if err != nil {
		v.log().Warn("guest of a cloud VM", "error", err)
		v.noteThat(reasonOf(err))
	}
}

// giveLimit is for a guest that does not read.
const giveLimit = 10 * time.Second

// noteThat tells people what is wrong with a machine that runs.
func (v *fleetVM) noteThat(text string) {
	v.update(func() { v.note = text })
	v.poke()
}

// isNews reports whether what the guest says of its job is not what people see already.
func (v *fleetVM) isNews(s guest.State) bool {
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

// hears takes the guest's word on its job, which is news. The first time that it runs, the start has worked.
func (v *fleetVM) hears(s guest.State) {
	if s.Phase == guest.Failed {
		v.noteThat(notMadeReady(s))
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

func (v *fleetVM) isReady() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ready
}

// tooSilent notes that the guest has not spoken. A full image may do without grange-guest, so only an image of ours is
// to blame.
func (v *fleetVM) tooSilent(kind vmimage.Kind) {
	if v.isReady() {
		return
	}
	blame := breaker.Nobody
	if kind == vmimage.Kernel {
		blame = breaker.Unclear
	}
	text := fmt.Sprintf("the guest has not said within %v that it is up", v.agent.config().BootTimeout)
	v.settleTicket(blame, text)
	v.noteThat(reasonOf(&farm.Error{Kind: farm.Unavailable, Code: machine.CodeGuestSilent, Message: text}))
}

// admitStart lets a VM start unless its image, its owner or this host backs off.
func (a *Agent) admitStart(s breaker.Start) (*breaker.Ticket, error) {
	a.breakers.mu.Lock()
	defer a.breakers.mu.Unlock()
	return a.breakers.set.Admit(time.Now(), s)
}

// takeTicket is the ticket of the VM's start, which nobody gets twice; nil where there is none.
func (v *fleetVM) takeTicket() *breaker.Ticket {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.ticket
	v.ticket = nil
	return t
}

func (v *fleetVM) startWorked() {
	b, t := &v.agent.breakers, v.takeTicket()
	if t == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set.Started(time.Now(), t) {
		v.log().Info("host healed")
	}
}

// settleTicket reports whose fault it is that a start came to nothing, if that is not known yet.
func (v *fleetVM) settleTicket(blame breaker.Blame, text string) {
	b, t := &v.agent.breakers, v.takeTicket()
	if t == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range b.set.Failed(time.Now(), t, blame, text) {
		v.agent.log.Error("backs off", "what", key.String(), "image", t.Image, "user", t.User, "error", text)
	}
}
