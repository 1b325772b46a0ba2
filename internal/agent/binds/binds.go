// Package binds chooses how each directory that a job binds comes into its VM, has those that virtiofs is for served,
// and tells the guest what to mount.
package binds

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway/virtiofs"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/mounts"
)

// Bound is how a directory came into a VM with its first job, and by which tag virtiofs has it.
type Bound struct {
	Target   string
	Gateway  farm.Gateway
	Why      string
	Tag      string `json:",omitempty"` // "": virtiofs has it not
	ID       virtiofs.DirectoryID
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
// who decided. AnyGateway leaves it to order.
func wanted(asked farm.Gateway, allowed []farm.Gateway) (g farm.Gateway, why string) {
	switch {
	case asked != "" && asked != farm.AnyGateway:
		return asked, "the bind asks for it"
	case len(allowed) == 1:
		return allowed[0], "the site's policy allows nothing else"
	}
	return farm.AnyGateway, ""
}

// Serve has the directories that virtiofs is for served for a machine that is not made yet, and returns how all come
// into it. What is chosen by itself falls back to the next gateway.
func Serve(ctx context.Context, m *machine.Machine, all []api.Bind, c Caller) ([]Bound, []hyper.Share, error) {
	var bound []Bound
	var shares []hyper.Share
	for _, b := range all {
		done, share, err := serveOne(ctx, m, b, c)
		if err != nil {
			return nil, nil, fmt.Errorf("bind %s: %w", b.Target, err)
		}
		if share != nil {
			shares = append(shares, *share)
		}
		bound = append(bound, done)
	}
	return bound, shares, nil
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
		share, id, err := serve(ctx, m, b, c)
		if err == nil {
			done.Tag, done.ID = share.Tag, id
			if slices.Contains(may, farm.FUSE) { // only the guest knows its kernel
				done.Why += "; fuse where the kernel of the image has no virtiofs"
			}
			return done, &share, nil
		}
		if i == len(may)-1 || !farm.IsCode(err, virtiofs.CodeNoGateway) {
			return done, nil, err
		}
		why = err.Error()
	}
	return done, nil, errNone
}

// errNone is of a policy that allows no gateway that this release knows.
var errNone = &farm.Error{Kind: farm.Denied, Code: virtiofs.CodeNoGateway, Message: "the site's policy allows no gateway",
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
var errOldCaller = &farm.Error{Kind: farm.Invalid, Code: virtiofs.CodeNoGateway,
	Message: "virtiofs: this `grange exec` is of an earlier release, which does not hand directories over",
	Hint:    "use the agent's release; or bind with gateway=fuse"}

// serve has one directory served: what the very caller has open, not what a name leads to.
func serve(ctx context.Context, m *machine.Machine, b api.Bind, c Caller) (s hyper.Share, id virtiofs.DirectoryID,
	err error) {
	if b.FD == 0 {
		return s, id, errOldCaller
	}
	program, err := virtiofs.Find(ctx)
	if err != nil {
		return s, id, err
	}
	d, err := virtiofs.Clone(ctx, c.PID, b.FD, c.For.UID, b.ReadOnly)
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
	s, err = m.Serve(ctx, program, d, c.For)
	return s, d.ID, err
}

// ForGuest are a job's binds as its guest gets them: those that virtiofs has with their tags. A later task of a batch
// job mounts what its VM was made with. shares reports whether the guest mounts virtiofs.
func ForGuest(ctx context.Context, has []Bound, all []api.Bind, c Caller, shares bool) ([]guest.Bind, error) {
	var out []guest.Bind
	for _, b := range all {
		bind, err := forGuest(ctx, has, b, c, shares)
		if err != nil {
			return nil, err
		}
		out = append(out, bind)
	}
	return out, nil
}

func forGuest(ctx context.Context, has []Bound, b api.Bind, c Caller, shares bool) (guest.Bind, error) {
	bind := guest.Bind{Target: filepath.Clean(b.Target), ReadOnly: b.ReadOnly}
	g, _ := wanted(farm.Gateway(b.Gateway), c.Gateways)
	if g == farm.FUSE {
		return bind, nil
	}
	tag, err := tagOf(ctx, has, b, c)
	switch {
	case g == farm.AnyGateway && farm.IsCode(err, virtiofs.CodeNoGateway):
		return bind, nil
	case err != nil:
		return bind, err
	case tag != "" && shares:
		bind.Tag, bind.Stream = tag, g == farm.AnyGateway
	case g == farm.AnyGateway:
	case tag != "":
		return bind, &farm.Error{Kind: farm.Invalid, Code: machine.CodeOldGuest,
			Message: "the grange-guest in the image is of an earlier release: it mounts no virtiofs",
			Hint:    "build the image again: `grange image build micro`; or bind with gateway=fuse"}
	default:
		return bind, &farm.Error{Kind: farm.Conflict, Code: virtiofs.CodeNoGateway,
			Message: "virtiofs: the job's VM was made without the directory for " + b.Target,
			Hint: "all tasks of a job on a host share one VM, which has the directories of its first task: bind the " +
				"same ones in all, or with gateway=fuse"}
	}
	return bind, nil
}

// tagOf finds the directory of a bind among those that the VM has by virtiofs; "": it is none of them.
func tagOf(ctx context.Context, has []Bound, b api.Bind, c Caller) (string, error) {
	if !slices.ContainsFunc(has, func(h Bound) bool { return h.Tag != "" }) {
		return "", nil
	}
	if b.FD == 0 {
		return "", errOldCaller
	}
	id, err := virtiofs.Identify(ctx, c.PID, b.FD, c.For.UID)
	if err != nil {
		return "", err
	}
	if !c.Alive() {
		return "", c.Gone
	}
	for _, h := range has {
		if h.Tag != "" && h.ID == id && h.ReadOnly == b.ReadOnly {
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
