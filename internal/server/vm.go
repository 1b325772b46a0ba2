package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/images"
)

// VMs are actions on cloud VMs.
type VMs struct{ server *Server }

// Get returns one VM.
func (vs VMs) Get(ctx context.Context, who farm.Identity, ref string) (view VMView, err error) {
	err = vs.server.look(ctx, who, policy.ReadVM, func(c *call) error {
		vm, err := c.FindVM(ref)
		if err != nil {
			return err
		}
		view, err = c.show(vm)
		return err
	})
	return view, err
}

// Start wants a VM on. One that failed is tried once more.
func (vs VMs) Start(ctx context.Context, who farm.Identity, ref string, ifRevision int64) (VMView, error) {
	return vs.alter(ctx, who, policy.StartVM, ref, ifRevision, func(c *call, vm *farm.VM, v verdict) (string, error) {
		if err := c.mayRun(*vm); err != nil {
			return "", err
		}
		if v == retry {
			vm.WantBoot()
		}
		vm.Wanted.Power = farm.PowerOn
		return "", nil
	})
}

// mayRun refuses to start what a drain has stopped, and what is made of an image that was withdrawn.
func (c *call) mayRun(vm farm.VM) error {
	if err := images.MayStart(c.Tx, vm); err != nil {
		return err
	}
	return drainLets(c, vm)
}

// drainLets refuses to start what a drain has stopped.
func drainLets(c *call, vm farm.VM) error {
	h, ok, err := c.on(vm.Host)
	if err != nil || !ok {
		return err
	}
	cell, err := c.in(h.Cell)
	if err != nil {
		return err
	}
	d, what := h.DrainIn(cell)
	if !d.Active() || d.Deadline.IsZero() || c.Now.Before(d.Deadline) {
		return nil
	}
	return &farm.Error{Kind: farm.Conflict, Code: CodeDraining,
		Message: fmt.Sprintf("VM %s cannot be started: %s", action.Label(vm), drainNotice(d, what)),
		Hint:    "wait until it is open again, or delete the VM and make it anew"}
}

// Stop wants a VM off. Its disks and its place stay.
func (vs VMs) Stop(ctx context.Context, who farm.Identity, ref string, ifRevision int64) (VMView, error) {
	return vs.alter(ctx, who, policy.StopVM, ref, ifRevision, func(_ *call, vm *farm.VM, _ verdict) (string, error) {
		vm.Wanted.Power = farm.PowerOff
		return "", nil
	})
}

// Restart has a VM boot once more.
func (vs VMs) Restart(ctx context.Context, who farm.Identity, ref string, ifRevision int64) (VMView, error) {
	return vs.alter(ctx, who, policy.RestartVM, ref, ifRevision, func(c *call, vm *farm.VM, _ verdict) (string, error) {
		vm.WantBoot()
		return "", c.mayRun(*vm)
	})
}

// Rebuild makes a VM anew from an image, with fresh disks, under its name and address; "": from the image that it
// has. One that is lost gets a new place.
func (vs VMs) Rebuild(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	image string) (VMView, error) {
	return vs.alter(ctx, who, policy.RebuildVM, ref, ifRevision, func(c *call, vm *farm.VM, v verdict) (string, error) {
		p, err := c.FindProject(vm.Project)
		if err != nil {
			return "", err
		}
		if image != "" {
			if err := checkImage(image); err != nil {
				return "", err
			}
			vm.Image = image
		}
		if err := allowImage(p, vm.Image); err != nil {
			return "", err
		}
		if err := remade(c, vm, v == replace || vm.Host == ""); err != nil {
			return "", err
		}
		switch {
		case v == replace:
			if _, err := c.cellsFor(p, vm.Cell); err != nil { // it is as good as made
				return "", err
			}
			return "placed anew; image " + vm.Image, c.displace(vm)
		case vm.Host != "":
			if err := drainLets(c, *vm); err != nil && vm.Wanted.Power == farm.PowerOn {
				return "", err
			}
			if err := c.hasImage(*vm); err != nil {
				return "", err
			}
			vm.WantBuild()
			vm.Wanted.Fresh = vm.Wanted.Builds
		}
		return "image " + vm.Image, nil
	})
}

