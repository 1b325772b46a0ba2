package agent

import (
	"cmp"
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
)

// boundBy is how a directory came into a VM with its first job, and by which tag virtiofs has it.
type boundBy struct {
	Target   string
	Gateway  farm.Gateway
	Why      string
	Tag      string `json:",omitempty"` // "": virtiofs has it not
	ID       virtiofs.DirectoryID
	ReadOnly bool `json:",omitempty"`
}

// wanted is the gateway that a bind is to have by what it asks for and what the site allows, nil being all; why says
// who decided. Where the site names none, a bind that says nothing has what it always had: virtiofs keeps less of what
// some programs expect.
func wanted(asked farm.Gateway, allowed []farm.Gateway) (g farm.Gateway, why string) {
	may := func(g farm.Gateway) bool { return allowed == nil || slices.Contains(allowed, g) }
	switch {
	case asked == "" && allowed == nil:
		return farm.FUSE, "the default"
	case asked != "" && asked != farm.AnyGateway:
		return asked, "the bind asks for it"
	case may(farm.Virtiofs) && may(farm.FUSE):
		return farm.AnyGateway, ""
	case may(farm.Virtiofs):
		return farm.Virtiofs, "the site's policy allows nothing else"
	}
	return farm.FUSE, "the site's policy allows nothing else"
}

// whyFastest is why virtiofs was chosen; only the guest knows its kernel.
const whyFastest = "the fastest that the site allows; fuse where the kernel of the image has no virtiofs"

// serveBinds has the directories of the VM's first job that virtiofs is for served, and notes of all how they come into
// the VM. What is chosen by itself falls back to FUSE.
func (v *making) serveBinds(m *machine.Machine) ([]hyper.Share, error) {
	jobs := v.inside()
	if len(jobs) == 0 {
		return nil, errCallerGone
	}
	first := jobs[0]
	var binds []boundBy
	var shares []hyper.Share
	for _, b := range v.request.Binds {
		g, why := wanted(farm.Gateway(b.Gateway), first.record.Gateways)
		done := boundBy{Target: b.Target, Gateway: g, Why: why, ReadOnly: b.ReadOnly}
		if g == farm.FUSE {
			binds = append(binds, done)
			continue
		}
		share, err := v.serveBind(m, first.caller, b, &done)
		switch {
		case err == nil:
			shares = append(shares, share)
			done.Gateway, done.Why, done.Tag = farm.Virtiofs, cmp.Or(why, whyFastest), share.Tag
		case g == farm.AnyGateway && farm.IsCode(err, virtiofs.CodeNoGateway):
			done = boundBy{Target: b.Target, Gateway: farm.FUSE, Why: err.Error(), ReadOnly: b.ReadOnly}
		default:
			return nil, fmt.Errorf("bind %s: %w", b.Target, err)
		}
		binds = append(binds, done)
	}
	v.update(func() { v.record.Binds = binds })
	return shares, nil
}

// serveBind has one directory served, with the rights of the caller and in its batch job's control groups.
func (v *making) serveBind(m *machine.Machine, c Caller, b api.Bind, done *boundBy) (hyper.Share, error) {
	program, err := virtiofs.Find(v.ctx)
	if err != nil {
		return hyper.Share{}, err
	}
	d, err := c.directory(v.ctx, b)
	if err != nil {
		return hyper.Share{}, err
	}
	defer d.Close()
	done.ID = d.ID
	return m.Serve(v.ctx, program, d, machine.ShareFor{UID: c.UID, GID: c.GID, Groups: c.Groups,
		Cgroups: c.Batch.Cgroups, CPUs: v.record.Plan.Emulator})
}

// directory is what a bind shows: what the very caller has open, not what a name leads to.
func (c Caller) directory(ctx context.Context, b api.Bind) (virtiofs.Directory, error) {
	d, err := virtiofs.Clone(ctx, c.PID, b.FD, b.ReadOnly)
	if err == nil && !c.alive() {
		d.Close()
		return d, errCallerGone
	}
	return d, err
}

// guestBinds are a job's binds as its guest gets them: those that virtiofs serves with their tags. A later task of a
// batch job mounts what its VM was made with.
func (j *job) guestBinds(vm record, r *api.JobRequest, shares bool) ([]guest.Bind, error) {
	var binds []guest.Bind
	for _, b := range r.Binds {
		g, _ := wanted(farm.Gateway(b.Gateway), j.record.Gateways)
		bind, err := j.guestBind(vm, b, g, shares)
		if err != nil {
			return nil, err
		}
		binds = append(binds, bind)
	}
	return binds, nil
}

func (j *job) guestBind(vm record, b api.Bind, g farm.Gateway, shares bool) (guest.Bind, error) {
	stream := guest.Bind{Target: filepath.Clean(b.Target), ReadOnly: b.ReadOnly}
	if g == farm.FUSE {
		return stream, nil
	}
	tag, err := j.tagOf(vm, b)
	switch {
	case err != nil:
		return stream, err
	case tag != "" && shares:
		stream.Tag, stream.Stream = tag, g == farm.AnyGateway
	case g == farm.AnyGateway:
	case tag != "":
		return stream, &farm.Error{Kind: farm.Invalid, Code: machine.CodeOldGuest,
			Message: "the grange-guest in the image is of an earlier release: it mounts no virtiofs",
			Hint:    "build the image again: `grange image build micro`; or bind with gateway=fuse"}
	default:
		return stream, &farm.Error{Kind: farm.Conflict, Code: virtiofs.CodeNoGateway,
			Message: fmt.Sprintf("virtiofs: the VM of job %s was made without the directory for %s", j.vm.key, b.Target),
			Hint: "all tasks of a job on a host share one VM, which has the directories of its first task: bind the " +
				"same ones in all, or with gateway=fuse"}
	}
	return stream, nil
}

// tagOf finds the directory of a bind among those that the VM has by virtiofs; "": it is none of them.
func (j *job) tagOf(vm record, b api.Bind) (string, error) {
	if !slices.ContainsFunc(vm.Binds, func(has boundBy) bool { return has.Tag != "" }) {
		return "", nil
	}
	id, err := virtiofs.Identify(j.ctx, j.caller.PID, b.FD)
	if err == nil && !j.caller.alive() {
		err = errCallerGone
	}
	if err != nil {
		return "", err
	}
	for _, has := range vm.Binds {
		if has.Tag != "" && has.ID == id && has.ReadOnly == b.ReadOnly {
			return has.Tag, nil
		}
	}
	return "", nil
}

// bindLost ends a VM that has lost one of its directories, and its jobs with the reason.
func (v *vm) bindLost(m *machine.Machine, err error) {
	if v.current() != m {
		return // it is being given up
	}
	v.log().Error("a directory of a vm is lost", "error", err)
	v.cancel(err)
}

// takesShares reports whether the VM's guest, which is up, mounts virtiofs.
func (v *vm) takesShares() bool {
	m := v.current()
	return m != nil && m.Control.TakesShares()
}

// boundBy is what people are shown.
func (r record) boundBy() []api.BoundBy {
	var out []api.BoundBy
	for _, b := range r.Binds {
		out = append(out, api.BoundBy{Target: farm.Clean(b.Target, machine.MaxReason), Gateway: string(b.Gateway),
			Why: farm.Clean(b.Why, machine.MaxReason)})
	}
	return out
}

// moveTo puts the VM's processes where another of its jobs is tracked.
func (v *vm) moveTo(j *job) error {
	if err := j.adopt(v.machine.Applied); err != nil {
		return err
	}
	return v.machine.AdoptShares(j.caller.Batch.Cgroups)
}
