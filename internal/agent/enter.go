package agent

import (
	"fmt"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/filesystems"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/agent/pools"
	"github.com/grange-project/grange/internal/farm"
)

// admit returns the job with this ID, or enters the one that is asked for: into the VM of its batch job, if there is
// one, or into one of its own.
func (a *Agent) admit(r *api.JobRequest, c Caller) (j *job, fresh bool, err error) {
	asked, judged := r.Image, jobrequest.Digest(r) // the site's policy may change the image
	for {
		if j := a.byID(r.ID); j != nil {
			return j, false, nil
		}
		v := a.vmOf(c)
		if v == nil {
			whole := a.allocationOf(c)
			if j, err = a.requests().begin(r, c.within(whole)); err == nil {
				j.record.Judged, j.record.Allocation = judged, whole
				v = newVM(j)
				v.asked = asked
			}
		} else {
			if j, err = a.beginIn(v, r, c); err == nil {
				j.record.Judged = judged
			}
		}
		if err != nil {
			return nil, false, err
		}
		entered, err := a.enter(v, j)
		if err != nil {
			return nil, false, err
		}
		if entered {
			if c.Batch.System != "" {
				a.jobs.Go(j.watchCaller)
			}
			return j, true, nil
		}
	}
}

// beginIn makes the job of a request whose batch job has a VM already.
func (a *Agent) beginIn(v *vm, r *api.JobRequest, c Caller) (*job, error) {
	if r.Started {
		return nil, lostUnknown()
	}
	if err := c.belongsTo(farm.BatchSystem(r.Batch)); err != nil {
		return nil, err
	}
	if err := c.mayKeep(r); err != nil {
		return nil, err
	}
	if r.Image != "" && r.Image != v.asked && r.Image != v.image {
		return nil, &farm.Error{Kind: farm.Conflict, Code: CodeOtherImage,
			Message: fmt.Sprintf("job %s has a VM of image %s here; a task of it cannot have %s", v.key, v.image,
				r.Image), Hint: "all tasks of a job on a host share one VM: ask for the same image, or for none"}
	}
	// The VM is there, but not the leave to enter it: a task may bind other directories than the first one, or ask for
	// more.
	requests := a.requests()
	d, err := requests.decide(c, r)
	if err != nil {
		return nil, err
	}
	if err := jobrequest.CheckScript(r, v.recordNow().Shape.Memory); err != nil {
		return nil, err
	}
	known, err := requests.namesOf(c)
	if err != nil {
		return nil, err
	}
	c.Nameless = known.OneOfMany()
	if whole := v.recordNow().Allocation; whole != nil {
		c.Batch.Cgroups = whole.Batch.Cgroups
	}
	j := newJob(a, r.ID, c)
	j.request = r
	j.record = record{Version: recordVersion, Job: r.ID, User: known.Shown(),
		Command: jobrequest.Brief(r.Argv), Caller: c, Keep: r.Keep, OneFS: d.OneFilesystem, Gateways: d.Gateways,
		Uses: filesystems.Of(r.Binds, c.PID, d.OneFilesystem)}
	return j, v.drainsFromTask(j)
}

// enter puts a job into a VM, which may be a new one. It reports whether that was possible: the VM may have ended
// meanwhile, or another connection of the same job, or another task of the same batch job, was quicker.
func (a *Agent) enter(v *vm, j *job) (bool, error) {
	most := a.mostJobs()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.live[j.id] != nil {
		return false, nil
	}
	if err := a.roomForLocked(j, most); err != nil {
		return false, err
	}
	if a.vms[v.id] != v {
		if a.joinable(v.key, v.owner.UID) != nil {
			return false, nil
		}
		for other := range a.vms { // VMs are named after the start of the ID, and the caller chose it
			if vmName(other) == vmName(v.id) {
				return false, &farm.Error{Kind: farm.Conflict, Code: farm.CodeBadRequest,
					Message: "another job's ID starts like " + v.id, Hint: "choose a random ID"}
			}
		}
		pool := j.record.Pool
		if err := pools.Room(a.cfg.Pools, pool, v.owner.charged(), a.inPoolsLocked()[pool]); err != nil {
			return false, err
		}
		if !v.enter(j) {
			return false, nil
		}
		a.vms[v.id], a.live[j.id] = v, j
		a.jobs.Go(v.run)
		return true, nil
	}
	if !v.enter(j) {
		return false, nil
	}
	a.live[j.id] = j
	return true, nil
}

// mostJobs is how many jobs a user may have here: more than fit, for some wait.
func (a *Agent) mostJobs() int { return 4*a.hostCPUs() + 64 }

// roomForLocked refuses a user who has too many jobs already, or too much in them.
func (a *Agent) roomForLocked(late *job, most int) error {
	c := late.caller
	if c.admin() {
		return nil
	}
	bytes := jobrequest.Size(late.request)
	late.weight.Store(bytes)
	has := jobrequest.Held{MostJobs: most, Bytes: bytes, All: bytes}
	for _, j := range a.live {
		if j.caller.charged() == c.charged() {
			has.Jobs, has.Bytes = has.Jobs+1, has.Bytes+j.weight.Load()
		}
		if !j.caller.admin() {
			has.All += j.weight.Load()
		}
	}
	return has.Check()
}

// vmOf is the VM that a job of the caller enters; nil when it gets its own.
func (a *Agent) vmOf(c Caller) *vm {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.joinable(c.Batch.Key(), c.UID)
}

func (a *Agent) joinable(key string, uid uint32) *vm {
	if key == "" {
		return nil
	}
	for _, v := range a.vms {
		if v.key == key && v.owner.UID == uid && v.takesMore() {
			return v
		}
	}
	return nil
}
