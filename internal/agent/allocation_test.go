package agent

import (
	"os/exec"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// process starts one that stands for a job's, until the test ends it.
func (f *farmhouse) process() (c Caller, end func()) {
	f.Helper()
	p := exec.Command("/bin/sleep", "1000")
	if err := p.Start(); err != nil {
		f.Fatal(err)
	}
	end = func() {
		p.Process.Kill()
		p.Wait()
	}
	f.Cleanup(end)
	c = f.caller("")
	c.PID = p.Process.Pid
	limited, err := c.withLimits()
	if err != nil {
		f.Fatal(err)
	}
	c.Start = limited.Start
	return c, end
}

// step is a process of a step of job 7.
func (f *farmhouse) step(number string) (c Caller, end func()) {
	f.Helper()
	c, end = f.process()
	c.Batch = farm.Allotment{System: farm.Slurm, Job: "7", Step: number}
	return c, end
}

// allocate makes an allocation of job 7, until the test ends it.
func (f *farmhouse) allocate() (end func()) {
	f.Helper()
	whole, end := f.step("extern")
	f.agent.allocationOf = func(c Caller) *Caller {
		if c.Batch.Key() != whole.Batch.Key() {
			return nil
		}
		return &whole
	}
	return end
}

// TestStepsOfOneAllocation: steps that follow each other are in one VM, which ends with the allocation.
func TestStepsOfOneAllocation(t *testing.T) {
	f := newFarmhouse(t)
	end := f.allocate()
	first := f.mustAsk(f.caller("7"), api.JobRequest{})
	vm := first.until(api.EventRunning)
	first.done()
	if f.machines() != 1 || !f.guests.ended[first.id] {
		t.Fatalf("%d machines behind the first step; ended: %v", f.machines(), f.guests.ended)
	}
	f.shows("a VM that is kept", func(vm api.VM) bool { return vm.State == "kept" && vm.Tasks == 0 })
	other := f.mustAsk(f.caller("8"), api.JobRequest{})
	if other.until(api.EventRunning).ID == vm.ID {
		t.Error("a step of another job is in the VM")
	}
	other.done()

	second, third := f.mustAsk(f.caller("7"), api.JobRequest{}), f.mustAsk(f.caller("7"), api.JobRequest{})
	for _, x := range []*task{second, third} {
		if x.until(api.EventRunning).ID != vm.ID {
			t.Error("a later step is in another VM")
		}
	}
	second.done()
	end()
	if f.machines() != 1 {
		t.Error("the VM ends before its last step")
	}
	third.done()
	f.until("the VM ends with its allocation", func() bool { return f.machines() == 0 })
	f.until("nothing runs", func() bool { return len(f.agent.all()) == 0 })
	f.nothingLeft()
}

// TestAllocationEnds: an idle VM ends with the allocation, by itself, and by order.
func TestAllocationEnds(t *testing.T) {
	for name, end := range map[string]func(f *farmhouse, v *vm, end func()){
		"the allocation ends": func(_ *farmhouse, _ *vm, end func()) { end() },
		"by order":            func(_ *farmhouse, v *vm, _ func()) { v.cancel(errStopped) },
		"QEMU ends":           func(f *farmhouse, v *vm, _ func()) { f.host.End(v.recordNow().VM, "killed") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarmhouse(t)
			endAllocation := f.allocate()
			first := f.mustAsk(f.caller("7"), api.JobRequest{})
			first.until(api.EventRunning)
			first.done()
			end(f, first.job.vm, endAllocation)
			<-first.job.vm.over
			f.until("nothing runs", func() bool { return len(f.agent.all()) == 0 })
			f.nothingLeft()
		})
	}
}

// TestAllocationAfterARestart: the next agent keeps the VM as the last one did, and ends one whose allocation is over.
func TestAllocationAfterARestart(t *testing.T) {
	f := newFarmhouse(t)
	end := f.allocate()
	c, endStep := f.step("0")
	first := f.mustAsk(c, api.JobRequest{})
	vm := first.until(api.EventRunning)
	endStep()
	<-first.job.over
	f.close()
	f.open()
	second := f.mustAsk(f.caller("7"), api.JobRequest{})
	if second.until(api.EventRunning).ID != vm.ID {
		t.Error("the step behind the restart is in another VM")
	}
	second.done()
	if f.machines() != 1 {
		t.Error("the VM ends with its step")
	}
	f.close()
	end()
	f.open()
	f.until("the VM ends", func() bool { return f.machines() == 0 })
	f.until("nothing runs", func() bool { return len(f.agent.all()) == 0 })
	f.nothingLeft()
}

// TestVMOfAllocation: its size is the allocation's, and where a step has all of it, the VM is accounted to the step.
func TestVMOfAllocation(t *testing.T) {
	whole := Caller{PID: 20, CPUs: farm.NewCPUSet(0, 1, 2, 3), Memory: 4 * farm.GiB, Batch: farm.Allotment{
		System: farm.Slurm, Job: "7", Step: "extern", CPUs: farm.NewCPUSet(0, 1, 2, 3), Memory: 4 * farm.GiB,
		Cgroups: []string{"cpuset/extern"}}}
	step := func(change func(c *Caller)) Caller {
		c := whole
		c.PID, c.Batch.Step, c.Batch.Cgroups = 30, "0", []string{"cpuset/0"}
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		step   Caller
		shared bool
	}{
		"all of it":   {step(func(*Caller) {}), false},
		"some CPUs":   {step(func(c *Caller) { c.Batch.CPUs = farm.NewCPUSet(1) }), true},
		"less memory": {step(func(c *Caller) { c.Memory, c.Batch.Memory = farm.GiB, farm.GiB }), true},
		"bound to a CPU, nothing confined": {step(func(c *Caller) {
			c.CPUs, c.Batch.CPUs = farm.NewCPUSet(1), farm.CPUSet{}
		}), true},
	} {
		got := c.step.within(&whole)
		if !got.allowed().Equal(whole.allowed()) || got.limit() != whole.limit() {
			t.Errorf("%s: CPUs %v and %v, want the allocation's", name, got.allowed(), got.limit())
		}
		shared := got.Batch.Cgroups[0] == "cpuset/extern"
		if shared != c.shared || got.PID != 30 || got.Batch.Step != "0" {
			t.Errorf("%s: %+v", name, got)
		}
		if alone := c.step.within(nil); alone.limit() != c.step.limit() {
			t.Errorf("%s, without an allocation: %+v", name, alone)
		}
	}
	for step, want := range map[string]bool{"0": true, "12": true, "batch": false, "interactive": false,
		"extern": false, "": false} {
		if got := isStep(farm.Allotment{System: farm.Slurm, Job: "7", Step: step}); got != want {
			t.Errorf("step %q: %v", step, got)
		}
	}
}
