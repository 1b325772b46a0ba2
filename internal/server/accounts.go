package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/farmfile"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
)

// rootName is what tokens and the audit log call root on the server's own socket.
const rootName = "root"

func userTarget(name string) policy.Target { return policy.Target{Owner: name, Name: "user " + name} }

// Users are all users; who may not see them gets itself alone.
func (s *Server) Users(ctx context.Context, who farm.Identity) (users []farm.User, err error) {
	err = s.look(ctx, who, policy.ReadUser, func(c *call) error {
		users, err = orNone(c.Tx.Users())
		if err == nil && c.may(policy.Target{}) != nil {
			users = slices.DeleteFunc(users, func(u farm.User) bool { return u.Name != who.User })
		}
		return err
	})
	return users, err
}

// PutUser makes or changes a user.
func (s *Server) PutUser(ctx context.Context, who farm.Identity, u farm.User, ifRevision int64) (farm.User, error) {
	revision, err := s.change(ctx, who, policy.WriteUser, func(c *call) error {
		if err := c.may(policy.Target{Name: "user " + u.Name}); err != nil {
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
		if err != nil && !missing(err) {
			return err
		}
		if err := c.still("user "+u.Name, c.target, old.Revision, ifRevision); err != nil {
			return err
		}
		if err := c.PutUser(u); err != nil {
			return err
		}
		return c.did(strings.Join(farmfile.DiffUser(old, u), ", "))
	})
	u.Revision = revision
	return u, err
}

// DeleteUser deletes a user with its grants and tokens. One that has VMs is not deleted: a user of the same name would
// have them.
func (s *Server) DeleteUser(ctx context.Context, who farm.Identity, name string, ifRevision int64) error {
	_, err := s.change(ctx, who, policy.WriteUser, func(c *call) error {
		if err := c.may(policy.Target{Name: "user " + name}); err != nil {
			return err
		}
		u, err := c.user(name)
		if err != nil {
			return err
		}
		if err := c.still("user "+name, c.target, u.Revision, ifRevision); err != nil {
			return err
		}
		if err := c.dropUser(name); err != nil {
			return err
		}
		return c.did("deleted")
	})
	return err
}

// dropUser leaves nothing that is a user's by its name.
func (c *call) dropUser(name string) error {
	vms, err := c.Tx.VMs(store.VMFilter{Owner: name, Limit: 1})
	if err != nil {
		return err
	}
	if len(vms) > 0 {
		return &farm.Error{Kind: farm.Conflict, Code: CodeUserHasVMs,
			Message: fmt.Sprintf("user %s has VMs, as %s", name, label(vms[0])),
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

func (c *call) user(name string) (farm.User, error) {
	u, err := c.User(name)
	if missing(err) {
		err = &farm.Error{Kind: farm.NotFound, Code: CodeNoUser, Message: fmt.Sprintf("no user %q", name),
			Hint: "`grange user list` shows those that there are"}
	}
	return u, err
}

// Grants are the roles of a user, "": of all, as far as the caller may see them: its own, and those that it could give.
func (s *Server) Grants(ctx context.Context, who farm.Identity, user string) (grants []farm.Grant, err error) {
	err = s.look(ctx, who, policy.ReadUser, func(c *call) error {
		all := c.may(policy.Target{}) == nil
		grants, err = orNone(c.Tx.Grants(user))
		grants = slices.DeleteFunc(grants, func(g farm.Grant) bool {
			return !all && g.User != who.User && !policy.Allow(who, c.grants, policy.WriteGrant, grantTarget(g)).Allowed
		})
		return err
	})
	return grants, err
}

func grantTarget(g farm.Grant) policy.Target {
	return policy.Target{Project: g.Project, Cell: g.Cell, Name: "grant " + g.String()}
}

// PutGrant gives a role. Giving it again changes nothing.
func (s *Server) PutGrant(ctx context.Context, who farm.Identity, g farm.Grant) error {
	_, err := s.change(ctx, who, policy.WriteGrant, func(c *call) error {
		if err := c.may(grantTarget(g)); err != nil {
			return err
		}
		if err := g.Validate(); err != nil {
			return err
		}
		if err := c.names(g); err != nil {
			return err
		}
		if err := c.Tx.PutGrant(g); err != nil {
			return err
		}
		return c.did("given")
	})
	return err
}

// names refuses a grant of what is not there.
func (c *call) names(g farm.Grant) error {
	if _, err := c.user(g.User); err != nil {
		return err
	}
	if g.Project != "" {
		if _, err := c.Tx.Project(g.Project); missing(err) {
			return noProject(g.Project)
		} else if err != nil {
			return err
		}
	}
	if g.Cell != "" {
		if _, err := c.Tx.Cell(g.Cell); missing(err) {
			return noCell(g.Cell)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func noProject(name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoProject,
		Message: fmt.Sprintf("no project %.80q", name),
		Hint:    "`grange project list` shows those that you may see"}
}

func noCell(name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoSuchCell,
		Message: fmt.Sprintf("no cell %.80q", name), Hint: "`grange cell list` shows those that there are"}
}

// DeleteGrant takes a role away.
func (s *Server) DeleteGrant(ctx context.Context, who farm.Identity, g farm.Grant) error {
	_, err := s.change(ctx, who, policy.WriteGrant, func(c *call) error {
		if err := c.may(grantTarget(g)); err != nil {
			return err
		}
		if err := c.Tx.DeleteGrant(g); missing(err) {
			return &farm.Error{Kind: farm.NotFound, Code: CodeNoGrant,
				Message: fmt.Sprintf("no grant %q", g), Hint: "`grange user list` shows roles"}
		} else if err != nil {
			return err
		}
		return c.did("taken away")
	})
	return err
}

// IdentifySubject is who calls with a client certificate that an authority has signed for a subject, in RFC 2253's
// order. Where it is not the only one, users must have it with the authority's name: any of the authorities could sign
// any subject. farm.CodeNotKnown: it is nobody's.
func (s *Server) IdentifySubject(ctx context.Context, authority, subject string, only bool) (farm.Identity, error) {
	var u farm.User
	unbound := false
	err := s.store.View(ctx, func(t *store.Tx) (err error) {
		if u, err = t.UserOfSubject(farm.BindSubject(authority, subject)); !missing(err) {
			return err
		}
		if u, err = t.UserOfSubject(subject); err == nil && !only {
			unbound = true
		}
		return err
	})
	switch {
	case missing(err):
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
func (s *Server) Whoami(ctx context.Context, who farm.Identity) (grants []farm.Grant, err error) {
	err = s.look(ctx, who, policy.ReadUser, func(c *call) error {
		grants = append([]farm.Grant{}, c.grants...)
		return nil
	})
	return grants, err
}
