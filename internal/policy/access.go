package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Action is what somebody wants to do in the fleet, as the audit log has it.
type Action string

// The actions. Those that change a VM are free to its owner as long as the owner is a member of its project.
const (
	ReadVM    Action = "vm.read"
	CreateVM  Action = "vm.create"
	UpdateVM  Action = "vm.update" // tags, date of expiry
	StartVM   Action = "vm.start"
	StopVM    Action = "vm.stop"
	RestartVM Action = "vm.restart"
	ResizeVM  Action = "vm.resize"
	RebuildVM Action = "vm.rebuild"
	DeleteVM  Action = "vm.delete"
	MoveVM    Action = "vm.move" // to another host, while it runs
	ConsoleVM Action = "vm.console"
	ConnectVM Action = "vm.connect" // a stream to one of its ports, as for SSH

	ReadCatalogue Action = "catalogue.read" // cells, shapes, networks, images: what a VM may be and where
	WriteImage    Action = "image.write"    // add, name, deprecate, withdraw, remove
	StageImage    Action = "image.stage"    // have hosts fetch images, and remove them
	ReadProject   Action = "project.read"
	WriteGroup    Action = "group.write"
	// WriteSecurityGroup opens VMs of the whole project, or closes them.
	WriteSecurityGroup Action = "security-group.write"
	ReadHost           Action = "host.read"
	OpenHost           Action = "host.open"
	CloseHost          Action = "host.close"
	DrainHost          Action = "host.drain"
	LabelHost          Action = "host.label"
	FenceHost          Action = "host.fence"
	EvictHost          Action = "host.evict" // VMs that the server does not know
	ForgetHost         Action = "host.forget"
	JoinHost           Action = "host.join" // tokens by which hosts enrol
	// network file systems that the site declares, on all hosts
	ReadFileSystem   Action = "file-system.read"
	DrainFileSystem  Action = "file-system.drain"
	ResumeFileSystem Action = "file-system.resume"
	OpenCell         Action = "cell.open"
	CloseCell        Action = "cell.close"
	DrainCell        Action = "cell.drain"

	ReadUser   Action = "user.read"
	WriteUser  Action = "user.write"
	WriteGrant Action = "grant.write"
	ReadToken  Action = "token.read"
	MakeToken  Action = "token.create"
	DropToken  Action = "token.revoke"
	// sessions of browsers and command lines: who is signed in
	ReadSession Action = "session.read"
	EndSession  Action = "session.end"
	ReadAudit   Action = "audit.read"
	// shared records of problems: of each, what it concerns decides, one thing of it is enough
	ReadIncident   Action = "incident.read"
	OpenIncident   Action = "incident.open"
	NoteIncident   Action = "incident.note"
	LinkIncident   Action = "incident.link"  // to what it concerns, too, and to another incident
	CloseIncident  Action = "incident.close" // and give it another severity
	ReopenIncident Action = "incident.reopen"

	ReadUsage  Action = "usage.read"  // what VMs have used: one's own, or that of a project or a cell
	CloseUsage Action = "usage.close" // a month, for good
	// WithdrawUsage takes a host's records back: they count for nobody any more.
	WithdrawUsage Action = "usage.withdraw"
	ReadFarm      Action = "farm.read"  // export, and what an apply would change
	ApplyFarm     Action = "farm.apply" // cells, projects and quotas, networks, shapes, users, grants, settings
	ReadCA        Action = "ca.read"    // the fleet's authorities, and which hosts a rotation waits for
	RotateCA      Action = "ca.rotate"
	RetireCA      Action = "ca.retire"
)

// need is what an action takes: the least role, and where it may be held beside everywhere.
type need struct {
	least   farm.Role
	project bool      // in the target's project
	cell    bool      // in the target's cell
	own     farm.Role // in the same places, for what the caller owns; "": owning changes nothing
	self    bool      // what is the caller's own needs no role at all, and a token without bounds
	any     bool      // that role anywhere at all
}

