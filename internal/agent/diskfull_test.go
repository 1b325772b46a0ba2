package agent

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/waittest"
)

// full is a farmhouse whose file system has as much space as the test says.
func full(t *testing.T) (f *farmhouse, free *atomic.Uint64) {
	f, free = newFarmhouse(t), new(atomic.Uint64)
	free.Store(uint64(farm.TiB))
	f.agent.machines.FreeSpace = func(string) (farm.Bytes, error) { return farm.Bytes(free.Load()), nil }
	f.agent.jobs.Go(f.agent.watch.watchDisks)
	return f, free
}

// TestNoSpaceForJobs: of two jobs' VMs that find no space the first ends, with the reason; that is space for the
// second, which goes on.
func TestNoSpaceForJobs(t *testing.T) {
	f, free := full(t)
	first, second := f.mustAsk(f.caller(""), api.JobRequest{}), f.mustAsk(f.caller(""), api.JobRequest{})
	one, two := first.until(api.EventRunning), second.until(api.EventRunning)
	free.Store(0)
	f.host.NoSpace(one.ID)
	if p := first.lost(); p.Type != "grange:"+string(machine.CodeVMDiskFull) || !strings.Contains(p.Detail, "full") {
		t.Errorf("%+v", p)
	}
	<-first.job.over
	third := f.mustAsk(f.caller(""), api.JobRequest{NoWait: true})
	if code := third.failed(); code != string(machine.CodeBelowMinimum) {
		t.Errorf("a full host takes a job: %s", code)
	}
	free.Store(uint64(farm.GiB))
	f.host.NoSpace(two.ID)
	f.until("the other VM goes on", func() bool { return f.state(two.ID) == hyper.Running })
	if v := f.agent.vmMadeFor(second.id); v == nil || v.ctx.Err() != nil {
		t.Error("the second ended as well")
	}
}

// TestNoSpaceSuspended: who suspended a VM finds it suspended, whatever became of its disks.
func TestNoSpaceSuspended(t *testing.T) {
	f, _ := full(t)
	task := f.mustAsk(f.caller(""), api.JobRequest{})
	vm := task.until(api.EventRunning)
	v := f.agent.vmMadeFor(task.id)
	if err := v.pause(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	f.agent.watch.noSpace(vm.ID)
	if got := f.state(vm.ID); got != hyper.Paused {
		t.Errorf("the VM is %s", got)
	}
}

// TestNoSpaceForCloudVM: it is paused with the reason until there is space, also for the next agent.
func TestNoSpaceForCloudVM(t *testing.T) {
	f, free := full(t)
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	free.Store(uint64(machine.SpaceToGoOn) - 1)
	f.host.NoSpace(w.ID)
	waits := func(o fleet.Observed) bool {
		return o.State == string(farm.VMRunning) && strings.HasPrefix(o.Reason, string(machine.CodeVMDiskFull)+": ")
	}
	f.sees("that it waits for space", w, waits)
	f.close()
	f.open()
	f.agent.machines.FreeSpace = func(string) (farm.Bytes, error) { return farm.Bytes(free.Load()), nil }
	f.agent.jobs.Go(f.agent.watch.watchDisks)
	f.want(w)
	f.sees("that it still waits", w, waits)
	if got := f.state(w.ID); got != hyper.Paused {
		t.Errorf("the VM is %s without space", got)
	}
	free.Store(uint64(machine.SpaceToGoOn))
	f.sees("that it runs", w, func(o fleet.Observed) bool {
		return o.State == string(farm.VMRunning) &&
			o.Reason == ""
	})
	f.until("it runs", func() bool { return f.state(w.ID) == hyper.Running })
}

// until asks again until it is so.
func (f *farmhouse) until(what string, so func() bool) {
	f.Helper()
	for limit := time.Now().Add(waittest.Limit); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			f.Fatal("never so: ", what)
		}
	}
}

func (f *farmhouse) state(id string) hyper.State {
	f.Helper()
	found, err := f.host.Open().List(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	for _, m := range found {
		if m.ID == id {
			return m.State
		}
	}
	return hyper.Gone
}
