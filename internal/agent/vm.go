package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/sleep"
	"github.com/grange-project/grange/internal/vmimage"
)

// vm is one virtual machine of this host: what it holds, and the jobs in it. That is one job, or all tasks of one batch
// job that run on this host. It lives as long as one of them does.
//
// Locks are taken in this order: the agent's, a vm's, a job's.
type vm struct {
	agent *Agent
	id    string // of the job that it was made for: its grant goes by this ID
	key   string // of the batch job whose tasks enter it; "": nobody else enters
	uid   uint32
	image string // that it is made from
	asked string // what its first job asked for; the site's policy may have said otherwise
	bare  bool   // its first job has no command: the image's is run
	own   bool   // the agent made it for itself, to see whether VMs start here

	power  *machine.Power // whether its CPUs run
	making making

	ctx    context.Context // ends with one of the reasons in job.go
	cancel context.CancelCauseFunc
	over   chan struct{} // closed when everything is cleaned up

	mu      sync.Mutex
	changed chan struct{}   // closed and made anew at every change
	request *api.JobRequest // of the job that it was made for; nil when an earlier agent made it
	record  record
	machine *machine.Machine // nil before the first and after the last
	defined bool             // machine can be connected to
	up      bool             // its guest has spoken
	failed  error            // why it did not come up
	closed  bool             // nobody enters any more
	jobs    []*job           // in the order of arrival
	ports   []*job           // who has which job port
	home    *job             // whose batch system holds QEMU in its groups
	clean   []api.Phase
}

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
	v := &vm{agent: first.agent, id: first.id, key: first.caller.Batch.Key(), uid: first.caller.UID,
		over: make(chan struct{}), changed: make(chan struct{}), request: lighten(first.request), record: first.record}
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
	v.power.Hears = v.agent.admission.hears
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

// publish tells all jobs.
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
	return now
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
		v.jobs = append(v.jobs, j)
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

// showLocked tells a job where its port is. While the guest boots only the first one is connected to: QEMU tells a
// guest of each host that is there in one of 32 buffers, and with all ports at once some of it would be lost.
func (v *vm) showLocked(j *job) {
	if j.port >= 0 && v.defined && (v.up || j.port == 0) {
		j.publish(api.JobEvent{Event: api.EventVM, VM: v.viewLocked(j)})
	}
}