var needs = map[Action]need{
	ReadVM:    {least: farm.RoleReader, project: true, cell: true},
	CreateVM:  {least: farm.RoleMember, project: true},
	UpdateVM:  operatorOrOwner,
	StartVM:   operatorOrOwner,
	StopVM:    operatorOrOwner,
	RestartVM: operatorOrOwner,
	ResizeVM:  operatorOrOwner,
	RebuildVM: operatorOrOwner,
	DeleteVM:  operatorOrOwner,
	MoveVM:    {least: farm.RoleOperator, cell: true}, // its owner has no word in where it is
	ConsoleVM: operatorOrOwner,
	ConnectVM: operatorOrOwner,

	WriteSecurityGroup: {least: farm.RoleOperator, project: true},
	ReadCatalogue:      {least: farm.RoleReader, any: true},
	WriteImage:         {least: farm.RoleAdmin},
	StageImage:         {least: farm.RoleOperator, cell: true},
	ReadProject:        {least: farm.RoleReader, project: true},
	WriteGroup:         {least: farm.RoleMember, project: true},
	ReadHost:           {least: farm.RoleReader, cell: true},
	OpenHost:           {least: farm.RoleOperator, cell: true},
	CloseHost:          {least: farm.RoleOperator, cell: true},
	DrainHost:          {least: farm.RoleOperator, cell: true},
	LabelHost:          {least: farm.RoleOperator, cell: true},
	FenceHost:          {least: farm.RoleOperator, cell: true},
	EvictHost:          {least: farm.RoleOperator, cell: true},
	ForgetHost:         {least: farm.RoleOperator, cell: true},
	JoinHost:           {least: farm.RoleAdmin, cell: true}, // what joins a cell is given its users' VMs
	ReadFileSystem:     {least: farm.RoleReader, any: true},
	DrainFileSystem:    {least: farm.RoleOperator},
	ResumeFileSystem:   {least: farm.RoleOperator},
	OpenCell:           {least: farm.RoleOperator, cell: true},
	CloseCell:          {least: farm.RoleOperator, cell: true},
	DrainCell:          {least: farm.RoleOperator, cell: true},

	ReadUser:    {least: farm.RoleAdmin, self: true},
	WriteUser:   {least: farm.RoleAdmin},
	WriteGrant:  {least: farm.RoleAdmin, project: true, cell: true},
	ReadToken:   {least: farm.RoleAdmin, self: true},
	MakeToken:   {least: farm.RoleAdmin, self: true},
	DropToken:   {least: farm.RoleAdmin, self: true},
	ReadSession: {least: farm.RoleAdmin, self: true},
	EndSession:  {least: farm.RoleAdmin, self: true},
	ReadAudit:   {least: farm.RoleOperator, project: true, self: true},

	ReadIncident:   {least: farm.RoleReader, project: true, cell: true},
	OpenIncident:   {least: farm.RoleMember, project: true, cell: true},
	NoteIncident:   {least: farm.RoleMember, project: true, cell: true},
	LinkIncident:   {least: farm.RoleMember, project: true, cell: true},
	CloseIncident:  operatorOrOpener,
	ReopenIncident: operatorOrOpener,

	ReadUsage:  {least: farm.RoleReader, project: true, cell: true, self: true},
	CloseUsage: {least: farm.RoleAdmin},

	WithdrawUsage: {least: farm.RoleAdmin},

	ReadFarm:  {least: farm.RoleReader},
	ApplyFarm: {least: farm.RoleAdmin},
	ReadCA:    {least: farm.RoleReader},
	RotateCA:  {least: farm.RoleAdmin},
	RetireCA:  {least: farm.RoleAdmin},
}

// operatorOrOwner is a project's operator for any VM of it, and a member for its own.
var operatorOrOwner = need{least: farm.RoleOperator, project: true, own: farm.RoleMember}

// operatorOrOpener is an operator of what an incident concerns, and a member for what it opened.
var operatorOrOpener = need{least: farm.RoleOperator, project: true, cell: true, own: farm.RoleMember}

// Actions are all that there are, in the order of their names.
func Actions() []Action {
	var all []Action
	for a := range needs {
		all = append(all, a)
	}
	slices.Sort(all)
	return all
}

// Changes reports whether an action changes anything, or lets its caller into a VM.
func (a Action) Changes() bool { return !strings.HasSuffix(string(a), ".read") }

// Target is what an action is done to. What is empty it has none of.
type Target struct {
	Project string
	Cell    string
	Owner   string // user whose it is
	Name    string // for people: "atlas/vm-1"; "": told by the rest
}

func (t Target) String() string {
	switch {
	case t.Name != "":
		return t.Name
	case t.Project != "":
		return "project " + t.Project
	case t.Cell != "":
		return "cell " + t.Cell
	case t.Owner != "":
		return "user " + t.Owner
	}
	return "the whole farm"
}

// Access is whether somebody may do something, and each rule that was looked at, with what it said. The last line is
// the outcome.
type Access struct {
	Allowed bool
	Why     []string

	action Action
	target Target
	who    string
}

