package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/binds"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/journal"
	"github.com/grange-project/grange/internal/wire"
)

// portsFor is how many job ports a VM has: as many jobs can run in it at the same time. Of a batch job that is one for
// its script, one for a task on each CPU, and one to spare. They are not free: a guest's kernel hands each port's 128
// buffers over one by one, and under emulation the boot of 16 ports took 0.8 s longer than that of one (least of 8
// boots each, on a busy machine).
func portsFor(key string, cpus int) int {
	if key == "" {
		return 1
	}
	const most = 16
	return min(cpus+2, most)
}

// newVM makes the VM of its first job; nothing is granted yet.
func newVM(first *job) *vm {
	v := &vm{agent: first.agent, id: first.id, key: first.caller.Batch.Key(), owner: first.caller,
		over: make(chan struct{}), changed: make(chan struct{}),
		request: jobrequest.Light(first.request), record: first.record}
	// what the record tells, so that the next agent counts as many
	v.ports = make([]*job, portsFor(v.key, v.record.Shape.CPUs))
	if v.request != nil {
		v.image, v.bare = first.imageName(), len(first.request.Argv) == 0
	} else {
		v.image = v.record.Image
	}
	v.making.vm = v
	v.ctx, v.cancel = context.WithCancelCause(v.agent.ctx)
	v.power = machine.NewPower(v.agent.hyper, machine.Frozen, func() { v.update(func() {}) })
	v.power.Reachable, v.power.Resumed = v.agent.admission.Reachable, (*machine.Machine).SetClock
	v.power.Stopping = (*machine.Machine).Hold
	return v
}

func (v *vm) update(change func()) {
	v.mu.Lock()
	change()
	close(v.changed)
	v.changed = make(chan struct{})
	v.mu.Unlock()
}

// inside is the jobs that are in the VM, or wait for it.
func (v *vm) inside() []*job {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.jobs)
}

// publish notifies all jobs.
func (v *vm) publish(e api.JobEvent) {
	for _, j := range v.inside() {
		j.publish(e)
	}
}

func (v *vm) publishWaiting(message string) {
	for _, j := range v.inside() {
		j.publishWaiting(message)
	}
}

func (v *vm) phase(name string, since time.Time) time.Time {
	now := time.Now()
	v.publish(api.JobEvent{Event: api.EventPhase,
		Phase: &api.Phase{Name: name, Milliseconds: milliseconds(now.Sub(since))}})
	v.agent.meter.Phase(name, now.Sub(since))
	v.started(name, since, now)
	return now
}

// started notes a phase of the VM's start that is over.
func (v *vm) started(name string, since, now time.Time) {
	v.agent.Usage.Started(v.id, v.start.Add(v.recordNow().Created, name, since, now))
}

// waitsFor is what the VM's first job was told last where that is what it waits for; "": nothing.
func (v *vm) waitsFor() string {
	if jobs := v.inside(); len(jobs) > 0 {
		jobs[0].mu.Lock()
		defer jobs[0].mu.Unlock()
		if n := len(jobs[0].events); n > 0 && jobs[0].events[n-1].Event == api.EventWaiting {
			return jobs[0].events[n-1].Message
		}
	}
	return ""
}

// usage is what the record of the VM's usage says from the beginning.
func (v *vm) usage() api.Usage {
	r := v.recordNow()
	u := api.Usage{Kind: api.UsageJob, VM: r.VM, Job: v.id, Batch: v.key, User: r.User, UID: v.owner.User(),
		Image: r.Image, Digest: r.Digest, Shape: r.Shape.Name, Cores: r.Shape.CPUs, Memory: uint64(r.Shape.Memory),
		Scratch: uint64(r.Shape.DiskSpace()), Account: r.Caller.Batch.Account, Queue: r.Caller.Batch.Queue,
		Asked: r.Created, Phases: v.start.All()}
	if told, ok := v.agent.lookups.Recall(r.Caller.Batch); ok {
		u.Account, u.Queue = cmp.Or(u.Account, told.Account), cmp.Or(u.Queue, told.Queue)
	}
	if r.Worker != nil {
		u.Kind, u.Name = api.UsageWorker, r.Worker.Name
	}
	return u
}

