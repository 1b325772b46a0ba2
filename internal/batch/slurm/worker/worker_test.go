package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// cluster plays slurmctld: what it is told it writes down, and it requeues as slurmctld does.
type cluster struct {
	mu    sync.Mutex
	nodes map[string]Node
	jobs  map[string]*Job
	on    map[string]string // job → node
	told  []string
}

func (c *cluster) Nodes(_ context.Context, list string) ([]Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, err := Expand(list)
	if err != nil {
		return nil, err
	}
	var found []Node
	for name, n := range c.nodes {
		if list == "" || slices.Contains(names, name) {
			found = append(found, n)
		}
	}
	if list != "" && len(found) == 0 {
		return nil, errors.New("no such node")
	}
	slices.SortFunc(found, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

func (c *cluster) SetNode(_ context.Context, list, state, reason string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reason == "" {
		return errors.New("no reason")
	}
	c.told = append(c.told, list+" "+state)
	for job, node := range c.on {
		if node == list && (state == "DOWN" || state == "POWER_DOWN_FORCE") {
			delete(c.on, job)
			c.jobs[job].State = "PENDING"
			c.jobs[job].Restarts++
		}
	}
	n := c.nodes[list]
	n.State, n.Reason = "IDLE", reason
	if state == "DOWN" {
		n.State = "DOWN"
	}
	if state == "POWER_DOWN_FORCE" {
		n.Flags = []string{"CLOUD", "POWERING_DOWN"}
	}
	c.nodes[list] = n
	return nil
}

func (c *cluster) DeleteNode(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, name+" deleted")
	delete(c.nodes, name)
	return nil
}

func (c *cluster) ShowJob(_ context.Context, id string) (Job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j := c.jobs[id]; j != nil {
		return *j, nil
	}
	return Job{}, errors.New("no such job")
}

func (c *cluster) StartNow(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, "job "+id+" now")
	return nil
}

