package agent

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/farm"
)

// TestBytesOfAUser: what one user's waiting jobs bring is bounded together; what a guest has is not counted, nor what
// others have; one job alone may be as large as it is.
func TestBytesOfAUser(t *testing.T) {
	a := testAgent(t, testShapes)
	user := Caller{UID: 4711}
	script := &api.Script{Path: "/spool/job", Content: make([]byte, 60<<20)} // of all jobs: this test is about numbers
	wait := func(c Caller, r *api.JobRequest) (*job, error) {
		j := newJob(a, api.NewID(), c)
		j.request = r
		err := a.roomForLocked(j, 1000)
		if err == nil {
			a.live[j.id] = j
		}
		return j, err
	}
	var jobs []*job
	for range 4 {
		j, err := wait(user, &api.JobRequest{Script: script})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	if _, err := wait(user, &api.JobRequest{Prologs: []api.Script{*script}}); !farm.IsCode(err,
		farm.CodeTooManyBytes) || !farm.IsKind(err, farm.NoCapacity) {
		t.Errorf("a fifth: %v", err)
	}
	if _, err := wait(user, &api.JobRequest{Env: []string{strings.Repeat("x", 20<<20)}}); !farm.IsCode(err,
		farm.CodeTooManyBytes) {
		t.Errorf("an environment of 20 MiB: %v", err)
	}
	for _, c := range []struct {
		who Caller
		r   *api.JobRequest
	}{
		{user, &api.JobRequest{Argv: []string{"true"}}}, {Caller{UID: 4712}, &api.JobRequest{Script: script}},
		{Caller{}, &api.JobRequest{Script: script}},
	} {
		if _, err := wait(c.who, c.r); err != nil {
			t.Errorf("user %d: %v", c.who.UID, err)
		}
	}
	jobs[0].weight.Store(0) // its guest has it
	if _, err := wait(user, &api.JobRequest{Script: script}); err != nil {
		t.Errorf("in the place of one that has begun: %v", err)
	}
	huge := &api.JobRequest{Prologs: []api.Script{*script, *script, *script, *script, *script}}
	if _, err := wait(Caller{UID: 4713}, huge); err != nil {
		t.Errorf("one alone: %v", err)
	}
}

// TestLighten: what is left behind has no bytes worth speaking of, and the request itself stays whole.
func TestLighten(t *testing.T) {
	r := &api.JobRequest{Argv: []string{"/bin/true"}, Env: []string{"A=1"}, Script: &api.Script{Content: []byte("x")},
		Prologs: []api.Script{{Content: []byte("y")}}, NoWait: true, Batch: "slurm"}
	light := jobrequest.Light(r)
	if jobrequest.Size(light) != 0 || !light.NoWait || light.Batch != "slurm" || jobrequest.Size(r) < 10 ||
		jobrequest.Light(nil) != nil || jobrequest.Size(nil) != 0 {
		t.Errorf("%+v of %+v", light, r)
	}
}

// TestScriptFits: a script that would fill its VM is refused before there is one.
func TestScriptFits(t *testing.T) {
	for _, c := range []struct {
		script int
		memory farm.Bytes
		fits   bool
	}{
		{0, farm.MinMemory, true}, {8 << 20, 64 * farm.MiB, true}, {8<<20 + 1, 64 * farm.MiB, false},
		{64 << 20, 512 * farm.MiB, true}, {64 << 20, 256 * farm.MiB, false},
	} {
		err := jobrequest.CheckScript(&api.JobRequest{Script: &api.Script{Content: make([]byte, c.script)}}, c.memory)
		if c.fits != (err == nil) || err != nil && !farm.IsCode(err, farm.CodeScriptSize) {
			t.Errorf("%d bytes in %v: %v", c.script, c.memory, err)
		}
	}
}

// TestScriptIsForgotten: a job that runs keeps nothing of what its guest was given.
func TestScriptIsForgotten(t *testing.T) {
	f := newFarmhouse(t)
	j := f.mustAsk(f.caller("7"), api.JobRequest{Script: &api.Script{Path: "/spool/job",
		Content: []byte("#!/bin/sh\n")}, Env: []string{"A=1"}})
	j.job.weight.Store(1) // root's are not weighed
	j.until(api.EventRunning)
	j.job.mu.Lock()
	kept := jobrequest.Size(j.job.request) + jobrequest.Size(j.job.vm.request)
	j.job.mu.Unlock()
	if kept != 0 || j.job.weight.Load() != 0 {
		t.Errorf("%d bytes are kept, %d counted", kept, j.job.weight.Load())
	}
	j.done()
}
