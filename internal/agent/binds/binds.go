// Package binds chooses how each directory that a job binds comes into its VM, has those served that have a server of
// their own, and tells the guest what to mount.
package binds

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway/confine"
	"github.com/grange-project/grange/internal/gateway/sftp"
	"github.com/grange-project/grange/internal/gateway/virtiofs"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/mounts"
)

// Bound is how a directory came into a VM with its first job, and under which tag.
type Bound struct {
	Target   string
	Gateway  farm.Gateway
	Why      string
	Tag      string `json:",omitempty"` // "": it has no server of its own
	ID       confine.DirectoryID
	ReadOnly bool          `json:",omitempty"`
	From     *mounts.Mount `json:",omitempty"` // the host's file system; nil: not known
}

// Caller is whose directories they are: the process that has them open.
type Caller struct {
	PID      int
	For      machine.ShareFor
	Gateways []farm.Gateway // that the site allows; nil: all
	StateDir string         // of the agent, with what was measured
	Alive    func() bool    // whether the very process still runs
	Gone     error          // where it does not
}

// wanted is the gateway that a bind is to have by what it asks for and what the site allows, nil being all; why says
// who decided. AnyGateway leaves it to order. Where the site names none, a bind that says nothing has FUSE: virtiofs
// keeps less of what some programs expect, and takes memory that is shared.
func wanted(asked farm.Gateway, allowed []farm.Gateway) (g farm.Gateway, why string) {
	switch {
	case asked == "" && allowed == nil:
		return farm.FUSE, "the default"
	case asked != "" && asked != farm.AnyGateway:
		return asked, "the bind asks for it"
	case len(allowed) == 1 && (asked == "" || slices.Contains(farm.Automatic, allowed[0])):
		return allowed[0], "the site's policy allows nothing else"
	}
	return farm.AnyGateway, ""
}

// Serve has directories served for a machine that is not made yet, adds to spec what they need, and returns how all
// come into it. What is chosen by itself falls back to the next gateway.
func Serve(ctx context.Context, m *machine.Machine, spec *hyper.Machine, all []api.Bind, c Caller) ([]Bound, error) {
	var bound []Bound
	for _, b := range all {
		done, share, err := serveOne(ctx, m, b, c)
		if err != nil {
			return nil, fmt.Errorf("bind %s: %w", b.Target, err)
		}
		switch {
		case share == nil:
		case done.Gateway == farm.SFTP:
			spec.Ports = append(spec.Ports, hyper.Port{Name: guest.BindPort(share.Tag), Path: share.Path, Served: true})
		default:
			spec.Shares = append(spec.Shares, *share)
		}
		bound = append(bound, done)
	}
	return bound, nil
}

// serveOne tries the gateways that a directory may have, one after the other.
func serveOne(ctx context.Context, m *machine.Machine, b api.Bind, c Caller) (Bound, *hyper.Share, error) {
	done := Bound{Target: b.Target, ReadOnly: b.ReadOnly, From: fileSystem(c, b.FD)}
	g, why := wanted(farm.Gateway(b.Gateway), c.Gateways)
	may := []farm.Gateway{g}
	if g == farm.AnyGateway {
		may, why = chosen(done.From, c)
	}
	for i, g := range may {
		done.Gateway, done.Why = g, why
		if g == farm.FUSE {
			return done, nil, nil
		}
		share, id, err := serve(ctx, m, machine.By{Gateway: g, ReadOnly: b.ReadOnly}, b, c, done.From)
		if err == nil {
			done.Tag, done.ID = share.Tag, id
			if g == farm.Virtiofs && slices.Contains(may, farm.FUSE) { // only the guest knows its kernel
				done.Why += "; fuse where the kernel of the image has no virtiofs"
			}
			return done, &share, nil
		}
		if i == len(may)-1 || !farm.IsCode(err, farm.CodeNoGateway) {
			return done, nil, err
		}
		why = err.Error()
	}
	return done, nil, errNone
}

// errNone is of a policy that allows no gateway that this release knows.
var errNone = &farm.Error{Kind: farm.Denied, Code: farm.CodeNoGateway, Message: "the site's policy allows no gateway",
	Hint: "the site's administrators may change `gateways` of the policy"}

// chosen is order for the directory of a file system, by what was measured on this host.
func chosen(from *mounts.Mount, c Caller) ([]farm.Gateway, string) {
	kind := ""
	if from != nil {
		kind = from.Type
	}
	m, err := measured(c.StateDir, kind)
	may, why := order(c.Gateways, kind, m)
	if err != nil {
		why += fmt.Sprintf(" (what was measured cannot be read: %v)", err)
	}
	return may, why
}

// errOldCaller is of a caller that does not say what it has open; 0 is always its standard input.
var errOldCaller = &farm.Error{Kind: farm.Invalid, Code: farm.CodeNoGateway,
	Message: "this `grange exec` is of an earlier release, which does not hand directories over",
	Hint:    "use the agent's release; or bind with gateway=fuse"}

// autofs is the kernel's half of automounters. Users of the host cannot mount it.
const autofs = "autofs"