func (c *cluster) JobsOn(_ context.Context, node string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var jobs []string
	for j, n := range c.on {
		if n == node {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// host plays an agent.
type host struct {
	mu      sync.Mutex
	asked   []api.WorkerRequest
	stopped []string
	workers []api.Worker
	refuse  map[string]bool
	off     []api.BackOff
	came    []string
	away    bool
	events  chan api.WorkerEvent
}

func (h *host) StartWorker(_ context.Context, r api.WorkerRequest) (api.Worker, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, r)
	for _, b := range h.off {
		if b.Trial || time.Now().Before(b.Until) {
			return api.Worker{}, &api.Problem{Type: "grange:backed-off", Title: "unavailable",
				Detail: b.Kind + " " + b.Name +
					" backs off until 10:31:00 UTC: its VMs failed to start; the last one: the guest's console says " +
					"nothing"}
		}
	}
	if h.refuse[r.Name] {
		return api.Worker{}, &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Message: "no room for 'it'\nsecond line"}
	}
	w := api.Worker{Name: r.Name, Warm: r.Warm, Created: time.Now()}
	h.workers = append(h.workers, w)
	return w, nil
}

func (h *host) StopWorker(_ context.Context, name string) (api.Worker, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = append(h.stopped, name)
	h.workers = slices.DeleteFunc(h.workers, func(w api.Worker) bool { return w.Name == name })
	return api.Worker{}, nil
}

func (h *host) FailWorker(ctx context.Context, name string) (api.Worker, error) {
	return h.StopWorker(ctx, name+" late")
}

func (h *host) WorkerCame(_ context.Context, name string) (api.Worker, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.came = append(h.came, name)
	for i := range h.workers {
		h.workers[i].Unseen = h.workers[i].Unseen && h.workers[i].Name != name
	}
	return api.Worker{}, nil
}

func (h *host) Host(context.Context) (api.Host, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return api.Host{BackOffs: h.off}, nil
}

func (h *host) Workers(context.Context) ([]api.Worker, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away {
		return nil, errors.New("away")
	}
	return slices.Clone(h.workers), nil
}

func (h *host) FollowWorkers(ctx context.Context, each func(api.WorkerEvent) error) error {
	for {
		select {
		case e := <-h.events:
			if err := each(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func testPool(c *cluster, h *host) *Pool {
	h.events = make(chan api.WorkerEvent)
	return &Pool{Slurm: c, Hosts: []Host{{Nodes: []string{"vwn1", "vwn2", "vwn3", "dyn*"}, Agent: h}},
		BootTimeout: time.Minute, Restarts: 2, Log: slog.New(slog.DiscardHandler)}
}

func cloud(name, state string, flags ...string) Node {
	return Node{Name: name, State: state, Flags: append([]string{"CLOUD"}, flags...)}
}

// TestResumePartly: a node without a VM is given back and its job sent on; the others are made all the same.
func TestResumePartly(t *testing.T) {
	c := &cluster{nodes: map[string]Node{"vwn2": cloud("vwn2", "ALLOCATED", "POWERING_UP")},
		jobs: map[string]*Job{"5": {State: "CONFIGURING"}}, on: map[string]string{"5": "vwn2"}}
	h := &host{refuse: map[string]bool{"vwn2": true}}
	p := testPool(c, h)
	p.Images = []Image{{Feature: "el9", Image: "worker-el9", Shape: "big"}, {Nodes: []string{"vwn3"}, Image: "other"}}
	file := filepath.Join(t.TempDir(), "resume.json")
	const text = `{"jobs":[{"job_id":4,"features":"el9&big","nodes_resume":"vwn1"},{"job_id":5,"features":"x","nodes":"vwn2"}],"all_nodes":"vwn[1-3]"}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	err := p.Resume(t.Context(), "vwn[1-3],nobody1", file)
	if e := new(farm.Error); !errors.As(err, &e) {
		t.Errorf("Resume says nothing of what went wrong: %v", err)
	}
	images := map[string]string{}
	for _, r := range h.asked {
		images[r.Name] = r.Image + " " + r.Shape
	}
	if d := cmp.Diff(map[string]string{"vwn1": "worker-el9 big", "vwn2": " ", "vwn3": "other "}, images); d != "" {
		t.Error(d)
	}
	for _, want := range []string{"vwn2 POWER_DOWN_FORCE", "job 5 now", "nobody1 POWER_DOWN_FORCE"} {
		if !slices.Contains(c.told, want) {
			t.Errorf("%q was not told: %q", want, c.told)
		}
	}
	if slices.Contains(c.told, "vwn1 POWER_DOWN_FORCE") {
		t.Errorf("a sound node was given back: %q", c.told)
	}
}

// TestLostVM: DOWN first, then POWER_DOWN_FORCE, then its job at once; and nothing where the end was ordered or Slurm
// has the node off.
func TestLostVM(t *testing.T) {
	recipe := []string{"vwn1 DOWN", "vwn1 POWER_DOWN_FORCE", "job 7 now"}
	for name, test := range map[string]struct {
		node     Node
		ended    api.Worker
		restarts int
		want     []string
	}{
		"under a job": {cloud("vwn1", "ALLOCATED"), api.Worker{Name: "vwn1"}, 0, recipe},
		"while it boots": {cloud("vwn1", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING"),
			api.Worker{Name: "vwn1"}, 0, recipe},
		"too often":        {cloud("vwn1", "ALLOCATED"), api.Worker{Name: "vwn1"}, 2, recipe[:2]},
		"ordered":          {cloud("vwn1", "ALLOCATED"), api.Worker{Name: "vwn1", Ordered: true}, 0, nil},
		"Slurm has it off": {cloud("vwn1", "IDLE", "POWERING_DOWN"), api.Worker{Name: "vwn1"}, 0, nil},
		"a dynamic node": {Node{Name: "dyn1", State: "ALLOCATED", Flags: []string{"DYNAMIC_NORM"}},
			api.Worker{Name: "dyn1", Conf: "CPUs=1"}, 0, []string{"dyn1 DOWN", "job 7 now", "dyn1 deleted"}},
		"dynamic, by Slurm": {Node{Name: "dyn1", State: "IDLE", Flags: []string{"POWERING_DOWN"}},
			api.Worker{Name: "dyn1", Conf: "CPUs=1", Ordered: true}, 0, []string{"dyn1 DOWN", "dyn1 deleted"}},
		"unknown to Slurm":   {cloud("vwn2", "IDLE", "POWERED_DOWN"), api.Worker{Name: "vwn9"}, 0, nil},
		"another one's node": {cloud("vwn2", "IDLE", "POWERED_DOWN"), api.Worker{Name: "vwn2"}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{nodes: map[string]Node{test.node.Name: test.node},
				jobs: map[string]*Job{"7": {State: "RUNNING", Restarts: test.restarts}}, on: map[string]string{}}
			if test.node.State == "ALLOCATED" {
				c.on["7"] = test.node.Name
			}
			w := &watch{Pool: testPool(c, &host{}), twice: map[string]bool{}, busy: map[string]bool{},
				look: make(chan struct{}, 1)}
			test.ended.State, test.ended.Cause = api.WorkerEnded, "killed"
			// it looks after the job for a minute
			synctest.Test(t, func(t *testing.T) { w.ended(t.Context(), test.ended) })
			if d := cmp.Diff(test.want, c.told); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestNurse: slurmctld may take a job off its new node when a message to the lost one times out.
func TestNurse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{jobs: map[string]*Job{"7": {State: "RUNNING", Restarts: 1}}}
		w := &watch{Pool: testPool(c, &host{})}
		time.AfterFunc(20500*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			*c.jobs["7"] = Job{State: "PENDING", Reason: "BeginTime", Restarts: 2}
		})
		time.AfterFunc(21500*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.jobs["7"].State, c.jobs["7"].Reason = "CONFIGURING", "None"
		})
		began := time.Now()
		w.nurse(t.Context(), "7")
		if d := cmp.Diff([]string{"job 7 now"}, c.told); d != "" {
			t.Error(d)
		}
		if d := time.Since(began); d < 50*time.Second || d > 70*time.Second {
			t.Errorf("looked after it for %v", d)
		}
	})
}

// TestLook: what two looks find is mended, what one finds is not, and an agent that is away proves nothing.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{nodes: map[string]Node{
			"vwn1": cloud("vwn1", "ALLOCATED"), "vwn2": cloud("vwn2", "IDLE", "POWERED_DOWN"),
			"vwn3": cloud("vwn3", "IDLE"), "metal": {Name: "metal", State: "IDLE"},
		}, jobs: map[string]*Job{"7": {State: "RUNNING"}}, on: map[string]string{"7": "vwn1"}}
		h := &host{away: true, workers: []api.Worker{{Name: "vwn2", Created: time.Now().Add(-time.Hour)},
			{Name: "vwn3", Created: time.Now().Add(-time.Hour)}}}
		p := testPool(c, h)
		w := &watch{Pool: p, twice: map[string]bool{}, busy: map[string]bool{}, look: make(chan struct{}, 1)}
		look := func() { w.reconcile(t.Context()) }
		look()
		look()
		if len(c.told)+len(h.stopped) > 0 {
			t.Fatalf("an agent that is away made us do %q %q", c.told, h.stopped)
		}
		h.away = false
		look()
		if len(c.told)+len(h.stopped) > 0 {
			t.Fatalf("one look made us do %q %q", c.told, h.stopped)
		}
		look()
		if d := cmp.Diff([]string{"vwn1 DOWN", "vwn1 POWER_DOWN_FORCE", "job 7 now"}, c.told); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"vwn2"}, h.stopped); d != "" {
			t.Errorf("the VM whose node is off: %s", d)
		}
	})
}

// TestWatchHears: the watch acts on an agent's word at once.
func TestWatchHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{nodes: map[string]Node{"vwn1": cloud("vwn1", "ALLOCATED")},
			jobs: map[string]*Job{"7": {State: "RUNNING"}}, on: map[string]string{"7": "vwn1"}}
		h := &host{workers: []api.Worker{{Name: "vwn1", Created: time.Now()}}}
		p := testPool(c, h)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Watch(ctx) }()
		synctest.Wait()
		began := time.Now()
		h.events <- api.WorkerEvent{Worker: &api.Worker{Name: "vwn1", State: api.WorkerEnded}}
		synctest.Wait()
		if d := cmp.Diff([]string{"vwn1 DOWN", "vwn1 POWER_DOWN_FORCE", "job 7 now"}, c.told); d != "" ||
			time.Since(began) > 0 {
			t.Errorf("after %v: %s", time.Since(began), d)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestWarm: as many free nodes as wanted are made, and no more.
func TestWarm(t *testing.T) {
	c := &cluster{nodes: map[string]Node{"vwn1": cloud("vwn1", "IDLE", "POWERED_DOWN"),
		"vwn2": cloud("vwn2", "IDLE", "POWERED_DOWN"), "vwn3": cloud("vwn3", "IDLE", "POWERING_DOWN")}}
	h := &host{}
	p := testPool(c, h)
	p.Warm = 1
	w := &watch{Pool: p, twice: map[string]bool{}, busy: map[string]bool{}, look: make(chan struct{}, 1)}
	for range 3 {
		if err := w.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.asked) != 1 || h.asked[0].Name != "vwn1" || !h.asked[0].Warm {
		t.Errorf("asked for %+v", h.asked)
	}
	c.nodes["vwn1"] = cloud("vwn1", "ALLOCATED")
	if err := w.reconcile(t.Context()); err != nil || len(h.asked) != 2 || h.asked[1].Name != "vwn2" {
		t.Errorf("behind a job: %+v, %v", h.asked, err)
	}
}

// TestProlog waits for a node, and not for a job that has lost it.
func TestProlog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{nodes: map[string]Node{"vwn1": cloud("vwn1", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING")},
			jobs: map[string]*Job{"7": {State: "CONFIGURING"}}}
		p := testPool(c, &host{})
		run := func(change func()) time.Duration {
			began := time.Now()
			time.AfterFunc(2050*time.Millisecond, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				change()
			})
			if err := p.Prolog(t.Context(), "7", "vwn1", 30*time.Second); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		if d := run(func() { c.nodes["vwn1"] = cloud("vwn1", "ALLOCATED") }); d != 2100*time.Millisecond {
			t.Errorf("the node came: waited %v", d)
		}
		c.nodes["vwn1"] = cloud("vwn1", "ALLOCATED", "POWERED_DOWN") // as before it is powered up
		if d := run(func() {
			c.nodes["vwn1"], c.jobs["7"].State = cloud("vwn1", "IDLE", "POWERING_DOWN"),
				"PENDING"
		}); d != 2100*time.Millisecond {
			t.Errorf("the job lost its node: waited %v", d)
		}
		c.jobs["7"].State = "CONFIGURING"
		if d := run(func() {}); d < 30*time.Second || d > 31*time.Second {
			t.Errorf("nothing came: waited %v", d)
		}
	})
}

// As printed by scontrol 22.05.8 and squeue, shortened.
const recordedNodes = `NodeName=vwn1 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.102.0.20 NodeHostName=vwn1 Version=22.05.8 OS=Linux 6.1.0-56-cloud-amd64 State=fake RealMemory=338 State=ALLOCATED+CLOUD ThreadsPerCore=1 Reason=grange: State=DOWN [root@2026-11-21T07:49:04]
NodeName=vwn2 CoresPerSocket=1 NodeAddr=vwn2 RealMemory=338 State=IDLE+CLOUD+POWERED_DOWN ThreadsPerCore=1 Comment=a [b@c] Reason=grange: held: image worker backs off [x] [slurm@2026-11-21T07:49:04]
NodeName=vwn3 CoresPerSocket=1 State=ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP ThreadsPerCore=1
NodeName=dyn1 Arch=x86_64 State=DOWN*+DYNAMIC_NORM ThreadsPerCore=1
`

func TestParseNodes(t *testing.T) {
	nodes := parseNodes(strings.Replace(recordedNodes, " State=fake", "", 1))
	var got []string
	for _, n := range nodes {
		got = append(got, strings.Join(append([]string{n.Name, n.State}, n.Flags...), " "))
	}
	want := []string{"vwn1 ALLOCATED CLOUD", "vwn2 IDLE CLOUD POWERED_DOWN",
		"vwn3 ALLOCATED CLOUD NOT_RESPONDING POWERING_UP", "dyn1 DOWN DYNAMIC_NORM NOT_RESPONDING"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if nodes[0].Reason != "grange: State=DOWN" || nodes[1].Reason != "grange: held: image worker backs off [x]" ||
		nodes[2].Reason != "" {
		t.Errorf("reasons %q, %q, %q", nodes[0].Reason, nodes[1].Reason, nodes[2].Reason)
	}
	for i, want := range []bool{true, false, false, false} {
		if nodes[i].Registered() != want {
			t.Errorf("%s registered: %v", nodes[i].Name, !want)
		}
	}
}

func TestParseJob(t *testing.T) {
	j := parseJob("JobId=5 JobName=JobState=FAILED UserId=nobody(65534) Restarts=2 JobState=PENDING Reason=BeginTime " +
		"Partition=vm Features=el9&ib Command=/home/x Restarts=9 JobState=RUNNING")
	if d := cmp.Diff(Job{State: "PENDING", Reason: "BeginTime", Restarts: 2, Features: "el9&ib", Partition: "vm"},
		j); d != "" {
		t.Error(d)
	}
}

func TestFragment(t *testing.T) {
	f := Fragment{Programs: "/p", Nodes: "vwn[1-4]", CPUs: 2, Memory: 2 * farm.GiB, Features: "el9", Partition: "vm",
		BootTimeout: time.Minute, IdleTime: time.Hour, Dynamic: "dyn"}
	for _, line := range []string{"NodeName=vwn[1-4] CPUs=2 RealMemory=1888 Feature=el9 State=CLOUD",
		"ResumeProgram=/p/resume", "EpilogSlurmctld=/p/epilog", "ResumeTimeout=60", "SuspendTime=3600",
		"NodeSet=dyn Feature=dyn", "PartitionName=vm Nodes=vwn[1-4] State=UP OverSubscribe=EXCLUSIVE"} {
		if !slices.Contains(strings.Split(f.String(), "\n"), line) {
			t.Errorf("no line %q in\n%s", line, f)
		}
	}
	dir := t.TempDir()
	if err := WritePrograms(dir, "/opt/gran'ge", "/etc/worker.toml"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "suspend"))
	if err != nil || !strings.Contains(string(text),
		`exec '/opt/gran'\''ge' worker --config '/etc/worker.toml' suspend "$1"`) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestConfig(t *testing.T) {
	c, err := ParseConfig([]byte("warm = 2\n[[host]]\nnodes = \"vwn[1-4],dyn*\"\nsocket = "+
		"\"/run/a\"\n[[image]]\nfeature = \"el9\"\nimage = \"w\"\n"), "worker.toml", "/run/own")
	if err != nil || c.Warm != 2 || c.Scontrol != "/usr/bin/scontrol" || len(c.Hosts) != 1 ||
		c.Images[0].Feature != "el9" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := ParseConfig(nil, "worker.toml", "/run/own"); err != nil || c.Hosts[0].Socket != "/run/own" ||
		c.Hosts[0].Nodes != "*" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []string{"worm = 1", "warm = -1", "wait_timeout = \"2h\"", "boot_timeout = \"0s\"",
		"scontrol = \"scontrol\"", "[[host]]\nnodes = \"a\"\nsocket = \"a\"", "[[image]]\nfeature = \"a\"",
		"warm = ["} {
		if c, err := ParseConfig([]byte(bad), "worker.toml", ""); err == nil {
			t.Errorf("%q is %+v", bad, c)
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
