package server

import (
	"context"
	"errors"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// ProjectView is a project as people see it.
type ProjectView struct {
	farm.Project
	Used    farm.Quota
	Cells   []string // where its new VMs may go now
	Nowhere string   // why there is none; "": there is one
}

// Projects are those that the caller may see.
func (s *Server) Projects(ctx context.Context, who farm.Identity) (views []ProjectView, err error) {
	err = s.look(ctx, who, policy.ReadProject, func(c *call) error {
		views = []ProjectView{}
		all, err := c.Tx.Projects()
		if err != nil {
			return err
		}
		cells, err := c.Tx.Cells()
		if err != nil {
			return err
		}
		for _, p := range all {
			if !policy.Allow(who, c.Grants, policy.ReadProject, policy.Target{Project: p.Name}).Allowed {
				continue
			}
			v, err := c.projectView(p, cells)
			if err != nil {
				return err
			}
			views = append(views, v)
		}
		return nil
	})
	return views, err
}

// Project is one project.
func (s *Server) Project(ctx context.Context, who farm.Identity, name string) (v ProjectView, err error) {
	err = s.look(ctx, who, policy.ReadProject, func(c *call) error {
		if err := c.May(policy.Target{Project: name}); err != nil {
			return err
		}
		p, err := c.Tx.Project(name)
		if action.Missing(err) {
			return action.NoProject(name)
		}
		if err != nil {
			return err
		}
		cells, err := c.Tx.Cells()
		if err != nil {
			return err
		}
		v, err = c.projectView(p, cells)
		return err
	})
	return v, err
}

func (c *call) projectView(p farm.Project, cells []farm.Cell) (v ProjectView, err error) {
	v.Project = p
	v.Cells, err = policy.CellsFor(p.Name, cells)
	if e, ok := errors.AsType[*farm.Error](err); ok {
		v.Nowhere = e.Message
	}
	v.Used, err = c.Used(p.Name)
	return v, err
}

// Shapes are all shapes.
func (s *Server) Shapes(ctx context.Context, who farm.Identity) (shapes []farm.Shape, err error) {
	err = s.look(ctx, who, policy.ReadCatalogue, func(c *call) error {
		if err := c.May(policy.Target{Name: "shapes"}); err != nil {
			return err
		}
		shapes, err = action.OrNone(c.Tx.Shapes())
		return err
	})
	return shapes, err
}

// Networks are all networks.
func (s *Server) Networks(ctx context.Context, who farm.Identity) (networks []farm.FleetNetwork, err error) {
	err = s.look(ctx, who, policy.ReadCatalogue, func(c *call) error {
		if err := c.May(policy.Target{Name: "networks"}); err != nil {
			return err
		}
		networks, err = action.OrNone(c.Tx.Networks())
		return err
	})
	return networks, err
}
