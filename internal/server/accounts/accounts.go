// Package accounts is who may come to the server, and what for: users, their roles, tokens and sessions, and how a
// caller is known by them.
package accounts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/farmfile"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// Codes of errors about users and their rights; see docs/errors.md.
const (
	CodeUserHasVMs    farm.Code = "user-has-vms" // a user that has VMs is not deleted
	CodeNoUser        farm.Code = "no-user"
	CodeNoGrant       farm.Code = "no-grant"
	CodeNoAction      farm.Code = "no-action"       // nothing that anybody could do in the fleet is called so
	CodeBadTokenOrder farm.Code = "bad-token-order" // a token that cannot be made
	// a user has a certificate's subject without the authority, of which there are several
	CodeUnboundCert farm.Code = "certificate-not-bound"
)

// Accounts are the users of a fleet, with their roles, tokens and sessions.
type Accounts struct {
	actions action.Actions
	limits  SessionLimits
}

func New(a action.Actions, l SessionLimits) *Accounts { return &Accounts{a, l.withDefaults()} }

func userTarget(name string) policy.Target { return policy.Target{Owner: name, Name: "user " + name} }

// Users are all users; who may not see them gets itself alone.
func (s *Accounts) Users(ctx context.Context, who farm.Identity) (users []farm.User, err error) {
	err = s.actions.Look(ctx, who, policy.ReadUser, func(c *action.Call) error {
		users, err = action.OrNone(c.Tx.Users())
		if err == nil && c.May(policy.Target{}) != nil {
			users = slices.DeleteFunc(users, func(u farm.User) bool { return u.Name != who.User })
		}
		return err
	})
	return users, err
}

// PutUser makes or changes a user.
func (s *Accounts) PutUser(ctx context.Context, who farm.Identity, u farm.User, ifRevision int64) (farm.User, error) {
	revision, err := s.actions.Change(ctx, who, policy.WriteUser, func(c *action.Call) error {
		if err := c.May(policy.Target{Name: "user " + u.Name}); err != nil {
			return err
		}
		var err error
		if u.Subjects, err = farm.PlainSubjects(u.Subjects); err != nil {
			return err
		}
		if err := u.Validate(); err != nil {
			return err
		}
		old, err := c.User(u.Name)
		if err != nil && !action.Missing(err) {
			return err
		}
		if err := c.Still("user "+u.Name, c.Target, old.Revision, ifRevision); err != nil {
			return err
		}
		if err := c.PutUser(u); err != nil {
			return err
		}
		return c.Did(strings.Join(farmfile.DiffUser(old, u), ", "))
	})
	u.Revision = revision
	return u, err
}

// DeleteUser deletes a user with its grants and tokens. One that has VMs is not deleted: a user of the same name would
// have them.
func (s *Accounts) DeleteUser(ctx context.Context, who farm.Identity, name string, ifRevision int64) error {
	_, err := s.actions.Change(ctx, who, policy.WriteUser, func(c *action.Call) error {
		if err := c.May(policy.Target{Name: "user " + name}); err != nil {
			return err
		}
		u, err := findUser(c, name)
		if err != nil {
			return err
		}
		if err := c.Still("user "+name, c.Target, u.Revision, ifRevision); err != nil {
			return err
		}
		if err := Drop(c, name); err != nil {
			return err
		}
		return c.Did("deleted")
	})
	return err
}

// Drop leaves nothing that is a user's by its name.
func Drop(c *action.Call, name string) error {
	vms, err := c.Tx.VMs(store.VMFilter{Owner: name, Limit: 1})
	if err != nil {
		return err
	}
	if len(vms) > 0 {
		return &farm.Error{Kind: farm.Conflict, Code: CodeUserHasVMs,
			Message: fmt.Sprintf("user %s has VMs, as %s", name, action.Label(vms[0])),
			Hint: "delete them first, or keep the user from doing anything: `grange user set " + name +
				" --disable`"}
	}
	tokens, err := c.Tx.JoinTokens()
	if err != nil {
		return err
	}
	for _, k := range tokens {
		if k.By != name {
			continue
		}
		if err := c.Tx.DeleteJoinToken(k.ID); err != nil {
			return err
		}
	}
	return c.DeleteUser(name)
}

func findUser(c *action.Call, name string) (farm.User, error) {
	u, err := c.User(name)
	if action.Missing(err) {
		err = &farm.Error{Kind: farm.NotFound, Code: CodeNoUser, Message: fmt.Sprintf("no user %q", name),
			Hint: "`grange user list` shows those that there are"}
	}
	return u, err
}

