package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// onLoss is the tag of a VM, and the label of a cell, that says what becomes of a VM whose host is lost; a VM's own
// word goes first. Without it a VM stays lost: what it had in its disks is gone, and only its owner knows whether an
// empty one helps.
const (
	onLoss  = "on-loss"
	replant = "replace" // it is made anew elsewhere, with fresh disks, under its name and address
)

// Fence takes the caller's word that nothing of a silent host runs any more: its VMs are lost, and those that ask
// for it are placed anew. This is the only way in which a VM whose host is silent is made elsewhere.
func (hs Hosts) Fence(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	reason string) (view HostView, err error) {
	revision, err := hs.server.change(ctx, who, policy.FenceHost, func(c *call) error {
		h, err := c.FindHost(ref)
		if err != nil {
			return err
		}
		if err := errors.Join(checkReason(reason), c.StillHost(h, ifRevision)); err != nil {
			return err
		}
		if !hs.server.Links.Silent(h) && c.Now.Sub(hs.server.Links.Seen(h)) > hs.server.Links.Silence {
			return &farm.Error{Kind: farm.Conflict, Code: farm.CodeHostAnswers,
				Message: fmt.Sprintf("this server has just come up, and waits for host %s, last seen at %s",
					h.Name, action.When(h.Seen)), Hint: fmt.Sprintf("wait until %s",
					action.When(hs.server.Links.Since.Add(hs.server.Links.Silence)))}
		}
		if !hs.server.Links.Silent(h) {
			return &farm.Error{Kind: farm.Conflict, Code: farm.CodeHostAnswers,
				Message: fmt.Sprintf("host %s has reported at %s: its VMs run", h.Name, action.When(h.Seen)),
				Hint: fmt.Sprintf("switch it off and see that it stays off; it is silent %v after its last report",
					hs.server.Links.Silence)}
		}
		h.Fenced, h.Reason = c.Now, reason
		if err := c.SetHost(h); err != nil {
			return err
		}
		lost, placed, err := c.lose(h)
		if err != nil {
			return err
		}
		if view, err = c.showOne(h); err != nil {
			return err
		}
		return c.Did(fmt.Sprintf("%s lost, %d placed anew; %s", farm.Count(lost, "VM"), placed, reason))
	})
	view.Revision = revision
	return view, err
}

// lose enters that nothing is left of the VMs of a host.
func (c *call) lose(h farm.Host) (lost, placed int, err error) {
	cell, err := c.in(h.Cell)
	if err != nil {
		return 0, 0, err
	}
	vms, err := c.Tx.VMs(store.VMFilter{Host: h.ID})
	if err != nil {
		return 0, 0, err
	}
	for _, vm := range vms {
		again, err := c.loseVM(vm, h, cell)
		if err != nil {
			return 0, 0, err
		}
		if lost++; again {
			placed++
		}
	}
	return lost, placed, nil
}

// loseVM ends a VM that was to be deleted, places one anew that asks for it, and else notes that it is lost.
func (c *call) loseVM(vm farm.VM, h farm.Host, cell farm.Cell) (placed bool, err error) {
	why := "its host " + h.Name + " was fenced"
	if err := c.loseMove(vm, why); err != nil {
		return false, err
	}
	if vm.Wanted.Power == farm.PowerDeleted {
		return false, c.s.endVM(c.Tx, vm, why)
	}
	line := action.Entry(action.Itself, c.Now, action.LostVM, action.VMTarget(vm), action.Done, why)
	if err := c.Audit(line); err != nil {
		return false, err
	}
	wish, own := vm.Tags[onLoss]
	if !own {
		wish = cell.Labels[onLoss]
	}
	if wish != replant {
		o := vm.Observed
		o.State, o.Reason, o.Since, o.Ready = farm.VMLost, why, c.Now, false
		return false, c.SetVMObserved(vm.ID, o)
	}
	off := vm.Wanted.Power
	if err := c.displace(&vm); err != nil {
		return false, err
	}
	vm.Wanted.Power = off
	return true, c.SetVM(vm)
}

// loseMove ends a move whose source can say nothing of it any more. Its target is told to drop what has come: that may
// be whole, and then the source may have given it away; but nobody can know, and the operator has said that the VM is
// lost.
func (c *call) loseMove(vm farm.VM, why string) error {
	m, err := c.Tx.Move(vm.ID)
	if action.Missing(err) || err == nil && !m.Active() {
		return nil
	}
	if err != nil {
		return err
	}
	m.Ended, m.Failure = c.Now, why
	return c.PutMove(m)
}
