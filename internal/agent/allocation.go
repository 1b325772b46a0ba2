package agent

import (
	"os"
	"strconv"
	"time"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/farm"
)

// Steps of an allocation without a batch script, as salloc makes it, follow each other, and nothing of the job need run
// between them. Slurm keeps a step of its own on each host for as long as the allocation lasts, where it is configured
// to: the extern step. A VM whose last step has left then stays, in the control groups of that step, and the next step
// enters it. Slurm ends what is in these groups with the allocation.

// allocationOf is what the caller's allocation has on this host: the process is the daemon of its extern step, and
// CPUs, memory and control groups are those of that step. nil: the caller is no step, or nothing outlasts it. A batch
// script, and the shell of salloc where that is a step, keep their VM themselves.
func allocationOf(c Caller) *Caller {
	if !isStep(c.Batch) {
		return nil
	}
	extern, ok := allotment.ExternOf(allotment.Host(), c.Batch)
	if !ok {
		return nil
	}
	whole, err := Caller{PID: extern.Task, UID: c.UID, GID: c.GID}.withLimits()
	if err != nil || whole.Batch.Key() != c.Batch.Key() {
		return nil // the allocation ends just now
	}
	whole.PID = extern.Daemon
	if whole.Start, err = allotment.StartOf(os.DirFS("/"), extern.Daemon); err != nil {
		return nil
	}
	return &whole
}

// isStep reports whether a job's process is of a step that srun started: the others have names.
func isStep(a farm.Allotment) bool {
	_, err := strconv.Atoi(a.Step)
	return a.System == farm.Slurm && err == nil
}

// within is the caller as one of its allocation: its VM is for all steps, and has what the allocation has. A step that
// has all of that itself keeps its own control groups: it may be all that there is, and Slurm accounts the VM to it.
func (c Caller) within(whole *Caller) Caller {
	if whole == nil || c.allowed().Equal(whole.allowed()) && c.limit() == whole.limit() {
		return c
	}
	c.CPUs, c.Memory = whole.CPUs, whole.Memory
	c.Batch.CPUs, c.Batch.Memory, c.Batch.Cgroups = whole.Batch.CPUs, whole.Batch.Memory, whole.Batch.Cgroups
	return c
}

// stay is a VM's staying between the steps of its allocation.
type stay struct{ *vm }

// keptLocked reports whether the VM stays while no step is in it.
func (v stay) keptLocked() bool {
	whole := v.record.Allocation
	return whole != nil && v.up && v.takesMoreLocked() && whole.alive()
}

// emptied reports whether the VM may end: no job is in it, and none can come.
func (v stay) emptied() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.jobs) > 0 || v.keptLocked() {
		return false
	}
	v.closed = true
	return true
}

// awaitEmptied waits until the VM may end; it returns false where the agent stops first. No event tells of the end of
// an allocation.
func (v stay) awaitEmptied() bool {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !v.emptied() {
		v.mu.Lock()
		changed := v.changed
		v.mu.Unlock()
		var look <-chan time.Time
		if v.recordNow().Allocation != nil {
			look = tick.C
		}
		select {
		case <-changed:
		case <-look:
		case <-v.agent.ctx.Done():
			return false
		}
	}
	return v.agent.ctx.Err() == nil
}

// share puts QEMU into the control groups of the allocation when a second step enters: the end of one step must not be
// that of the others' VM.
func (v stay) share(j *job) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.record.Allocation == nil || j.id == v.id || j.takenOver || v.machine == nil || !v.defined {
		return
	}
	v.toAllocationLocked()
}

func (v stay) toAllocationLocked() {
	if v.home == nil {
		return // it is there
	}
	if err := v.moveTo(v.record.Allocation.Batch.Cgroups); err != nil {
		v.agent.log.Error("vm cannot be moved to its allocation", "vm", v.record.Name, "error", err)
		return
	}
	v.home = nil
}