// Grants are the roles of a user, "": of all, as far as the caller may see them: its own, and those that it could give.
func (s *Accounts) Grants(ctx context.Context, who farm.Identity, user string) (grants []farm.Grant, err error) {
	err = s.actions.Look(ctx, who, policy.ReadUser, func(c *action.Call) error {
		all := c.May(policy.Target{}) == nil
		grants, err = action.OrNone(c.Tx.Grants(user))
		grants = slices.DeleteFunc(grants, func(g farm.Grant) bool {
			return !all && g.User != who.User && !policy.Allow(who, c.Grants, policy.WriteGrant, grantTarget(g)).Allowed
		})
		return err
	})
	return grants, err
}

func grantTarget(g farm.Grant) policy.Target {
	return policy.Target{Project: g.Project, Cell: g.Cell, Name: "grant " + g.String()}
}

// PutGrant gives a role. Giving it again changes nothing.
func (s *Accounts) PutGrant(ctx context.Context, who farm.Identity, g farm.Grant) error {
	_, err := s.actions.Change(ctx, who, policy.WriteGrant, func(c *action.Call) error {
		if err := c.May(grantTarget(g)); err != nil {
			return err
		}
		if err := g.Validate(); err != nil {
			return err
		}
		if err := names(c, g); err != nil {
			return err
		}
		if err := c.Tx.PutGrant(g); err != nil {
			return err
		}
		return c.Did("given")
	})
	return err
}

// names refuses a grant of what is not there.
func names(c *action.Call, g farm.Grant) error {
	if _, err := findUser(c, g.User); err != nil {
		return err
	}
	if g.Project != "" {
		if _, err := c.Tx.Project(g.Project); action.Missing(err) {
			return action.NoProject(g.Project)
		} else if err != nil {
			return err
		}
	}
	if g.Cell != "" {
		if _, err := c.Tx.Cell(g.Cell); action.Missing(err) {
			return action.NoCell(g.Cell)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// DeleteGrant takes a role away.
func (s *Accounts) DeleteGrant(ctx context.Context, who farm.Identity, g farm.Grant) error {
	_, err := s.actions.Change(ctx, who, policy.WriteGrant, func(c *action.Call) error {
		if err := c.May(grantTarget(g)); err != nil {
			return err
		}
		if err := c.Tx.DeleteGrant(g); action.Missing(err) {
			return &farm.Error{Kind: farm.NotFound, Code: CodeNoGrant,
				Message: fmt.Sprintf("no grant %q", g), Hint: "`grange user list` shows roles"}
		} else if err != nil {
			return err
		}
		return c.Did("taken away")
	})
	return err
}

// IdentifySubject is who calls with a client certificate that an authority has signed for a subject, in RFC 2253's
// order. Where it is not the only one, users must have it with the authority's name: any of the authorities could sign
// any subject. farm.CodeNotKnown: it is nobody's.
func (s *Accounts) IdentifySubject(ctx context.Context, authority, subject string, only bool) (farm.Identity, error) {
	var u farm.User
	unbound := false
	err := s.actions.Store.View(ctx, func(t *store.Tx) (err error) {
		if u, err = t.UserOfSubject(farm.BindSubject(authority, subject)); !action.Missing(err) {
			return err
		}
		if u, err = t.UserOfSubject(subject); err == nil && !only {
			unbound = true
		}
		return err
	})
	switch {
	case action.Missing(err):
		return farm.Identity{}, notKnown("the certificate of %q, of authority %s, belongs to no user", subject,
			authority)
	case err == nil && unbound:
		return farm.Identity{}, &farm.Error{Kind: farm.Denied, Code: CodeUnboundCert,
			Message: fmt.Sprintf("the certificate of %q is a user's of no certain authority, and this server has "+
				"several", subject),
			Hint: fmt.Sprintf("if the user's is of this authority, an administrator says so: `grange user set USER "+
				"--subject '%s'`", farm.BindSubject(authority, subject))}
	case err == nil && u.Disabled:
		return farm.Identity{}, notKnown("user %s is disabled", u.Name)
	}
	return farm.Identity{User: u.Name, Means: "certificate", Source: farm.BindSubject(authority, subject)}, err
}

func notKnown(format string, args ...any) *farm.Error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotKnown, Message: fmt.Sprintf(format, args...),
		Hint: "ask an administrator; `grange auth whoami` shows who you are to the server"}
}

// Whoami are the caller's roles.
func (s *Accounts) Whoami(ctx context.Context, who farm.Identity) (grants []farm.Grant, err error) {
	err = s.actions.Look(ctx, who, policy.ReadUser, func(c *action.Call) error {
		grants = append([]farm.Grant{}, c.Grants...)
		return nil
	})
	return grants, err
}
