package agent

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/filesystems"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// shapeNamed is a shape of the configuration; the default one has no name.
func (a requests) shapeNamed(name string) (farm.Shape, error) {
	c := a.config()
	if name == "" {
		return c.DefaultShape, nil
	}
	if s, ok := c.Shapes[name]; ok {
		return s, nil
	}
	return farm.Shape{}, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoShape,
		Message: fmt.Sprintf("no shape %q", name), Hint: "shapes are in the agent's configuration, under [shapes]"}
}

// shape works out what the caller gets: the named shape, or for a batch job all that it was given; the request's own
// wishes on top; never more than the caller's limits. What nobody asked for is cut to them, what somebody asked for is
// refused.
func (a requests) shape(r *api.JobRequest, c Caller, d policy.Decision) (farm.Shape, error) {
	s, err := a.shapeNamed(d.Shape)
	if err != nil {
		return s, err
	}
	if r.Batch != "" && d.Shape == "" {
		s = a.allotted(s, c)
	}
	s = d.Cut(s)
	if s, err = jobrequest.Shape(s, r); err != nil {
		return s, err
	}
	s.Pages = machine.MountedPages(s.Pages, a.pageMounts())
	if d.Network != "" {
		s.Network = farm.Network(d.Network)
	}
	if n, ok := a.config().Networks[d.Network]; ok {
		s.Network = n.On
	}
	if s, err = a.confine(s, r, c); err != nil {
		return s, err
	}
	return s, errors.Join(s.Validate(), s.CheckBandwidth(), d.CheckDisks(s))
}

// confine keeps a shape within what the caller's login or batch job was given.
func (a requests) confine(s farm.Shape, r *api.JobRequest, c Caller) (farm.Shape, error) {
	if limit := c.limit(); limit > 0 {
		most := a.guestMemory(c, limit, s.CPUs)
		switch {
		case most < farm.MinMemory:
			return s, tooBig("%v of memory, the least there is; the caller is limited to %v, which leaves %v for a "+
				"guest", farm.MinMemory, limit, most)
		case s.Memory > most && r.Memory != 0:
			return s, tooBig("%v of memory; the caller is limited to %v, which leaves %v for a guest", s.Memory,
				limit, most)
		}
		s.Memory = min(s.Memory, most)
	}
	if most := c.mostCPUs(); s.CPUs > most {
		given := fmt.Sprintf("may use CPUs %v only", c.allowed())
		if most < c.allowed().Len() {
			given = fmt.Sprintf("was given %d by its batch system", most)
		}
		return s, tooBig("%d CPUs; the caller %s", s.CPUs, given)
	}
	return c.shareCPUs(s, r)
}

// shareCPUs keeps the VM of a job that was given a number of CPUs, not which ones, from taking more: isolation holds
// CPUs on which no vCPU runs, and nothing but that number says whose they are. The site's default gives way; what the
// job asked for is refused.
func (c Caller) shareCPUs(s farm.Shape, r *api.JobRequest) (farm.Shape, error) {
	isolates := s.Threads == farm.IsolateCores || s.Emulator == farm.EmulatorIsolate
	if !isolates || c.Batch.Slots == 0 || !c.Batch.CPUs.Empty() {
		return s, nil
	}
	if r.ThreadPolicy != "" || r.Emulator != "" || s.Name != "" {
		return s, tooBig("CPUs of its own that stay empty, or for QEMU; the caller was given %d by its batch system, "+
			"and not which", c.Batch.Slots)
	}
	if s.Threads == farm.IsolateCores {
		s.Threads = farm.PreferSiblings
	}
	s.Emulator = farm.EmulatorBeside
	return s, nil
}

func tooBig(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
		Message: "a VM can not have " + fmt.Sprintf(format, args...),
		Hint:    "ask for less, or for more from the batch system"}
}

