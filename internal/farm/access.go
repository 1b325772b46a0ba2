package farm

import (
	"slices"
	"strings"
	"time"
)

// User is a person, or a program that acts as one.
type User struct {
	Name string
	// subjects of client certificates that are this user's, in RFC 2253's order, as "CN=Ann,O=Grid,C=CH"
	Subjects []string
	Logins   []string // who issuers know the user as: the issuer's name, and its subject, as "cern:0f3c"
	Disabled bool
	Revision int64
}

// Role is what somebody may do somewhere.
type Role string

// The roles; each may do what the ones before it may.
const (
	RoleReader   Role = "reader"   // see
	RoleMember   Role = "member"   // make VMs of a project, and do with one's own what one likes
	RoleOperator Role = "operator" // of a project: any VM of it; of a cell or the site: hosts, drains, closing
	RoleAdmin    Role = "admin"    // quotas, cells, tokens, roles
)

// Roles are all that there are, least first.
var Roles = []Role{RoleReader, RoleMember, RoleOperator, RoleAdmin}

// Valid reports whether there is such a role.
func (r Role) Valid() bool { return slices.Contains(Roles, r) }

// Above reports whether r may do more than o. No role, and one that is none, is below all.
func (r Role) Above(o Role) bool { return slices.Index(Roles, r) > slices.Index(Roles, o) }

// Grant gives a user a role: in one project, in one cell, or, with neither, everywhere.
type Grant struct {
	User    string
	Role    Role
	Project string
	Cell    string
}

// Token is a secret that stands for a user, with less than the user's rights where it says so.
type Token struct {
	ID       string // public; starts the secret's text
	User     string
	Note     string
	Hash     []byte   // SHA-256 of the secret, which is random and long
	Role     Role     // at most; "": the user's own
	Projects []string // only these; none: all of the user's
	Created  time.Time
	Expires  time.Time // zero: never
	Revision int64
}

// JoinToken lets a host enrol once, or so many of them.
type JoinToken struct {
	ID      string
	Hash    []byte
	Cell    string
	Name    string // of the host; "": any
	Labels  map[string]string
	By      string
	Expires time.Time
	Count   int       // hosts that may enrol with it; 0: one
	Uses    int       // hosts that did
	Used    time.Time // last; zero: not yet
	Host    string    // ID of the host that used it last
	CA      string    // fingerprint of the authority that it names; "": of a release before that was kept
}

// Identity is who calls, and how that is known.
type Identity struct {
	User     string
	Host     string   // ID of a host that speaks for itself; User is empty then
	Means    string   // "socket", "certificate", "token", "session", "oidc"
	Source   string   // subject, ID of the token or session, or uid: for the audit log
	Role     Role     // at most, by the token; "": no bound
	Projects []string // only these, by the token; none: no bound
	Grants   []Grant  // beside the user's own: what the claims of an issuer give
	Claimed  bool     // Grants are all: the user's own do not count
	Root     bool     // root on the server's own socket: may do all
}

// Entry is one line of the audit log: who did what to what, or was kept from it and why.
type Entry struct {
	ID      int64
	Time    time.Time
	Who     string // user or host
	Means   string
	Source  string
	Action  string // "vm.create"
	Target  string // "project/name"
	Project string
	Outcome string // "done", "denied", "failed"
	Reason  string
	// Revision of the store when it was written.
	Revision int64
}

// Validate refuses a user that cannot be.
func (u User) Validate() error {
	if err := CheckUser(u.Name); err != nil {
		return err
	}
	// what the audit log and join tokens call the server's own root, and the server
	if strings.EqualFold(u.Name, "root") || strings.EqualFold(u.Name, "grange") {
		return badFarm("user", u.Name, "the server itself is called so in its log")
	}
	for _, s := range u.Subjects {
		if plain, err := PlainSubject(s); err != nil || unprintable(s) || plain != s {
			return badFarm("user", u.Name,
				"invalid certificate subject %q: write its plain form, as \"CN=Ann,O=Grid,C=CH\" or "+
					"\"cern:CN=Ann,O=Grid,C=CH\"", s)
		}
	}
	if s := twice(u.Subjects); s != "" {
		return badFarm("user", u.Name, "subject %s twice", s)
	}
	for _, l := range u.Logins {
		if err := checkLogin(u.Name, l); err != nil {
			return err
		}
	}
	if l := twice(u.Logins); l != "" {
		return badFarm("user", u.Name, "login %s twice", l)
	}
	return nil
}

// Validate refuses a grant that cannot be.
func (g Grant) Validate() error {
	switch {
	case CheckUser(g.User) != nil:
		return CheckUser(g.User)
	case !g.Role.Valid():
		return badFarm("grant of", g.User, "no role is called %q; there are %v", g.Role, Roles)
	case g.Project != "" && g.Cell != "":
		return badFarm("grant of", g.User, "a role is held in a project or in a cell, not in both; give it twice")
	case g.Cell != "" && g.Role == RoleMember:
		return badFarm("grant of", g.User, "members are of projects: in a cell there are readers, operators and admins")
	}
	return nil
}

func (g Grant) String() string {
	switch {
	case g.Project != "":
		return g.User + " " + string(g.Role) + " project:" + g.Project
	case g.Cell != "":
		return g.User + " " + string(g.Role) + " cell:" + g.Cell
	}
	return g.User + " " + string(g.Role)
}
