package server

import (
	"context"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// call is an action on VMs and hosts: with the server, and with what it has looked up.
type call struct{ views }

func (s *Server) begun(do func(*call) error) func(*action.Call) error {
	return func(c *action.Call) error { return do(&call{views{Call: c, s: s}}) }
}

// change runs an action that writes.
func (s *Server) change(ctx context.Context, who farm.Identity, a policy.Action, do func(*call) error) (revision int64,
	err error) {
	return s.actions.Change(ctx, who, a, s.begun(do))
}

// look runs an action that reads.
func (s *Server) look(ctx context.Context, who farm.Identity, a policy.Action, do func(*call) error) error {
	return s.actions.Look(ctx, who, a, s.begun(do))
}

// byItself runs a transaction of a loop.
func (s *Server) byItself(ctx context.Context, epoch int64, a policy.Action, do func(*call) error) error {
	return s.actions.ByItself(ctx, epoch, a, s.begun(do))
}
