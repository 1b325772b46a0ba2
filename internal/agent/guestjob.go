package agent

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/binds"
	"github.com/grange-project/grange/internal/agent/facts"
	"github.com/grange-project/grange/internal/agent/features"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/rlimits"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/vmimage"
)

// guestJob is the job as its guest gets it: who it runs as is the kernel's word, not the caller's. vm is what its VM
// is.
func (a requests) guestJob(j *job, vm record, r *api.JobRequest) (*guest.Job, error) {
	if vm.Worker != nil {
		return a.workerDesk.guestWorker(j, vm)
	}
	hook, err := a.readHook()
	if err != nil {
		return nil, err
	}
	known, err := a.namesOf(j.caller)
	if err != nil {
		return nil, err
	}
	hostFacts := a.facts(vm)
	network, _ := vm.Shape.Network.Kind()
	g := &guest.Job{ID: j.id, Argv: r.Argv, Dir: r.Dir, OneOutput: r.OneOutput, User: known.guestUser(j.caller, r.Home),
		Hostname: vm.hostname(),
		Hook:     hook, Network: network.UserMode,
		Env: features.Variables(append(append([]string{}, r.Env...), hostFacts.Environment()...)),
		Files: append(features.Files(a.featured(vm, a.jobEnds(j.caller.Batch), time.Now())),
			guest.File{Path: facts.Path, Content: hostFacts.File()})}
	image, err := a.images.Get(vm.Digest)
	if err != nil {
		return nil, err
	}
	jobrequest.InContainer(g, r, image)
	if l := vm.Lease; l != nil {
		if g.Address, g.Address6 = l.Address(); image.Kind != vmimage.Disk { // a full image knows its own name
			g.Files = append(g.Files, guest.File{Path: "/etc/hostname", Content: []byte(g.Hostname + "\n")},
				guest.File{Path: "/etc/hosts", Content: l.Hosts(vm.Name)})
		}
	}
	for i, p := range r.Prologs {
		path := fmt.Sprintf("/var/lib/grange/%s-prolog-%d", j.id, i) // where programs may be run, in all images
		g.Files, g.Prologs = append(g.Files, guest.File{Path: path, Content: p.Content, Own: true}), append(g.Prologs,
			path)
	}
	if r.Script != nil {
		g.Files = append(g.Files, guest.File{Path: r.Script.Path, Content: r.Script.Content, Own: true})
	}
	g.Scratch, g.Disks = machine.GuestDisks(vm.Shape)
	g.Process = guestProcess(r.Process, rlimits.Of(os.DirFS("/"), j.caller.PID), a.config().CoreFiles)
	m := j.vm.current()
	g.Binds, err = binds.ForGuest(j.ctx, vm.Binds, r.Binds, j.bindCaller(vm), m)
	if err != nil {
		return nil, err
	}
	if r.Terminal != nil {
		g.Terminal = &guest.Size{Rows: r.Terminal.Rows, Cols: r.Terminal.Cols}
	}
	return g, nil
}

// restoreRaw puts the texts of a request that are not UTF-8 in their places.
func restoreRaw(r *api.JobRequest) {
	var targets []*string
	for i := range r.Binds {
		targets = append(targets, &r.Binds[i].Target)
	}
	(*guest.Raw)(r.Raw).Restore(r.Argv, r.Env, &r.Dir, targets)
	r.Raw = nil
}

// guestProcess returns the state that a command starts in: what its caller asks for, within the caller's limits.
// Without coreFiles it leaves no core files, whatever its caller may.
func guestProcess(asked *api.Process, limits []guest.Limit, coreFiles bool) guest.Process {
	p := guest.Process{Limits: limits}
	if asked != nil {
		p = guest.Process{Umask: asked.Umask, Limits: rlimits.Within(limits, asked.Limits), Ignored: asked.Ignored,
			Blocked: asked.Blocked, Nice: asked.Nice, Null: asked.Null, Closed: asked.Closed}
	}
	if !coreFiles {
		p.Limits = rlimits.Within(p.Limits, []api.Limit{{Resource: unix.RLIMIT_CORE}})
	}
	return p
}

// featured is a VM and its job as the job is told of them.
func (a requests) featured(r record, ends, now time.Time) features.VM {
	return features.VM{Shape: r.Shape, Memory: r.Plan.Memory(), Job: cmp.Or(r.Caller.Batch.Job, r.Job), Ends: ends,
		Now: now, Site: a.config().Facts, HostCPUs: a.hostCPUs()}
}