// hasImage refuses to have a VM made anew from an image that its host does not have: the VM would be gone, and no other
// one made.
func (c *call) hasImage(vm farm.VM) error {
	h, err := c.Tx.Host(vm.Host)
	if action.Missing(err) {
		return nil
	}
	if err != nil || vm.Digest != "" || slices.Contains(h.Facts.Images, vm.Image) {
		return err
	}
	return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoImage,
		Message: fmt.Sprintf("host %s of VM %s has no image %s", h.Name, action.Label(vm), vm.Image),
		Hint:    "`grange image import` on that host brings it; or delete the VM and make it anew"}
}

// Delete wants nothing of a VM to stay. It is gone when its host has said so; without a host it is gone at once.
func (vs VMs) Delete(ctx context.Context, who farm.Identity, ref string, ifRevision int64) (VMView, error) {
	return vs.alter(ctx, who, policy.DeleteVM, ref, ifRevision, func(_ *call, vm *farm.VM, _ verdict) (string, error) {
		vm.Wanted.Power = farm.PowerDeleted
		return "", nil
	})
}

// Update changes of a VM what needs no other machine.
func (vs VMs) Update(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	u UpdateVM) (VMView, error) {
	return vs.alter(ctx, who, policy.UpdateVM, ref, ifRevision, func(c *call, vm *farm.VM, _ verdict) (string, error) {
		var said []string
		if u.Tags != nil {
			if err := checkTags(*u.Tags); err != nil {
				return "", err
			}
			if !maps.Equal(*u.Tags, vm.Tags) {
				said = append(said, fmt.Sprintf("tags: %v → %v", vm.Tags, *u.Tags))
			}
			vm.Tags = *u.Tags
		}
		if u.Expires != nil {
			p, err := c.FindProject(vm.Project)
			if err != nil {
				return "", err
			}
			if err := checkExpiry(*u.Expires, c.Now); err != nil {
				return "", err
			}
			was := vm.Expires
			if vm.Expires, err = expiry(p, *u.Expires, c.Now); err != nil {
				return "", err
			}
			said = append(said, fmt.Sprintf("expires: %s → %s", action.When(was), action.When(vm.Expires)))
		}
		if u.SecurityGroups != nil {
			was := vm.SecurityGroups
			if err := c.regroup(vm, *u.SecurityGroups); err != nil {
				return "", err
			}
			said = append(said, fmt.Sprintf("security groups: %v → %v", was, vm.SecurityGroups))
		}
		return strings.Join(said, "; "), nil
	})
}

// alter runs an action that changes one VM, where the table of states and the caller's revision let it. do changes the
// row and says what changed, for the audit log.
func (vs VMs) alter(ctx context.Context, who farm.Identity, a policy.Action, ref string, ifRevision int64,
	do func(*call, *farm.VM, verdict) (string, error)) (view VMView, err error) {
	wrote := false
	revision, err := vs.server.change(ctx, who, a, func(c *call) error {
		wrote = false
		vm, err := c.FindVM(ref)
		if err != nil {
			return err
		}
		if err := c.Unchanged(vm, ifRevision); err != nil {
			return err
		}
		if view, err = c.show(vm); err != nil {
			return err
		}
		v, err := judge(vm, view.State, a)
		if err != nil || v == already {
			return err
		}
		wrote = true
		reason, err := do(c, &vm, v)
		if err != nil {
			return err
		}
		if a != policy.UpdateVM {
			if err := c.stopMove(vm.ID); err != nil {
				return err
			}
			if err := c.acted(&vm); err != nil {
				return err
			}
		}
		if err := c.Did(reason); err != nil {
			return err
		}
		if v == remove {
			view.VM, view.State = vm, farm.VMGone
			return c.end(vm, "deleted by "+c.Caller())
		}
		if err := c.SetVM(vm); err != nil {
			return err
		}
		view, err = c.show(vm)
		return err
	})
	if err == nil && wrote {
		view.Revision, view.Changed = revision, revision
	}
	return view, err
}