// errOnDemand is of an automounter's directory. What is not FUSE serves a mount of its own, in which what the
// automounter mounts on the host is not seen: programs there find "Too many levels of symbolic links".
var errOnDemand = &farm.Error{Kind: farm.Invalid, Code: farm.CodeNoGateway,
	Message: "file systems are mounted in this directory on demand (autofs), which a VM would not see",
	Hint:    "bind with gateway=fuse"}

// serve has one directory served: what the very caller has open, not what a name leads to. from is where the kernel
// says that it is mounted from.
func serve(ctx context.Context, m *machine.Machine, by machine.By, b api.Bind, c Caller, from *mounts.Mount) (
	s hyper.Share, id confine.DirectoryID, err error) {
	if b.FD == 0 {
		return s, id, errOldCaller
	}
	if from != nil && from.Type == autofs {
		return s, id, errOnDemand
	}
	if by.Program, err = find(ctx, by.Gateway); err != nil {
		return s, id, err
	}
	d, err := confine.Clone(ctx, c.PID, b.FD, c.For.UID, b.ReadOnly)
	if err != nil {
		if !c.Alive() {
			err = c.Gone
		}
		return s, id, err
	}
	defer d.Close()
	if !c.Alive() {
		return s, id, c.Gone
	}
	s, err = m.Serve(ctx, by, d, c.For)
	return s, d.ID, err
}

// find returns the program on this host that serves by a gateway.
func find(ctx context.Context, g farm.Gateway) (string, error) {
	if g == farm.SFTP {
		return sftp.Find()
	}
	return virtiofs.Find(ctx)
}

// ForGuest are a job's binds as its guest gets them: those that have a server of their own with their tags or ports. A
// later task of a batch job mounts what its VM was made with. m is that VM, and nil where it has gone.
func ForGuest(ctx context.Context, has []Bound, all []api.Bind, c Caller, m *machine.Machine) ([]guest.Bind, error) {
	var out []guest.Bind
	for _, b := range all {
		bind, err := forGuest(ctx, has, b, c, m)
		if err != nil {
			return nil, err
		}
		out = append(out, bind)
	}
	return out, nil
}

func forGuest(ctx context.Context, has []Bound, b api.Bind, c Caller, m *machine.Machine) (guest.Bind, error) {
	bind := guest.Bind{Target: filepath.Clean(b.Target), ReadOnly: b.ReadOnly}
	g, _ := wanted(farm.Gateway(b.Gateway), c.Gateways)
	if g == farm.FUSE {
		return bind, nil
	}
	by := g
	if g == farm.AnyGateway {
		by = farm.Virtiofs
	}
	tag, err := tagOf(ctx, has, b, by, c)
	takes := m != nil && m.Control.TakesBinds(by)
	stream := g == farm.AnyGateway && (c.Gateways == nil || slices.Contains(c.Gateways, farm.FUSE))
	switch {
	case stream && farm.IsCode(err, farm.CodeNoGateway):
		return bind, nil
	case err != nil:
		return bind, err
	case tag != "" && takes && by == farm.SFTP:
		bind.Port = guest.BindPort(tag)
	case tag != "" && takes:
		bind.Tag, bind.Stream = tag, stream
	case stream:
	case tag != "":
		return bind, &farm.Error{Kind: farm.Invalid, Code: machine.CodeOldGuest,
			Message: "the grange-guest in the image is of an earlier release: it mounts nothing by " + string(by),
			Hint:    "build the image again: `grange image build micro`; or bind with gateway=fuse"}
	default:
		return bind, &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoGateway,
			Message: string(by) + ": the job's VM was made without the directory for " + b.Target,
			Hint: "all tasks of a job on a host share one VM, which has the directories of its first task: bind the " +
				"same ones in all, or with gateway=fuse"}
	}
	return bind, nil
}

// tagOf finds the directory of a bind among those that the VM has by a gateway; "": it is none of them.
func tagOf(ctx context.Context, has []Bound, b api.Bind, by farm.Gateway, c Caller) (string, error) {
	served := func(h Bound) bool { return h.Tag != "" && h.Gateway == by }
	if !slices.ContainsFunc(has, served) {
		return "", nil
	}
	if b.FD == 0 {
		return "", errOldCaller
	}
	id, err := confine.Identify(ctx, c.PID, b.FD, c.For.UID)
	if err != nil {
		return "", err
	}
	if !c.Alive() {
		return "", c.Gone
	}
	for _, h := range has {
		if served(h) && h.ID == id && h.ReadOnly == b.ReadOnly {
			return h.Tag, nil
		}
	}
	return "", nil
}

// View is what people are shown.
func View(all []Bound) []api.BoundBy {
	var out []api.BoundBy
	for _, b := range all {
		out = append(out, api.BoundBy{Target: farm.Clean(b.Target, machine.MaxReason), Gateway: string(b.Gateway),
			Why: farm.Clean(b.Why, machine.MaxReason), FileSystem: viewFileSystem(b.From)})
	}
	return out
}
