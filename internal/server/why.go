package server

import (
	"context"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// WhyOf explains host by host where a VM could be, and what would admit it where it has no place. Of one that has a
// place it tells where else there is room. Any server answers.
func (s *Server) WhyOf(ctx context.Context, who farm.Identity, ref string) (placement.Explanation, error) {
	var vm farm.VM
	err := s.look(ctx, who, policy.ReadVM, func(c *call) (err error) {
		vm, err = c.FindVM(ref)
		return err
	})
	if err != nil {
		return placement.Explanation{}, err
	}
	return s.explain(ctx, who, vm)
}

// Why explains where a VM could go that nobody has made: the request is checked as VMs.Create does, but needs no image,
// and quotas are not looked at.
func (s *Server) Why(ctx context.Context, who farm.Identity, r CreateVM) (placement.Explanation, error) {
	if r.Name == "" {
		r.Name = "why"
	}
	if err := r.check(s.now()); err != nil {
		return placement.Explanation{}, err
	}
	if r.Image != "" {
		if err := checkImage(r.Image); err != nil {
			return placement.Explanation{}, err
		}
	}
	vm := farm.VM{Project: r.Project, Image: r.Image, Cell: r.Cell, Network: r.Network, Group: r.Group, Needs: r.Needs}
	err := s.look(ctx, who, policy.CreateVM, func(c *call) error {
		if err := c.May(policy.Target{Project: r.Project, Owner: c.Caller(),
			Name: r.Project + "/" + r.Name}); err != nil {
			return err
		}
		p, err := c.FindProject(r.Project)
		if err != nil {
			return err
		}
		vm.Shape, err = creation{c, r}.shape(p, nil)
		return err
	})
	if err != nil {
		return placement.Explanation{}, err
	}
	return s.explain(ctx, who, vm)
}

// explain asks the fleet as it is now. Of VMs that the caller may not see, no name is told.
func (s *Server) explain(ctx context.Context, who farm.Identity, vm farm.VM) (placement.Explanation, error) {
	e, err := s.mirror.Explain(ctx, vm)
	if err == nil {
		e, err = s.brokers.Explain(ctx, vm, e)
	}
	if err != nil {
		return e, err
	}
	return e, s.look(ctx, who, policy.ReadVM, func(c *call) error {
		for i, change := range e.Changes {
			other, err := c.Tx.VM(change.VM)
			if err == nil && c.Sees(other) {
				e.Changes[i].Text += ": " + action.Label(other)
			} else if err != nil && !action.Missing(err) {
				return err
			}
		}
		return nil
	})
}