// leave takes a job out of the VM, and returns when nothing of it is left there; with the last one the VM ends.
func (v *vm) leave(j *job) []api.Phase {
	var m *machine.Machine
	var last bool
	v.update(func() {
		v.jobs = slices.DeleteFunc(v.jobs, func(o *job) bool { return o == j })
		last, m = len(v.jobs) == 0, v.machine
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
	for _, j := range v.jobs {
		err := v.moveTo(j)
		if err == nil {
			v.home = j
			return
		}
		v.agent.log.Error("vm cannot be moved to another task", "vm", v.record.Name, "job", j.id, "error", err)
	}
}

// run makes the VM, and ends it when its last job has left.
func (v *vm) run() {
	v.agent.jobs.Go(v.followBeats)
	err := fetchImage(v)
	if err == nil {
		err = v.making.guarded()
	}
	v.update(func() {
		v.failed, v.up = err, err == nil
		v.closed = v.closed || err != nil
		for _, j := range v.jobs {
			if j.port > 0 {
				v.showLocked(j)
			}
		}
	})
	v.end()
}

// end waits until no job is in the VM, and cleans up, unless the agent itself stops.
func (v *vm) end() {
	defer close(v.over)
	defer v.agent.forgetVM(v)
	for {
		v.mu.Lock()
		left, changed := len(v.jobs), v.changed
		v.mu.Unlock()
		if left == 0 {
			break
		}
		select {
		case <-changed:
		case <-v.agent.ctx.Done():
			v.making.detach()
			return
		}
	}
	if v.agent.ctx.Err() != nil {
		v.making.detach()
		return
	}
	began := time.Now()
	v.making.discard()
	v.agent.ledger.Release(v.id)
	v.update(func() { v.clean = []api.Phase{{Name: "clean", Milliseconds: milliseconds(time.Since(began))}} })
}

// start makes the VM and waits for its guest, trying again where trying again may help.
func (v *making) start() error {
	began := time.Now()
	image, release, err := v.agent.images.Acquire(v.image) // first, for its size is what an overlay may take
	if err != nil {
		return err
	}
	defer release() // the running VM's record keeps the image from here on
	if err := checkCommand(v.bare, image); err != nil {
		return err
	}
	if w := image.Warning(); w != "" {
		v.publish(api.JobEvent{Event: api.EventWarning, Message: w})
	}
	kernel, releaseKernel, err := v.agent.images.Kernel(image)
	if err != nil {
		return err
	}
	defer releaseKernel() // QEMU has it in memory
	v.kernel = kernel
	now := v.phase("image", began)
	plan, err := v.grant(image)
	if err != nil {
		return err
	}
	named := image.Name
	if container.Is(v.image) {
		named = v.image
	}
	v.update(func() { v.record.Image, v.record.Digest, v.record.Plan = named, image.Digest, plan })
	if err := vmimage.Refusal(v.agent.images, image.Digest); err != nil { // it may have waited for long
		return err
	}
	v.phase("grant", now)
	var away time.Time // when the first of the attempts began that a missing hypervisor ended
	for attempt := 1; ; {
		began := time.Now()
		err := disk.NoSpace(v.attempt(image, attempt))
		if err == nil {
			return nil
		}
		if v.ctx.Err() != nil {
			return context.Cause(v.ctx)
		}
		v.discard()
		switch {
		case farm.IsCode(err, hyper.CodeAway) && !v.request.NoWait:
			if away.IsZero() {
				away = began
			}
			if v.waitedTooLong(away) {
				return v.tiredOf(err)
			}
			v.publishWaiting(err.Error())
			if err := sleep.For(v.ctx, hypervisorPause); err != nil {
				return err
			}
			v.agent.hyper.Sweep(v.ctx) // a daemon that died may have left a process half made; while it is away, later
		case !machine.WorthAnotherTry(err) || attempt >= v.agent.config().Attempts:
			return err
		default:
			v.publish(api.JobEvent{Event: api.EventRetry,
				Message: fmt.Sprintf("attempt %d came to nothing: %v", attempt, err)})
			v.log().Warn("vm came to nothing", "attempt", attempt, "error", err)
			if err := v.planAgain(image); err != nil {
				return err
			}
			attempt, away = attempt+1, time.Time{}
		}
	}
}

// planAgain plans a VM anew before another attempt, where the huge pages of its plan are gone: an administrator may
// have made a pool smaller since the host was read, and QEMU then finds no pages however often it is started.
func (v *making) planAgain(image vmimage.Image) error {
	if !lacksPages(v.agent.readHost(0), v.recordNow().Plan) {
		return nil
	}
	v.agent.ledger.Release(v.id)
	plan, err := v.grant(image)
	if err == nil {
		v.update(func() { v.record.Plan = plan })
	}
	return err
}

// lacksPages reports whether a node has fewer free huge pages than a plan takes that nothing of runs.
func lacksPages(t farm.Topology, p farm.Plan) bool {
	return slices.ContainsFunc(p.Cells, func(c farm.GuestCell) bool {
		if c.PageSize == 0 {
			return false
		}
		for _, n := range t.Nodes {
			for _, pool := range n.Pages {
				if n.ID == c.Node && pool.Size == c.PageSize {
					return farm.Bytes(pool.Free)*pool.Size < c.Memory
				}
			}
		}
		return true
	})
}

// hypervisorPause is between two looks for a hypervisor that is away. Nothing runs meanwhile, so nothing is lost by
// waiting.
const hypervisorPause = 200 * time.Millisecond

func (v *making) grant(image vmimage.Image) (farm.Plan, error) {
	if err := v.awaitMinimum(); err != nil {
		return farm.Plan{}, err
	}
	r := v.record
	request := v.agent.machines.NUMARequest(r.Shape, r.Caller.allowed())
	// QEMU's own threads cannot leave the job's cpuset for the CPUs of the host's services
	if !r.Caller.Batch.CPUs.Empty() {
		request.Service = request.Service.And(r.Caller.Batch.CPUs)
	}
	v.agent.ledger.SetBatchJob(v.id, v.key)
	c := v.charge(image)
	if c.Limited && len(v.agent.config().Limits.Except) > 0 {
		c.Who = v.agent.requests.excepted(r.Caller)
	}
	v.agent.ledger.SetCharge(v.id, c)
	return v.claim(v.agent.machines.Holder(r.Name, r.User, r.Command), request)
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
