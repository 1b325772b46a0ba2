package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placer"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// Resize gives a VM another size, on its own host. The row says what is wanted; the placer claims it there, and the
// host makes the machine anew with its disks. Where the host has no room the VM stays as it is, and its notice says
// why. A VM without a host just asks for another size.
func (vs VMs) Resize(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	r ResizeVM) (VMView, error) {
	return vs.alter(ctx, who, policy.ResizeVM, ref, ifRevision, func(c *call, vm *farm.VM, _ verdict) (string, error) {
		p, err := c.FindProject(vm.Project)
		if err != nil {
			return "", err
		}
		if err := keepsSize(*vm); err != nil {
			return "", err
		}
		shape, err := c.resized(p, *vm, r)
		if err != nil {
			return "", err
		}
		was := vm.Shape
		if err := c.quota(p, beyond(shape.Quota(), held(*vm))); err != nil {
			return "", err
		}
		if vm.Host == "" {
			vm.Shape = shape
		} else {
			vm.Resize = &shape
		}
		return fmt.Sprintf("%d CPUs → %d, %v → %v of memory", was.CPUs, shape.CPUs, was.Memory, shape.Memory), nil
	})
}

// acted takes away the notice that a VM was not resized: what people asked for since is newer.
func (c *call) acted(vm *farm.VM) error {
	if !strings.HasPrefix(vm.Waiting, placer.NotResized) {
		return nil
	}
	vm.Waiting = ""
	return c.SetVMPlace(*vm)
}

// keepsSize refuses VMs whose capacity a batch system has reserved.
func keepsSize(vm farm.VM) error {
	if vm.Reservation == "" {
		return nil
	}
	return &farm.Error{Kind: farm.Conflict, Code: CodeNoResize,
		Message: fmt.Sprintf("VM %s has the size that cell %s has reserved for it", action.Label(vm), vm.Cell),
		Hint:    "make another VM of the new size"}
}

// resized is the shape that the VM would have. Its disks stay, so scratch does.
func (c *call) resized(p farm.Project, vm farm.VM, r ResizeVM) (farm.Shape, error) {
	s, named := vm.Shape, farm.Shape{}
	var err error
	if r.Shape != "" {
		if named, err = c.named(p, r.Shape); err != nil {
			return s, err
		}
		kept := s
		s = named
		s.Scratch, s.Disks, s.Network, s.Purpose = kept.Scratch, kept.Disks, kept.Network, kept.Purpose
		s.Display = kept.Display
	} else if len(p.Shapes) > 0 {
		if named, err = c.named(p, s.Name); err != nil {
			return s, err
		}
	}
	if r.CPUs != 0 {
		s.CPUs, s.Guest = r.CPUs, farm.GuestTopology{}
	}
	if r.Memory != 0 {
		s.Memory = r.Memory
	}
	if s.CPUs == vm.Shape.CPUs && s.Memory == vm.Shape.Memory && s.Name == vm.Shape.Name &&
		s.Bandwidth == vm.Shape.Bandwidth {
		return s, badVM("VM %s has this size", action.Label(vm))
	}
	if vm.Network == "" {
		if err := s.CheckBandwidth(); err != nil {
			return s, err
		}
	}
	return s, c.fits(p, named, s)
}

// held is what a VM counts for now: the larger of what it has and what it is to have.
func held(vm farm.VM) farm.Quota {
	q := vm.Shape.Quota()
	if vm.Resize != nil {
		w := vm.Resize.Quota()
		q.CPUs, q.Memory = max(q.CPUs, w.CPUs), max(q.Memory, w.Memory)
	}
	return q
}

// beyond is what q has more than has.
func beyond(q, has farm.Quota) (more farm.Quota) {
	more.CPUs = max(q.CPUs-has.CPUs, 0)
	if q.Memory > has.Memory {
		more.Memory = q.Memory - has.Memory
	}
	if q.Scratch > has.Scratch {
		more.Scratch = q.Scratch - has.Scratch
	}
	return more
}
