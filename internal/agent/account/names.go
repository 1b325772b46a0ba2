package account

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/policy"
)

// Names are those of a caller and its groups, as far as the host's name service has any.
type Names struct {
	peer   Peer
	user   names.User        // the account that the caller counts for; without a name: it has none
	self   names.User        // of the caller's own user ID, which may be a subordinate one
	gids   []uint32          // the process's groups, and those that the name service gives the account
	named  []uint32          // those of gids that can have a name: they are not subordinate IDs
	groups map[uint32]string // names of them
	unsure bool              // the process has subordinate IDs, and no account is known that they belong to
	many   bool              // see Service.OneOfMany
}

// LookUp returns the names of a caller. An error says that nobody knows, not that the user has no name.
func (s Service) LookUp(ctx context.Context, p Peer) (n Names, err error) {
	done, err := s.Ask(ctx, p.User())
	if err != nil {
		return n, err
	}
	defer done()
	n.peer = p
	if n.user, err = s.user(ctx, p.User()); err != nil {
		return n, err
	}
	if n.self = n.user; p.UID != p.User() {
		if n.self, err = s.user(ctx, p.UID); err != nil {
			return n, err
		}
	}
	n.gids = p.allGroups()
	n.named = slices.DeleteFunc(p.allGroups(), s.subordinateGroup)
	if n.user.Name == "" {
		n.unsure = p.Owner != 0 || len(n.named) < len(n.gids) || s.subordinate(p.UID)
		n.many = s.canBeMany(p.User())
	} else { // a process can drop groups in a user namespace: its account still has them
		more, err := s.Names.GroupsOf(ctx, n.user)
		if err != nil {
			return n, err
		}
		n.gids, n.named = append(n.gids, more...), append(n.named, more...)
	}
	n.groups, err = s.Names.Groups(ctx, n.named)
	return n, err
}

// user returns an account of the name service; the zero User where it has none.
func (s Service) user(ctx context.Context, uid uint32) (names.User, error) {
	u, err := s.Names.User(ctx, uid)
	if errors.Is(err, names.ErrUnknown) {
		err = nil
	}
	return u, err
}

// OneOfMany reports whether the user has no name, and may be one of many that an account makes.
func (n Names) OneOfMany() bool { return n.many }

// Who returns the caller as rules see it, without its batch job.
func (n Names) Who() policy.Who {
	groups := slices.Collect(maps.Values(n.groups))
	return policy.Who{UID: n.peer.User(), User: n.user.Name, GIDs: n.gids, Groups: groups}
}

// Satisfy refuses a caller of whom the rules have to know a name that it does not have: a name service that is down
// looks the same, and the rule might have denied the job. The group by which a batch system tracks a job, tracked,
// never has a name.
func (n Names) Satisfy(rules []policy.Rule, tracked uint32) error {
	users, groups := policy.NeedsNames(rules)
	if users && n.user.Name == "" {
		return nameless("users", "passwd", n.peer.User())
	}
	if n.unsure && policy.NeedsUser(rules) {
		return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeNoNames,
			Message: fmt.Sprintf("a rule of this host's policy looks at users or groups, and user %d is a subordinate "+
				"ID of an account that is not known here", n.peer.User()),
			Hint: "call outside of the container or user namespace; or see which account /etc/subuid names"}
	}
	for _, gid := range n.named {
		if groups && n.groups[gid] == "" && (gid != tracked || gid == 0) {
			return nameless("groups", "group", gid)
		}
	}
	return nil
}

func nameless(what, database string, id uint32) error {
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeNoNames,
		Message: fmt.Sprintf("a rule of this host's policy looks at %s by name, and number %d has no name here", what,
			id),
		Hint: fmt.Sprintf("see why `getent %s %d` finds nothing on this host; or write numbers into the rules",
			database, id)}
}

// Shown returns the name of the caller's user for lists, records and limits.
func (n Names) Shown() string {
	if n.user.Name != "" {
		return n.user.Name
	}
	return numbered(n.peer.User())
}

func numbered(uid uint32) string { return fmt.Sprintf("u%d", uid) }

// Guest returns who the job runs as. Without a name it gets one made of its number, and the home that it says it has.
func (n Names) Guest(home string) guest.User {
	u := guest.User{Name: numbered(n.peer.UID), UID: n.peer.UID, GID: n.peer.GID, Home: home, Shell: "/bin/sh"}
	if n.self.Name != "" {
		u.Name, u.Home = n.self.Name, n.self.Home
	}
	if !filepath.IsAbs(u.Home) || strings.ContainsAny(u.Home, ":\n") {
		u.Home = "/tmp"
	}
	seen := map[uint32]bool{}
	for _, gid := range n.peer.allGroups() {
		if seen[gid] {
			continue
		}
		seen[gid] = true
		name := n.groups[gid]
		if name == "" {
			name = fmt.Sprintf("g%d", gid)
		}
		u.Groups = append(u.Groups, guest.Group{Name: name, GID: gid})
	}
	return u
}
