package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/features"
	"github.com/grange-project/grange/internal/agent/lookup"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/policy"
)

// testAgent has 8 CPUs and the given configuration, and no host.
func testAgent(t *testing.T, toml string) *Agent {
	t.Helper()
	c, err := config.ParseAgent([]byte(toml), "test")
	if err != nil {
		t.Fatal(err)
	}
	return joined(&Agent{cfg: c, topo: farm.Topology{Online: farm.CPURange(0, 8)}, ctx: t.Context(),
		names: names.Host(), pageMounts: func() []farm.Bytes { return nil }, live: map[string]*job{},
		vms: map[string]*vm{}, log: slog.New(slog.DiscardHandler)})
}

const testShapes = `
[default_shape]
cpus = 2
memory = "2G"
[shapes.wide]
cpus = 4
memory = "4G"
`

// TestShape is what callers get, by what they were given and what they ask for.
func TestShape(t *testing.T) {
	all, two := farm.CPURange(0, 8), farm.NewCPUSet(3, 4)
	slurm := func(a farm.Allotment) farm.Allotment { a.System, a.Job = farm.Slurm, "1"; return a }
	for name, c := range map[string]struct {
		caller  Caller
		request api.JobRequest
		policy  policy.Decision
		cpus    int
		memory  farm.Bytes
		refused string
	}{
		"a login": {caller: Caller{CPUs: all}, cpus: 2, memory: 2 * farm.GiB},
		"a login that asks": {caller: Caller{CPUs: all}, request: api.JobRequest{CPUs: 8, Memory: 5 << 30},
			cpus: 8, memory: 5 * farm.GiB},
		"a job gets its CPUs and memory": {caller: Caller{CPUs: all,
			Batch: slurm(farm.Allotment{CPUs: two, Memory: 3 * farm.GiB})}, request: api.JobRequest{Batch: "slurm"},
			cpus: 2, memory: 3 * farm.GiB},
		"a job in a control group": {caller: Caller{CPUs: all,
			Batch: slurm(farm.Allotment{CPUs: two, Memory: 3 * farm.GiB, Cgroups: []string{"a"}})},
			request: api.JobRequest{Batch: "slurm"}, cpus: 2, memory: 3 * farm.GiB},
		"affinity is all that is known": {caller: Caller{CPUs: farm.CPURange(0, 3), Batch: slurm(farm.Allotment{})},
			request: api.JobRequest{Batch: "slurm"}, cpus: 3, memory: 2 * farm.GiB},
		"nothing is known": {caller: Caller{CPUs: all, Batch: slurm(farm.Allotment{})},
			request: api.JobRequest{Batch: "slurm"}, cpus: 2, memory: 2 * farm.GiB},
		"counted CPUs": {caller: Caller{CPUs: all,
			Batch: farm.Allotment{System: farm.GridEngine, Slots: 3}}, request: api.JobRequest{Batch: "gridengine"},
			cpus: 3, memory: 2 * farm.GiB},
		"more than the count": {caller: Caller{CPUs: all,
			Batch: farm.Allotment{System: farm.GridEngine, Slots: 3}}, request: api.JobRequest{CPUs: 4},
			refused: "was given 3 by its batch system"},
		"more than the CPUs": {caller: Caller{CPUs: all, Batch: slurm(farm.Allotment{CPUs: two})},
			request: api.JobRequest{CPUs: 3}, refused: "may use CPUs 3-4 only"},
		"more than the memory": {caller: Caller{CPUs: all, Memory: 3 * farm.GiB},
			request: api.JobRequest{Memory: 4 << 30}, refused: "limited to 3G"},
		"no memory at all": {caller: Caller{CPUs: all, Memory: 30 * farm.MiB}, refused: "limited to 30M"},
		"the least of both limits": {caller: Caller{CPUs: all, Memory: farm.GiB,
			Batch: slurm(farm.Allotment{Memory: 3 * farm.GiB})}, request: api.JobRequest{Batch: "slurm"}, cpus: 2,
			memory: farm.GiB},
		"a named shape": {caller: Caller{CPUs: all,
			Batch: slurm(farm.Allotment{CPUs: all, Memory: 16 * farm.GiB})}, request: api.JobRequest{Batch: "slurm"},
			policy: policy.Decision{Shape: "wide"}, cpus: 4, memory: 4 * farm.GiB},
		"a named shape beyond the job": {caller: Caller{CPUs: all, Batch: slurm(farm.Allotment{CPUs: two})},
			request: api.JobRequest{Batch: "slurm"}, policy: policy.Decision{Shape: "wide"}, refused: "4 CPUs"},
		"the policy cuts": {caller: Caller{CPUs: all,
			Batch: slurm(farm.Allotment{CPUs: all, Memory: 16 * farm.GiB})}, request: api.JobRequest{Batch: "slurm"},
			policy: policy.Decision{MaxCPUs: 5, MaxMemory: 6 * farm.GiB}, cpus: 5, memory: 6 * farm.GiB},
		"the hook of one job in a login": {caller: Caller{CPUs: two}, cpus: 2, memory: 2 * farm.GiB},
		"no such shape": {caller: Caller{CPUs: all}, policy: policy.Decision{Shape: "huge"},
			refused: `no shape "huge"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := testAgent(t, testShapes).requests().shape(&c.request, c.caller, c.policy)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%+v, %v; want a refusal that says %q", s, err, c.refused)
				}
				return
			}
			want := c.memory
			if limit := c.caller.limit(); c.caller.Batch.System != "" && limit == want { // QEMU's own need counts too
				if len(c.caller.Batch.Cgroups) == 0 { // and the wrapper, where processes are added up
					limit -= farm.NeedOfWrapper
				}
				want = farm.GuestWithin(limit, c.cpus, false)
			}
			if err != nil || s.CPUs != c.cpus || s.Memory != want {
				t.Errorf("%d CPUs, %v, %v; want %d, %v", s.CPUs, s.Memory, err, c.cpus, want)
			}
		})
	}
}

// TestCountedJobsTakeNoMore: isolation holds CPUs beside those of the vCPUs, which a job that was given a number has
// not got.
func TestCountedJobsTakeNoMore(t *testing.T) {
	all := farm.CPURange(0, 8)
	site := testAgent(t, testShapes+"thread_policy = \"isolate\"\nemulator = \"isolate\"\n") // in [shapes.wide]
	own := testAgent(t, "[default_shape]\ncpus = 2\nmemory = \"2G\"\nthread_policy = \"isolate\"\nemulator = "+
		"\"isolate\"\n")
	counted := farm.Allotment{System: farm.GridEngine, Slots: 4}
	confined := farm.Allotment{System: farm.GridEngine, Slots: 4, CPUs: farm.CPURange(0, 4)}
	for name, c := range map[string]struct {
		agent    *Agent
		batch    farm.Allotment
		request  api.JobRequest
		shape    string
		refused  bool
		isolates bool
	}{
		"threads": {agent: site, batch: counted, request: api.JobRequest{ThreadPolicy: "isolate"},
			refused: true},
		"emulator": {agent: site, batch: counted, request: api.JobRequest{Emulator: "isolate"},
			refused: true},
		"a shape by name":    {agent: site, batch: counted, shape: "wide", refused: true},
		"the site's default": {agent: own, batch: counted},
		"siblings":           {agent: site, batch: counted, request: api.JobRequest{ThreadPolicy: "require"}},
		"the job's CPUs are known": {agent: site, batch: confined, request: api.JobRequest{ThreadPolicy: "isolate"},
			isolates: true},
		"by default, CPUs are known": {agent: own, batch: confined, isolates: true},
		"outside of batch":           {agent: own, isolates: true},
	} {
		caller := Caller{CPUs: all, Batch: c.batch}
		s, err := c.agent.requests().shape(&c.request, caller, policy.Decision{Shape: c.shape})
		if c.refused != farm.IsCode(err, farm.CodeTooBig) || !c.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.Threads == farm.IsolateCores; err == nil &&
			(got != c.isolates || got != (s.Emulator == farm.EmulatorIsolate) && name != "the job's CPUs are known") {
			t.Errorf("%s: %q, %q", name, s.Threads, s.Emulator)
		}
	}
}

func TestBelongsTo(t *testing.T) {
	job := Caller{Batch: farm.Allotment{System: farm.Slurm, Job: "7"}}
	for _, c := range []struct {
		caller Caller
		said   farm.BatchSystem
		ok     bool
	}{{Caller{}, "", true}, {job, "", true}, {job, farm.Slurm, true}, {job, farm.PBS, false}, {Caller{},
		farm.Slurm, false}} {
		err := c.caller.belongsTo(c.said)
		if e := new(farm.Error); (err == nil) != c.ok ||
			err != nil && (!errors.As(err, &e) || e.Kind != farm.Denied || e.Code != CodeWrongBatch) {
			t.Errorf("%+v says %q: %v", c.caller.Batch, c.said, err)
		}
	}
}

const testPolicy = `
[[policy]]
name = "long"
queues = ["long"]
image = "el8"
[[policy]]
name = "all"
images = ["micro"]
`

// TestDecideAsksTheBatchSystem: once a job, only where a rule needs it, and a job that it cannot tell of is not
// started.
func TestDecideAsksTheBatchSystem(t *testing.T) {
	a := testAgent(t, testPolicy)
	c := Caller{Batch: farm.Allotment{System: farm.Slurm, Job: "1"}}
	wantUnknown := func() {
		t.Helper()
		if _, err := a.requests().decide(c, &api.JobRequest{}); !farm.IsCode(err, CodeUnknownQueue) ||
			!farm.IsKind(err, farm.Unavailable) {
			t.Errorf("%v, want %s", err, CodeUnknownQueue)
		}
	}
	wantUnknown() // nobody to ask
	asked, broken := 0, true
	a.lookups.Ask = func(_ context.Context, a farm.Allotment, _ int) (farm.Allotment, error) {
		asked++
		if broken {
			return a, errors.New("no answer")
		}
		a.Queue, a.Ends = "long", time.Unix(5e9, 0)
		return a, nil
	}
	wantUnknown()
	broken, a.lookups = false, lookup.Lookups{Ask: a.lookups.Ask} // as a while later
	for range 3 {
		if d, err := a.requests().decide(c, &api.JobRequest{}); err != nil || d.Image != "el8" {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want once in vain and once for good", asked)
	}
	if ends := a.requests().jobEnds(c.Batch); ends.Unix() != 5e9 {
		t.Errorf("ends %v", ends)
	}
	if d, err := a.requests().decide(Caller{}, &api.JobRequest{}); err != nil || d.Image != "" || asked != 2 {
		t.Errorf("outside of batch: %+v, %v, asked %d times", d, err, asked)
	}
	if _, err := a.requests().decide(Caller{}, &api.JobRequest{Image: "el8"}); !farm.IsCode(err, farm.CodePolicy) {
		t.Errorf("%v, want %s", err, farm.CodePolicy)
	}
	a.cfg.Policy = nil // as after a reload
	if d, err := a.requests().decide(Caller{}, &api.JobRequest{Image: "el8"}); err != nil || d.Image != "el8" {
		t.Errorf("without rules: %+v, %v", d, err)
	}
}

// TestCounted: the batch system is asked for what the host does not tell, and for that only.
func TestCounted(t *testing.T) {
	all, two := farm.CPURange(0, 8), farm.CPURange(0, 2)
	given := func(a farm.Allotment) farm.Allotment { a.System, a.Job = farm.Slurm, "1"; return a }
	full := farm.Allotment{Slots: 3, Memory: 5 * farm.GiB}
	for name, c := range map[string]struct {
		caller Caller
		answer farm.Allotment
		err    error
		asked  bool
		slots  int
		memory farm.Bytes
	}{
		"nothing is known": {caller: Caller{CPUs: all, Batch: given(farm.Allotment{})}, answer: full, asked: true,
			slots: 3, memory: 5 * farm.GiB},
		"CPUs are confined": {caller: Caller{CPUs: all, Batch: given(farm.Allotment{CPUs: two})}, answer: full,
			asked: true, memory: 5 * farm.GiB},
		"CPUs by affinity": {caller: Caller{CPUs: two, Batch: given(farm.Allotment{})}, answer: full, asked: true,
			memory: 5 * farm.GiB},
		"CPUs are counted": {caller: Caller{CPUs: all, Batch: given(farm.Allotment{Slots: 2})}, answer: full,
			asked: true, slots: 2, memory: 5 * farm.GiB},
		"memory is limited": {caller: Caller{CPUs: all, Memory: farm.GiB, Batch: given(farm.Allotment{})},
			answer: full, asked: true, slots: 3},
		"all is known": {caller: Caller{CPUs: all, Batch: given(farm.Allotment{CPUs: two, Memory: farm.GiB})},
			memory: farm.GiB},
		"no batch job":        {caller: Caller{CPUs: all}},
		"Slurm does not know": {caller: Caller{CPUs: all, Batch: given(farm.Allotment{})}, asked: true},
		"nobody can be asked": {caller: Caller{CPUs: all, Batch: given(farm.Allotment{})}, err: errors.ErrUnsupported,
			asked: true},
		"Slurm does not answer": {caller: Caller{CPUs: all, Batch: given(farm.Allotment{})}, err: errors.New("x"),
			asked: true},
	} {
		a, asked := testAgent(t, testShapes), false
		a.lookups.Ask = func(context.Context, farm.Allotment, int) (farm.Allotment, error) {
			asked = true
			return c.answer, c.err
		}
		got, err := a.requests().counted(c.caller)
		if refused := name == "Slurm does not answer"; refused != farm.IsCode(err, CodeUnknownSize) ||
			!refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if asked != c.asked || got.Batch.Slots != c.slots || got.Batch.Memory != c.memory {
			t.Errorf("%s: asked %v, %+v", name, asked, got.Batch)
		}
	}
}

func TestFeatures(t *testing.T) {
	a := testAgent(t, "[facts]\nHS06 = \"80\"\nhepscore = \"100.5\"\nrack = \"7\"\n")
	now := time.Unix(1000, 0)
	r := record{Job: "uuid", Shape: farm.Shape{CPUs: 2, Scratch: farm.GiB,
		Disks: farm.Disks{Swap: farm.MiB, Volumes: []farm.Volume{{Path: "/data", Size: farm.GiB}}}},
		Caller: Caller{Batch: farm.Allotment{System: farm.Slurm, Job: "42"}}}
	got := map[string]string{}
	for _, f := range features.Files(a.requests().featured(r, time.Unix(4600, 0), now)) {
		got[strings.TrimPrefix(f.Path, "/etc/grange/")] = strings.TrimSpace(string(f.Content))
	}
	want := map[string]string{"machinefeatures/total_cpu": "2", "machinefeatures/jobslots": "1",
		"machinefeatures/hs06": "20.00", "machinefeatures/hepscore": "25.12", "machinefeatures/shutdowntime": "4600",
		"jobfeatures/allocated_cpu": "2", "jobfeatures/job_id": "42", "jobfeatures/jobstart_secs": "1000",
		"jobfeatures/wall_limit_secs": "3600", "jobfeatures/shutdowntime_job": "4600", "jobfeatures/hs06_job": "20.00",
		"jobfeatures/hepscore_job": "25.12", "jobfeatures/max_rss_bytes": "0", "jobfeatures/max_swap_bytes": "1048576",
		"jobfeatures/scratch_limit_bytes": "2147483648"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, f := range features.Files(a.requests().featured(record{Shape: farm.Shape{CPUs: 1}}, time.Time{}, now)) {
		if strings.HasSuffix(f.Path, "shutdowntime") || strings.HasSuffix(f.Path, "wall_limit_secs") {
			t.Errorf("%s, and nobody knows the end", f.Path)
		}
	}
	env := features.Variables([]string{"A=b", "JOBFEATURES=/host"})
	if d := cmp.Diff([]string{"A=b", "MACHINEFEATURES=/etc/grange/machinefeatures",
		"JOBFEATURES=/etc/grange/jobfeatures"}, env); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