// enter takes a job in. It reports whether the VM still takes any.
func (v *vm) enter(j *job) bool {
	entered := false
	v.update(func() {
		if !v.takesMoreLocked() {
			return
		}
		entered = true
		j.vm = v
		j.ctx, j.cancel = context.WithCancelCause(v.ctx)
		if v.jobs = append(v.jobs, j); len(v.jobs) == 1 && !j.takenOver {
			v.power.Heartbeat() // nobody has sent any while it was empty
		}
		v.giveLocked(j)
	})
	return entered
}

// takesMore reports whether jobs may enter.
func (v *vm) takesMore() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.takesMoreLocked()
}

func (v *vm) takesMoreLocked() bool {
	return !v.closed && v.ctx.Err() == nil && (v.machine == nil || !v.machine.Control.HasGone())
}

// giveLocked gives a job port to a job that has none; without a free one the job is told why it waits.
func (v *vm) giveLocked(j *job) {
	if j.port >= 0 {
		return
	}
	if j.port = slices.Index(v.ports, nil); j.port < 0 {
		j.publishWaiting(fmt.Sprintf("all %d places in VM %s are taken by other tasks of job %s", len(v.ports),
			v.record.Name, v.key))
		return
	}
	v.ports[j.port] = j
	v.showLocked(j)
}

// showLocked sends a job the address of its port. While the guest boots only the first one is connected to: QEMU tells
// a guest of each host that is there in one of 32 buffers, and with all ports at once some of it would be lost.
func (v *vm) showLocked(j *job) {
	if j.port >= 0 && v.defined && (v.up || j.port == 0) {
		j.publish(api.JobEvent{Event: api.EventVM, VM: v.viewLocked(j)})
	}
}

// leave takes a job out of the VM, and returns when nothing of it is left there; with the last one the VM ends, unless
// its allocation keeps it.
func (v *vm) leave(j *job) []api.Phase {
	var m *machine.Machine
	var last, empty bool
	v.update(func() {
		v.jobs = slices.DeleteFunc(v.jobs, func(o *job) bool { return o == j })
		empty, m = len(v.jobs) == 0, v.machine
		last = empty && !stay{v}.keptLocked()
		v.closed = v.closed || last
	})
	if last {
		v.cancel(errCallerGone)
		<-v.over
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.clean
	}
	began := time.Now()
	v.moveHome(j)
	if empty {
		v.agent.Usage.Look(v.id) // its allocation may end the VM at any time
	}
	if m != nil && j.given() {
		m.Control.End(v.ctx, j.id, v.power.Now() != machine.Wanted{})
		j.removeFile(m)
	}
	v.update(func() {
		if j.port >= 0 {
			v.ports[j.port] = nil
		}
		for _, other := range v.jobs {
			v.giveLocked(other)
		}
	})
	return []api.Phase{{Name: "clean", Milliseconds: milliseconds(time.Since(began))}}
}

// moveHome puts QEMU where a job that stays is tracked, when the one that leaves was its home: a batch system ends what
// it still finds of a task that is over.
func (v *vm) moveHome(leaver *job) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.home != leaver || v.machine == nil || !v.defined {
		return
	}
	if v.record.Allocation != nil {
		stay{v}.toAllocationLocked()
		return
	}
	for _, j := range v.jobs {
		err := v.moveTo(j.caller.Batch.Cgroups)
		if err == nil {
			v.home = j
			return
		}
		v.agent.log.Error("vm cannot be moved to another task", "vm", v.record.Name, "job", j.id, "error", err)
	}
}

