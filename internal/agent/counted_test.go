package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/lookups"
	"github.com/grange-project/grange/internal/farm"
)

// TestPlainExecOfALooseJob: a job that its batch system does not confine, and whose script starts a VM by hand, gets no
// more than what the job was given; and no VM while nobody tells how much that is.
func TestPlainExecOfALooseJob(t *testing.T) {
	f := newFarmhouse(t)
	var silent error
	f.agent.lookups = lookups.New(func(_ context.Context, a farm.Allotment, _ int) (farm.Allotment, error) {
		a.Slots, a.Memory = 1, 4*farm.GiB
		return a, silent
	})
	loose := func(job string) Caller {
		c := f.caller(job)
		c.CPUs, c.Memory = f.agent.machines.AllCPUs(), 0
		c.Batch.CPUs, c.Batch.Slots, c.Batch.Memory = farm.CPUSet{}, 0, 0
		return c
	}
	if f.agent.hostCPUs() < 2 {
		t.Fatal("this test needs two CPUs")
	}
	for name, r := range map[string]api.JobRequest{"CPUs": {CPUs: 2}, "memory": {Memory: uint64(8 * farm.GiB)}} {
		if _, err := f.ask(loose("7"), r); !farm.IsCode(err, farm.CodeTooBig) {
			t.Errorf("more %s than job 7 was given: %v", name, err)
		}
	}
	vm := f.mustAsk(loose("7"), api.JobRequest{})
	vm.until(api.EventRunning)
	vm.done()
	silent = errors.New("no answer")
	if _, err := f.ask(loose("8"), api.JobRequest{}); !farm.IsCode(err, CodeUnknownSize) {
		t.Errorf("nobody knows what job 8 was given: %v", err)
	}
}
