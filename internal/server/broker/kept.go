package broker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// A VM that has its host keeps its place there while it is stopped, too, for its disks are nowhere else. What becomes
// of it when the job that holds the place is gone:
//
//   - Somebody, or a limit, ended the job: the batch system wants the room back, and may have given it to others
//     already. The VM is stopped, and says why. Its disks stay; when people start it, its place is reserved again
//     first.
//   - The batch system took the host for dead, or does not know how the job ended: nobody asked for the room. The place
//     is reserved again, and the VM goes on meanwhile.

// keepPlace looks after the place of a VM that has its host.
func (p *reservePass) keepPlace(ctx context.Context, vm farm.VM, reserved batch.Reserved, is bool) error {
	switch {
	case vm.Observed.State == farm.VMLost:
		return nil
	case is && reserved.Held:
		return p.settled(ctx, vm, reserved)
	case is:
		return p.tell(ctx, vm, p.pending(reserved))
	case vm.Job() != "":
		return p.bereaved(ctx, vm)
	case vm.Wanted.Power == farm.PowerOn:
		return p.reserveAgain(ctx, vm)
	}
	return nil // stopped, and nobody wants it on
}

// settled notes which job holds the place, and ends what was said before.
func (p *reservePass) settled(ctx context.Context, vm farm.VM, reserved batch.Reserved) error {
	delete(p.memory.waiting, vm.ID)
	if job := p.held(reserved); vm.Reservation != job {
		return p.set(ctx, vm, func(now *farm.VM) { now.Reservation, now.Waiting = job, "" })
	}
	return p.tell(ctx, vm, "")
}

// bereaved is for a VM whose job is gone.
func (p *reservePass) bereaved(ctx context.Context, vm farm.VM) error {
	w, ok := p.system.(batch.Witness)
	if !ok {
		return p.reserveAgain(ctx, vm)
	}
	_, id, _ := strings.Cut(vm.Job(), "/")
	end, err := w.Fate(ctx, vm.ID, id)
	switch {
	case farm.IsKind(err, farm.NotFound), err == nil && end.Outcome == batch.OutcomeNode:
		return p.reserveAgain(ctx, vm)
	case err != nil || end.Outcome == "":
		return err
	}
	return p.stop(ctx, vm, fmt.Sprintf(
		"job %s of %s, which held its place, %s; start the VM to have its place reserved again", id, p.cell.Broker,
		endOf(end)))
}

// endOf returns how a job ended that would have gone on for ever.
func endOf(e batch.Ended) string {
	what := "has ended"
	switch e.Outcome {
	case batch.OutcomeCancelled:
		what = "was cancelled there"
	case batch.OutcomeTimeout:
		what = "was ended there at its time limit"
	case batch.OutcomeMemory, batch.OutcomeFailed:
		what = "was killed"
	}
	if e.Finished.IsZero() {
		return what
	}
	return what + " at " + e.Finished.UTC().Format(time.RFC3339)
}

// stop has a VM be off, and says why: others may have its room by now.
func (p *reservePass) stop(ctx context.Context, vm farm.VM, why string) error {
	p.Log.Warn("a VM lost its place in its batch system", "vm", vm.ID, "cell", p.cell.Name, "why", why)
	return p.actions.ByItself(ctx, p.epoch, policy.StopVM, func(c *action.Call) error {
		now, err := c.Tx.VM(vm.ID)
		if action.Missing(err) {
			return nil
		}
		if err != nil || elsewhere(now, vm) || now.Wanted.Power == farm.PowerDeleted {
			return err
		}
		c.Target = action.VMTarget(now)
		if err := c.Did(why); err != nil {
			return err
		}
		now.Wanted.Power, now.Reservation, now.Waiting = farm.PowerOff, farm.ToReserve, why
		if err := c.SetVM(now); err != nil {
			return err
		}
		return c.SetVMPlace(now)
	})
}

// reserveAgain reserves the place that a VM has, once more.
func (p *reservePass) reserveAgain(ctx context.Context, vm farm.VM) error {
	n, known := p.nodes[vm.Host]
	if !known {
		return p.tell(ctx, vm, fmt.Sprintf("%s does not know its host any more, and holds no place for it",
			p.cell.Broker))
	}
	reserved, err := p.system.Reserve(ctx, p.reservation(vm, n))
	if err != nil {
		return err
	}
	p.Log.Info("VM has a new reservation", "vm", vm.ID, "cell", p.cell.Name, "host", n.Name, "before", vm.Reservation,
		"job", reserved.Job)
	p.there[vm.ID] = reserved
	return p.keepPlace(ctx, vm, reserved, true)
}
