package server

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
)

// call is one action in its transaction: who asks, and what for. It lives as long as the transaction.
type call struct {
	*store.Tx
	s      *Server
	who    farm.Identity
	now    time.Time
	action policy.Action
	target policy.Target
	grants []farm.Grant
	seen   seen
}

// outcomes of an entry.
const (
	outcomeDone   = "done"
	outcomeDenied = "denied"
	outcomeFailed = "failed"
)

// change runs an action that writes. All that do writes is there together, with its entry in the audit log, or not at
// all; what is refused leaves an entry of its own. do may run twice.
func (s *Server) change(ctx context.Context, who farm.Identity, action policy.Action,
	do func(*call) error) (revision int64, err error) {
	var c *call
	revision, err = s.store.Update(ctx, func(t *store.Tx) error {
		if c, err = s.begin(t, who, action); err != nil {
			return err
		}
		return do(c)
	})
	if err != nil && c != nil {
		s.refused(ctx, c, err)
	}
	return revision, err
}

// look runs an action that reads, on one snapshot.
func (s *Server) look(ctx context.Context, who farm.Identity, action policy.Action, do func(*call) error) error {
	return s.store.View(ctx, func(t *store.Tx) error {
		c, err := s.begin(t, who, action)
		if err != nil {
			return err
		}
		return do(c)
	})
}

func (s *Server) begin(t *store.Tx, who farm.Identity, action policy.Action) (*call, error) {
	c := &call{Tx: t, s: s, who: who, now: s.now().UTC(), action: action}
	if who.User == "" || who.Root {
		return c, nil
	}
	var err error
	c.grants, err = t.Grants(who.User)
	return c, err
}

// may is nil where the caller may do the action to the target, which the audit log names from then on.
func (c *call) may(target policy.Target) error {
	c.target = target
	return policy.Allow(c.who, c.grants, c.action, target).Err()
}

// sees reports whether the caller may read a VM.
func (c *call) sees(vm farm.VM) bool {
	return policy.Allow(c.who, c.grants, policy.ReadVM, vmTarget(vm)).Allowed
}

// did enters what was done. Of several targets, each has an entry.
func (c *call) did(reason string) error {
	return c.Audit(entry(c.who, c.now, c.action, c.target, outcomeDone, reason))
}

// refused records what was not done, and why. Reads leave no entry, and neither does a caller who went away.
func (s *Server) refused(ctx context.Context, c *call, err error) {
	e, ok := errors.AsType[*farm.Error](err)
	if !ok || !c.action.Changes() {
		return
	}
	outcome := outcomeFailed
	if e.Kind == farm.Denied {
		outcome = outcomeDenied
	}
	line := entry(c.who, c.now, c.action, c.target, outcome, string(e.Code)+": "+e.Message)
	if _, err := s.store.Update(ctx, func(t *store.Tx) error { return t.Audit(line) }); err != nil {
		s.log.Error("a refusal could not be recorded", "action", c.action, "target", c.target.String(), "who",
			line.Who, "error", err)
	}
}

// maxReason bounds what one entry says.
const maxReason = 1000

func entry(who farm.Identity, now time.Time, action policy.Action, target policy.Target, outcome,
	reason string) farm.Entry {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	return farm.Entry{Time: now, Who: cmp.Or(who.User, who.Host, "root"), Means: who.Means, Source: who.Source,
		Action: string(action), Target: target.String(), Project: target.Project, Outcome: outcome,
		Reason: farm.Printable(reason)}
}

// itself is the server as the one who acts: by a date that came, a drain, an operator's fence.
var itself = farm.Identity{User: "grange", Means: "server", Root: true}

// vmTarget is a VM as policy sees it.
func vmTarget(vm farm.VM) policy.Target {
	return policy.Target{Project: vm.Project, Cell: vm.Cell, Owner: vm.Owner, Name: label(vm)}
}

// hostTarget is a host as policy sees it.
func hostTarget(h farm.Host) policy.Target { return policy.Target{Cell: h.Cell, Name: h.Name} }

// cellTarget is a cell as policy sees it.
func cellTarget(name string) policy.Target { return policy.Target{Cell: name} }
