package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/binds"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/meter"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/sleep"
	"github.com/grange-project/grange/internal/vmimage"
)

// run makes the VM, and ends it when its last job has left.
func (v *vm) run() {
	v.agent.jobs.Go(v.followHeartbeats)
	err := fetchImage(v)
	if err == nil {
		err = v.making.guarded()
	}
	v.update(func() {
		v.failed, v.up = err, err == nil
		v.closed = v.closed || err != nil
		for _, j := range v.jobs {
			if j.port > 0 {
				v.showLocked(j)
			}
		}
	})
	v.end()
}

// guarded makes the VM, unless its image, its user or this host backs off, and remembers what became of it.
func (v *making) guarded() error {
	r := v.recordNow()
	image, user := v.image, r.User
	if r.Caller.Nameless {
		user = "without a name"
	}
	if r.Worker != nil { // they are the site's, whoever's name it asks in
		image, user = r.Worker.Image, ""
	}
	b := &v.agent.breakers
	b.mu.Lock()
	ticket, err := b.set.Admit(time.Now(), breaker.Start{Image: image, User: user, Own: v.own,
		Nameless: r.Caller.Nameless && r.Worker == nil, Private: v.agent.config().PrivateVMs && !r.Caller.admin()})
	if err == nil && r.Worker != nil {
		b.starting[v.id] = false
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	err = v.start()
	kind := meter.Job
	if r.Worker != nil {
		kind = meter.Worker
	}
	v.agent.meter.Start(kind, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	blame, text := machine.BlameFor(err), ""
	if served := func(b binds.Bound) bool { return b.Tag != "" }; blame == breaker.TheHost &&
		slices.ContainsFunc(v.recordNow().Binds, served) {
		blame = breaker.Unclear // the job's user may stop virtiofsd, which QEMU waits for
	}
	if err != nil {
		text = machine.FirstLine(err)
	}
	if b.starting[v.id] && err != nil && blame == breaker.Nobody { // ended, for it took too long
		blame, text = breaker.Unclear, tooLate
	}
	delete(b.starting, v.id)
	switch {
	case err == nil && r.Worker != nil: // what its guest says is not enough
		b.pending[v.id] = ticket
	case err == nil:
		if b.set.Started(time.Now(), ticket) {
			v.log().Info("host healed")
		}
	case blame == breaker.Nobody:
		b.set.Left(ticket)
	default:
		for _, key := range b.set.Failed(time.Now(), ticket, blame, text) {
			v.agent.log.Error("backs off", "what", key.String(), "image", image, "user", user, "error", err)
		}
	}
	return err
}

// start makes the VM and waits for its guest, trying again where trying again may help.
func (v *making) start() error {
	began := time.Now()
	image, release, err := v.agent.images.Acquire(v.image) // first, for its size is what an overlay may take
	if err != nil {
		return err
	}
	defer release() // the running VM's record keeps the image from here on
	if err := jobrequest.CheckCommand(v.bare, image); err != nil {
		return err
	}
	if w := image.Warning(); w != "" {
		v.publish(api.JobEvent{Event: api.EventWarning, Message: w})
	}
	kernel, releaseKernel, err := v.agent.images.Kernel(image)
	if err != nil {
		return err
	}
	defer releaseKernel() // QEMU has it in memory
	v.kernel = kernel
	now := v.phase("image", began)
	plan, err := v.grant(image)
	if err != nil {
		return err
	}
	named := image.Name
	if container.Is(v.image) {
		named = v.image
	}
	v.update(func() { v.record.Image, v.record.Digest, v.record.Plan = named, image.Digest, plan })
	if err := vmimage.Refusal(v.agent.images, image.Digest); err != nil { // it may have waited for long
		return err
	}
	if err := v.lease(image); err != nil {
		return err
	}
	v.phase("grant", now)
	var away time.Time // when the first of the attempts began that a missing hypervisor ended
	for attempt := 1; ; {
		began := time.Now()
		err := disk.NoSpace(v.attempt(image, attempt))
		if err == nil {
			return nil
		}
		if v.ctx.Err() != nil {
			return context.Cause(v.ctx)
		}
		v.discard()
		switch {
		case farm.IsCode(err, hyper.CodeAway) && !v.request.NoWait:
			if away.IsZero() {
				away = began
			}
			if v.waitedTooLong(away) {
				return v.tiredOf(err)
			}
			v.publishWaiting(err.Error())
			if err := sleep.For(v.ctx, hypervisorPause); err != nil {
				return err
			}
			v.agent.hyper.Sweep(v.ctx) // a daemon that died may have left a process half made; while it is away, later
		case !machine.WorthAnotherTry(err) || attempt >= v.agent.config().Attempts:
			return err
		default:
			v.publish(api.JobEvent{Event: api.EventRetry,
				Message: fmt.Sprintf("attempt %d came to nothing: %v", attempt, err)})
			v.log().Warn("vm came to nothing", "attempt", attempt, "error", err)
			if err := v.planAgain(image); err != nil {
				return err
			}
			attempt, away = attempt+1, time.Time{}
		}
	}
}

// planAgain plans a VM anew before another attempt, where the huge pages of its plan are gone: an administrator may
// have made a pool smaller since the host was read, and QEMU then finds no pages however often it is started.
func (v *making) planAgain(image vmimage.Image) error {
	if !numa.LacksPages(v.agent.readHost(0), v.recordNow().Plan) {
		return nil
	}
	v.update(func() { v.record.Plan = farm.Plan{} })
	v.agent.ledger.Release(v.id)
	plan, err := v.grant(image)
	if err == nil {
		v.update(func() { v.record.Plan = plan })
	}
	return err
}

// hypervisorPause is between two looks for a hypervisor that is away. Nothing runs meanwhile, so nothing is lost by
// waiting.
const hypervisorPause = 200 * time.Millisecond

func (v *making) grant(image vmimage.Image) (farm.Plan, error) {
	if err := v.awaitMinimum(); err != nil {
		return farm.Plan{}, err
	}
	if err := v.awaitFileSystems(); err != nil {
		return farm.Plan{}, err
	}
	r := v.record
	request := v.agent.machines.NUMARequest(r.Shape, r.Caller.allowed())
	// QEMU's own threads cannot leave the job's cpuset for the CPUs of the host's services
	if !r.Caller.Batch.CPUs.Empty() {
		request.Service = request.Service.And(r.Caller.Batch.CPUs)
	}
	v.agent.ledger.SetBatchJob(v.id, v.key)
	c := v.charge(image)
	if c.Limited && len(v.agent.config().Limits.Except) > 0 {
		c.Who = v.agent.requests().excepted(r.Caller)
	}
	v.agent.ledger.SetCharge(v.id, c)
	plan, err := v.claim(v.agent.machines.Holder(r.Name, r.User, r.Command), request)
	v.update(func() { v.record.Plan = plan }) // whoever drains from here on finds it among those that run
	if err != nil || v.agent.drains.Refusal(v.uses()) == nil {
		return plan, err
	}
	v.update(func() { v.record.Plan = farm.Plan{} })
	v.agent.ledger.Release(v.id)
	return v.grant(image)
}

// end waits until no job is in the VM, nor can come, and cleans up, unless the agent itself stops.
func (v *vm) end() {
	defer close(v.over)
	defer v.agent.forgetVM(v)
	if !(stay{v}).awaitEmptied() {
		v.making.detach()
		return
	}
	v.cancel(errCallerGone)
	began := time.Now()
	v.making.discard()
	v.agent.Usage.End(v.id, api.EndedLeft)
	v.agent.ledger.Release(v.id)
	v.update(func() { v.clean = []api.Phase{{Name: "clean", Milliseconds: milliseconds(time.Since(began))}} })
}