// begin makes the job of a valid request.
func (a requests) begin(r *api.JobRequest, c Caller) (*job, error) {
	if r.Started {
		return nil, lostUnknown()
	}
	if err := c.belongsTo(farm.BatchSystem(r.Batch)); err != nil {
		return nil, err
	}
	if err := c.mayKeep(r); err != nil {
		return nil, err
	}
	// Also where a job's own script starts VMs: what it was given is all it has, whoever asks.
	c, err := a.counted(c)
	if err != nil {
		return nil, err
	}
	d, err := a.decide(c, r)
	if err != nil {
		return nil, err
	}
	s, err := a.shape(r, c, d)
	site, ok := a.config().Networks[d.Network]
	if err == nil && ok {
		err = a.machines.CheckNetwork(site.On)
	} else if err == nil {
		err = jobrequest.CheckNetwork(s.Network)
	}
	if err == nil {
		err = jobrequest.CheckScript(r, s.Memory)
	}
	if err != nil {
		return nil, err
	}
	if err := machine.VolumesOf(a.config().Areas.Jobs).Check(s); err != nil {
		return nil, err
	}
	known, err := a.namesOf(c)
	if err != nil {
		return nil, err
	}
	c.Nameless = known.OneOfMany()
	entry, err := mayFetch(a, c, r, d.Image, s.Memory)
	if err != nil {
		return nil, err
	}
	if image, err := a.images.Get(cmp.Or(d.Image, a.config().DefaultImage)); err == nil {
		err := jobrequest.CheckCommand(len(r.Argv) == 0, image)
		if d := r.Disks; d != nil && (d.Root != 0 || d.RootMode != "") {
			err = errors.Join(err, machine.CheckRoot(image, s))
		}
		if err != nil {
			return nil, err
		}
	}
	r.Image = d.Image
	may, err := a.services(c)
	if err != nil {
		return nil, err
	}
	j := newJob(a.Agent, r.ID, c)
	j.request = r
	for _, reason := range d.Reasons {
		j.events = append(j.events, api.JobEvent{Event: api.EventPolicy, Message: reason})
	}
	j.record = record{Version: recordVersion, Job: r.ID, Created: time.Now(), Shape: s,
		User: known.Shown(), Name: vmName(r.ID), Command: jobrequest.Brief(r.Argv), Caller: c,
		Keep: r.Keep, OneFS: d.OneFilesystem, Gateways: d.Gateways, Site: site.Name, Services: may,
		Pool: r.Pool, PullEntry: entry,
		Uses: filesystems.Of(r.Binds, c.PID, d.OneFilesystem)}
	return j, nil
}

// lostUnknown is the answer to a caller whose job had begun and is not known any more.
func lostUnknown() error {
	return &farm.Error{Kind: farm.Unavailable, Code: CodeVMLost,
		Message: "the VM was lost while no agent ran; the job may have run in part and is not run again",
		Hint:    "see the agent's log and the host's kernel log"}
}

// belongsTo holds what a wrapper says of its job against what the kernel tells. A hook of one batch system that runs
// the wrapper in another one's job, or in none, would have the job run with other rules than its own.
func (c Caller) belongsTo(said farm.BatchSystem) error {
	if said == "" || said == c.Batch.System {
		return nil
	}
	found := "no batch job"
	if c.Batch.System != "" {
		found = fmt.Sprintf("job %s of %s", c.Batch.Job, c.Batch.System)
	}
	return &farm.Error{Kind: farm.Denied, Code: CodeWrongBatch,
		Message: fmt.Sprintf("the caller says that it is a job of %s, and is %s", said, found),
		Hint: "see which hook of which batch system runs this; the agent must see the host's processes and control " +
			"groups"}
}

// mayKeep refuses batch jobs a VM that stays without them: what it holds is their batch system's again when they end.
func (c Caller) mayKeep(r *api.JobRequest) error {
	if !r.Keep || c.Batch.System == "" {
		return nil
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeBadRequest,
		Message: fmt.Sprintf("the VM of job %s of %s cannot be kept: what it holds is given to other jobs when this "+
			"one ends", c.Batch.Job, c.Batch.System), Hint: "leave --keep out"}
}