// recordFor is the VM's record as one of its jobs sees it.
func (v *vm) recordFor(j *job) record {
	r := v.recordNow()
	r.Job, r.User, r.Command, r.Caller, r.Keep = j.id, j.record.User, j.record.Command, j.caller, j.record.Keep
	r.Judged, r.OneFS, r.Gateways = j.record.Judged, j.record.OneFS, j.record.Gateways
	return r
}

func (v *vm) current() *machine.Machine {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.machine
}

func (v *vm) recordNow() record {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.record
}

// pause stops or continues the VM's CPUs.
func (v *vm) pause(ctx context.Context, suspend bool) error {
	m := v.current()
	if m == nil || !m.Checked.Load() {
		return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoVM, Message: "the job has no VM at the moment",
			Hint: "try again when `grange vm list` shows it"}
	}
	return v.power.Order(ctx, suspend)
}

func (v *vm) answersTo(ref string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.record
	if r.Name == ref || r.Worker != nil && r.Worker.Name == ref || v.key != "" && v.key == ref {
		return true
	}
	if len(ref) < 4 {
		return false
	}
	return strings.HasPrefix(r.VM, ref) || strings.HasPrefix(r.Job, ref) ||
		slices.ContainsFunc(v.jobs, func(j *job) bool { return strings.HasPrefix(j.id, ref) })
}

// view is the VM as others see it, or as one of its jobs does.
func (v *vm) view(j *job) *api.VM {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.viewLocked(j)
}

func (v *vm) viewLocked(j *job) *api.VM {
	r := v.record
	out := &api.VM{ID: r.VM, Name: r.Name, Job: r.Job, Batch: v.key, Purpose: "job", State: v.stateLocked(),
		Image: r.Image, Digest: r.Digest, Shape: r.Shape.Name, User: r.User, UID: v.owner.User(), Command: r.Command,
		Created: r.Created, CPUs: r.Shape.CPUs, Memory: uint64(r.Shape.Memory), Scratch: uint64(r.Shape.Scratch),
		Plan: wire.Plan(r.Plan)}
	if r.Worker != nil {
		out.Purpose = "worker"
	}
	if v.key != "" {
		out.Tasks = len(v.jobs)
	}
	if r.Lease != nil {
		out.Lease = r.Lease.View()
	}
	out.Binds = binds.View(r.Binds)
	out.Services, out.Pool = r.Services, r.Pool
	out.OneFilesystem = j != nil && j.record.OneFS
	if m := v.machine; m != nil {
		out.JobPort = m.Path(guest.JobPort(0))
		if j != nil && j.port >= 0 {
			out.Job, out.JobPort = j.id, m.Path(guest.JobPort(j.port))
		}
		m.Show(out, r.Shape)
	}
	return out
}

func (v *vm) stateLocked() string {
	running := func(j *job) bool { return !j.isEnded() || !j.record.Keep }
	stopped := v.power.Now()
	switch {
	case v.record.Plan.VCPUs == nil:
		return "waiting"
	case stopped.Suspended:
		return "suspended"
	case stopped.Silent:
		return "suspended (caller stopped)"
	case (len(v.jobs) > 0 || stay{v}.keptLocked()) && !slices.ContainsFunc(v.jobs, running):
		return "kept"
	case v.machine == nil, v.machine.Control.Phase() == "":
		return "starting"
	case v.machine.Pulse.IsUnresponsive():
		return machine.StateUnresponsive
	}
	return "running"
}

func exitOf(e *guest.Exit) *api.Exit {
	return &api.Exit{Code: e.Code, Signal: e.Signal, User: e.User, System: e.System, MaxRSS: e.MaxRSS,
		OOMKills: e.OOMKills}
}

// log is for what is about this VM. v.mu is not held.
func (v *vm) log() *slog.Logger {
	r := v.recordNow()
	return v.agent.log.With("vm", r.Name, "user", r.User).With(journal.JobAttrs(v.key, v.id)...)
}