// Allow decides by roles. Grants of others than who are passed over.
func Allow(who farm.Identity, grants []farm.Grant, action Action, target Target) Access {
	d := &Access{action: action, target: target, who: caller(who)}
	n, known := needs[action]
	switch {
	case !known:
		return d.end(false, "nobody may %s: no such action", action)
	case who.Root:
		return d.end(true, "root on the server's own socket may do all")
	case who.Host != "":
		return d.end(false, "a host speaks for itself only: it has no roles")
	case who.User == "":
		return d.end(false, "nobody is known to call")
	}
	if !d.bounds(who, n, target) {
		return *d
	}
	if n.self && target.Owner == who.User {
		if !action.Changes() || !bounded(who) {
			return d.end(true, "it is %s's own", who.User)
		}
		d.say("it is %s's own, and the %s has less than its user's rights: it could give itself more",
			who.User, who.Means)
	}
	least := n.least
	if n.own != "" && target.Owner == who.User {
		least = n.own
		d.say("it is %s's own: role %s is enough", who.User, least)
	}
	role, from := d.highest(who, grants, n, target)
	if role.Above(who.Role) && who.Role != "" {
		d.say("the %s bounds role %s to %s", who.Means, role, who.Role)
		role = who.Role
	}
	if role == "" {
		return d.end(false, "%s needs role %s %s, and %s has none there", action, least, where(n, target), who.User)
	}
	if least.Above(role) {
		return d.end(false, "%s needs role %s %s, and %s is %s there", action, least, where(n, target), who.User, role)
	}
	return d.end(true, "role %s %s is enough for %s, which needs %s", role, from, action, least)
}

// bounded reports whether a token, of ours or of an issuer, has less than its user's rights.
func bounded(who farm.Identity) bool {
	return who.Claimed || len(who.Projects) > 0 || who.Role != "" && who.Role != farm.RoleAdmin
}

// bounds holds the action against what a token leaves of its user's rights.
func (d *Access) bounds(who farm.Identity, n need, t Target) bool {
	if len(who.Projects) == 0 || n.any {
		return true
	}
	if t.Project == "" || !slices.Contains(who.Projects, t.Project) {
		d.end(false, "the %s is for %s only", who.Means, projects(who.Projects))
		return false
	}
	d.say("the %s is for %s only: project %s is among them", who.Means, projects(who.Projects), t.Project)
	return true
}

// highest is the highest role that counts for the target, and where it is held.
func (d *Access) highest(who farm.Identity, grants []farm.Grant, n need, t Target) (role farm.Role, from string) {
	for _, g := range grants {
		if g.User != who.User {
			continue
		}
		if !counts(g, n, t) {
			d.say("role %s %s does not count here", g.Role, held(g))
			continue
		}
		d.say("role %s %s counts", g.Role, held(g))
		if g.Role.Above(role) {
			role, from = g.Role, held(g)
		}
	}
	return role, from
}

func counts(g farm.Grant, n need, t Target) bool {
	switch {
	case !g.Role.Valid():
		return false
	case g.Project == "" && g.Cell == "", n.any:
		return true
	case g.Project != "" && (!n.project || g.Project != t.Project):
		return false
	case g.Cell != "" && (!n.cell || g.Cell != t.Cell):
		return false
	}
	return true
}

func where(n need, t Target) string {
	var places []string
	switch {
	case n.any:
		return "anywhere"
	case n.project && t.Project != "":
		places = append(places, "in project "+t.Project)
	}
	if n.cell && t.Cell != "" {
		places = append(places, "in cell "+t.Cell)
	}
	return strings.Join(append(places, "everywhere"), " or ")
}

func held(g farm.Grant) string {
	switch {
	case g.Project != "" && g.Cell != "":
		return "in project " + g.Project + " on cell " + g.Cell
	case g.Project != "":
		return "in project " + g.Project
	case g.Cell != "":
		return "in cell " + g.Cell
	}
	return "everywhere"
}

func projects(names []string) string {
	if len(names) == 1 {
		return "project " + names[0]
	}
	return "projects " + strings.Join(names, ", ")
}

func caller(who farm.Identity) string {
	switch {
	case who.Root:
		return "root"
	case who.Host != "":
		return "host " + who.Host
	case who.User == "":
		return "nobody"
	}
	return who.User
}

func (d *Access) say(format string, args ...any) { d.Why = append(d.Why, fmt.Sprintf(format, args...)) }

func (d *Access) end(allowed bool, format string, args ...any) Access {
	d.Allowed = allowed
	d.say(format, args...)
	return *d
}

// Reason is the rule that decided.
func (d Access) Reason() string {
	if len(d.Why) == 0 {
		return ""
	}
	return d.Why[len(d.Why)-1]
}

// Err is nil where access is allowed, and else a *farm.Error of kind Denied that says which rule decided.
func (d Access) Err() error {
	if d.Allowed {
		return nil
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNoRole,
		Message: fmt.Sprintf("%s may not %s on %s: %s", d.who, d.action, d.target, d.Reason()),
		Hint:    fmt.Sprintf("ask an administrator for a role; `grange auth explain %s` shows every rule", d.action)}
}
