package agent

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/policy"
)

// callerNames are the names of a caller, as far as the host's name service has any.
type callerNames struct {
	user   names.User // without a name: it has none
	groups map[uint32]string
}

// namesOf looks the caller up. An error says that nobody knows, not that the user has no name.
func (a requests) namesOf(c Caller) (callerNames, error) {
	u, err := a.names.User(a.ctx, c.UID)
	if err != nil && !errors.Is(err, names.ErrUnknown) {
		return callerNames{}, err
	}
	groups, err := a.names.Groups(a.ctx, c.allGroups())
	return callerNames{u, groups}, err
}

func (c Caller) allGroups() []uint32 { return append([]uint32{c.GID}, c.Groups...) }

// satisfy refuses a caller of whom the rules have to know a name that it does not have: a name service that is down
// looks the same, and the rule might have denied the job. The group by which a batch system tracks a job never has a
// name.
func (n callerNames) satisfy(rules []policy.Rule, c Caller) error {
	users, groups := policy.NeedsNames(rules)
	if users && n.user.Name == "" {
		return nameless("users", "passwd", c.UID)
	}
	for _, gid := range c.allGroups() {
		if groups && n.groups[gid] == "" && (gid != c.Batch.Group || gid == 0) {
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

// guestUser is who the job runs as. Without a name it gets one made of its number, and the home that it says it has.
func (n callerNames) guestUser(c Caller, home string) guest.User {
	u := guest.User{Name: fmt.Sprintf("u%d", c.UID), UID: c.UID, GID: c.GID, Home: home, Shell: "/bin/sh"}
	if n.user.Name != "" {
		u.Name, u.Home = n.user.Name, n.user.Home
	}
	if !filepath.IsAbs(u.Home) || strings.ContainsAny(u.Home, ":\n") {
		u.Home = "/tmp"
	}
	for i, gid := range c.allGroups() {
		if slices.Contains(c.allGroups()[:i], gid) {
			continue
		}
		name := n.groups[gid]
		if name == "" {
			name = fmt.Sprintf("g%d", gid)
		}
		u.Groups = append(u.Groups, guest.Group{Name: name, GID: gid})
	}
	return u
}
