package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/internal/batch/slurm/worker"
)

// figures are what one run tells, in seconds.
type figures struct {
	Jobs            int     `json:"jobs"`
	Nodes           int     `json:"nodes"`
	VMs             int     `json:"vms"`             // made for these jobs: one each
	Queue           float64 `json:"queue_s"`         // from the first sbatch to the last job's end
	FirstRun        float64 `json:"first_run_s"`     // from sbatch to running on a node that was off
	Boot            float64 `json:"boot_s"`          // of that node's VM: from Slurm's order to the start of slurmd
	CrashRun        float64 `json:"crash_run_s"`     // from the kill of a VM to its job running in a new one
	CrashBoot       float64 `json:"crash_boot_s"`    // of the new VM
	CrashExtra      float64 `json:"crash_extra_s"`   // the difference
	ElsewhereRun    float64 `json:"elsewhere_run_s"` // from sbatch to running, where the first node can have no VM
	WarmRun         float64 `json:"warm_run_s"`      // from sbatch to running on a warm worker
	DynamicNode     float64 `json:"dynamic_node_s"`  // from `grange worker start` to idle in Slurm
	DynamicRun      float64 `json:"dynamic_run_s"`   // from sbatch to running there
	DynamicCrashRun float64 `json:"dynamic_crash_s"` // from the kill to running on another dynamic node that is up
	// nodes down or drained, VMs, taps, addresses, processes at the end
	Left int `json:"left"`
}

// timeout is for each thing that is awaited. On a machine with much to do a boot takes many times as long as alone.
const timeout = 4 * time.Minute

// cases run in this order; each leaves the cluster as it found it.
var cases = []struct {
	name string
	run  func(context.Context, *elastic, *figures) error
}{
	{"refused", refused}, {"queue", queue}, {"crash", crash}, {"agent", agentDies}, {"elsewhere", elsewhere},
	{"warm", warm}, {"dynamic", dynamic}, {"hollow", hollow},
}

// onRequest are those that -only has to name.
var onRequest = map[string]bool{"hollow": true}

// seen is when workers were first seen in a state.
type seen struct {
	mu sync.Mutex
	at map[string]time.Time // "VM state"
	by map[string]api.Worker
}

// record follows the agent's workers until ctx ends.
func (e *elastic) record(ctx context.Context) *seen {
	s := &seen{at: map[string]time.Time{}, by: map[string]api.Worker{}}
	for _, h := range e.hosts {
		go s.follow(ctx, h)
	}
	return s
}

func (s *seen) follow(ctx context.Context, h *lab.Lab) {
	for ctx.Err() == nil {
		h.Client.FollowWorkers(ctx, func(v api.WorkerEvent) error {
			if v.Worker != nil {
				s.mu.Lock()
				key := v.Worker.VM + " " + v.Worker.State
				if _, known := s.at[key]; !known {
					s.at[key] = time.Now()
				}
				s.by[v.Worker.VM] = *v.Worker
				s.mu.Unlock()
			}
			return nil
		})
		select {
		case <-time.After(20 * time.Millisecond): // the agent may be restarting
		case <-ctx.Done():
		}
	}
}

// boot is how long the VM of a node took that was made after since.
func (s *seen) boot(node string, since time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, w := range s.by {
		up, ok := s.at[name+" "+api.WorkerUp]
		if ok && w.Name == node && w.Created.After(since) {
			return up.Sub(w.Created).Seconds()
		}
	}
	return 0
}

func (s *seen) vms() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.by)
}

// submit hands a script to sbatch, as nobody, and returns the job's ID.
func (e *elastic) submit(ctx context.Context, partition, script string, more ...string) (string, error) {
	argv := []string{"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", "/usr/bin/sbatch",
		"--parsable", "-p", partition, "-D", "/tmp", "-o", "/dev/null", "--requeue"}
	cmd := e.inside(ctx, append(append(argv, more...), "--wrap", script)...)
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("sbatch: %w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// awaitJob waits until a job is in one of some states; another final one is an error.
func (e *elastic) awaitJob(ctx context.Context, id string, want func(worker.Job) bool) (time.Time, error) {
	var at time.Time
	err := e.await(ctx, "job "+id, func() (bool, error) {
		j, err := e.slurm.ShowJob(ctx, id)
		if err != nil {
			return false, nil
		}
		if at = time.Now(); want(j) {
			return true, nil
		}
		switch j.State {
		case "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "BOOT_FAIL", "COMPLETED":
			return false, fmt.Errorf("job %s ended as %s", id, j.State)
		}
		return false, nil
	})
	return at, err
}

func running(j worker.Job) bool   { return j.State == "RUNNING" }
func completed(j worker.Job) bool { return j.State == "COMPLETED" }

// nodeOf is where a job is.
func (e *elastic) nodeOf(ctx context.Context, job string) (string, error) {
	out, err := e.inside(ctx, "/usr/bin/squeue", "-h", "-j", job, "-o", "%N").Output()
	return strings.TrimSpace(string(out)), err
}

// awaitLaunch waits until a node's slurmd says that it has started the job: slurmctld calls it running a little sooner.
func (e *elastic) awaitLaunch(ctx context.Context, job, node string) error {
	return e.await(ctx, "launch of job "+job, func() (bool, error) {
		for _, h := range e.hosts {
			var console strings.Builder
			if h.Client.Console(ctx, node, false, &console) == nil &&
				strings.Contains(console.String(), "Launching batch job "+job+" ") {
				return true, nil
			}
		}
		return false, nil
	})
}

// kill ends a node's QEMU as an accident would.
func (e *elastic) kill(ctx context.Context, node string) (time.Time, error) {
	w, err := e.workers(ctx)
	if err != nil {
		return time.Time{}, err
	}
	for _, h := range e.hosts {
		vm, err := h.Client.VM(ctx, w[node].VM)
		if err != nil {
			continue
		}
		for _, pid := range h.QEMUs() {
			text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			if strings.Contains(string(text), vm.ID) {
				return time.Now(), syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	return time.Time{}, fmt.Errorf("no QEMU of node %q", node)
}

// settle waits until all nodes are off and sound and no VM is left.
func (e *elastic) settle(ctx context.Context) error {
	return e.await(ctx, "nodes off and no VM", func() (bool, error) { return len(e.wrong(ctx)) == 0, nil })
}

// wrong is all that is not as in an idle cluster.
func (e *elastic) wrong(ctx context.Context) []string {
	var wrong []string
	nodes, err := e.slurm.Nodes(ctx, "")
	if err != nil {
		return []string{err.Error()}
	}
	for _, n := range nodes {
		if n.State != "IDLE" || !n.Is("POWERED_DOWN") || n.Is("DRAIN", "POWERING_DOWN", "NOT_RESPONDING") {
			wrong = append(wrong, fmt.Sprintf("node %s is %s+%s", n.Name, n.State, strings.Join(n.Flags, "+")))
		}
	}
	workers, err := e.workers(ctx)
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	for name := range workers {
		wrong = append(wrong, "worker "+name)
	}
	for n := range hostCount {
		links, err := exec.CommandContext(ctx, "ip", "-n", e.hostNS(n), "-br", "link").Output()
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		for line := range strings.Lines(string(links)) {
			if name, _, _ := strings.Cut(strings.Fields(line)[0], "@"); name != "lo" && name != "br0" && name != "up0" {
				wrong = append(wrong, "link "+name)
			}
		}
	}
	return wrong
}

// refused: no key for images that nobody vouched for, and none for nobody.
func refused(ctx context.Context, e *elastic, _ *figures) error {
	if err := e.build(ctx, "micro", "micro"); err != nil {
		return err
	}
	code := func(err error) string {
		p := new(api.Problem)
		if errors.As(err, &p) {
			return p.Type
		}
		return fmt.Sprint(err)
	}
	_, err := e.hosts[0].Client.StartWorker(ctx, api.WorkerRequest{Name: "vwn1", Image: "micro"})
	if code(err) != "grange:not-site-image" {
		return fmt.Errorf("a worker of an image that is not the site's: %s", code(err))
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--",
		e.hosts[0].Binary, "--socket", e.hosts[0].Socket, "worker", "start", "vwn1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "[not-yours]") {
		return fmt.Errorf("nobody asked for a worker: %v: %s", err, out)
	}
	cmd = e.hosts[0].Exec(ctx, "--network", "bridge:br0", "--", "true")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "[workers-only]") {
		return fmt.Errorf("a job asked for the bridge: %v: %s", err, out)
	}
	return e.settle(ctx)
}

// queue: 8 jobs of one second over 4 nodes, each in a VM that no job was in before.
func queue(ctx context.Context, e *elastic, f *figures) error {
	f.Jobs, f.Nodes = 8, nodeCount
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := e.record(ctx)
	began := time.Now()
	var jobs []string
	for range f.Jobs {
		id, err := e.submit(ctx, "vm", "test ! -e /tmp/used && touch /tmp/used && sleep 1")
		if err != nil {
			return err
		}
		jobs = append(jobs, id)
	}
	at, err := e.awaitJob(ctx, jobs[0], func(j worker.Job) bool { return running(j) || completed(j) })
	if err != nil {
		return err
	}
	f.FirstRun = at.Sub(began).Seconds()
	f.Boot = s.boot("vwn1", began)
	for _, id := range jobs {
		if _, err := e.awaitJob(ctx, id, completed); err != nil {
			return err
		}
	}
	f.Queue = time.Since(began).Seconds()
	if f.VMs = s.vms(); f.VMs != f.Jobs {
		return fmt.Errorf("%d VMs for %d jobs", f.VMs, f.Jobs)
	}
	return e.settle(ctx)
}

// crash: a VM is killed under its job, which runs again in another one, to its end.
func crash(ctx context.Context, e *elastic, f *figures) error {
	const beyond = 5 // seconds that it may take, without the boot
	for tries := 3; ; tries-- {
		if err := crashOnce(ctx, e, f); err != nil {
			return err
		}
		switch {
		case f.CrashExtra <= beyond:
			return nil
		case tries == 1:
			return fmt.Errorf("running again %.1f s beyond the boot; %d are allowed", f.CrashExtra, beyond)
		}
		progress("%.1f s beyond the boot: once more, for this machine may have had something else to do", f.CrashExtra)
	}
}

func crashOnce(ctx context.Context, e *elastic, f *figures) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := e.record(ctx)
	id, err := e.submit(ctx, "vm", "sleep 12")
	if err != nil {
		return err
	}
	if _, err := e.awaitJob(ctx, id, running); err != nil {
		return err
	}
	node, err := e.nodeOf(ctx, id)
	if err != nil {
		return err
	}
	if err := e.awaitLaunch(ctx, id, node); err != nil {
		return err
	}
	killed, err := e.kill(ctx, node)
	if err != nil {
		return err
	}
	at, err := e.awaitJob(ctx, id, func(j worker.Job) bool { return running(j) && j.Restarts == 1 })
	if err != nil {
		return err
	}
	if node, err = e.nodeOf(ctx, id); err != nil {
		return err
	}
	if err := e.await(ctx, "a new VM to be seen",
		func() (bool, error) { return s.boot(node, killed) > 0, nil }); err != nil {
		return err
	}
	f.CrashRun, f.CrashBoot = at.Sub(killed).Seconds(), s.boot(node, killed)
	f.CrashExtra = f.CrashRun - f.CrashBoot
	if _, err := e.awaitJob(ctx, id, completed); err != nil {
		return err
	}
	return e.settle(ctx)
}

// agentDies: the agent is killed and started again under a worker, whose job does not notice.
func agentDies(ctx context.Context, e *elastic, _ *figures) error {
	id, err := e.submit(ctx, "vm", "sleep 15")
	if err != nil {
		return err
	}
	if _, err := e.awaitJob(ctx, id, running); err != nil {
		return err
	}
	before, err := e.workers(ctx)
	if err != nil {
		return err
	}
	for _, h := range e.hosts {
		h.KillAgent()
		if err := h.StartAgent(ctx); err != nil {
			return err
		}
	}
	after, err := e.workers(ctx)
	if err != nil {
		return err
	}
	for name, w := range before {
		if a := after[name]; a.VM != w.VM || a.Address != w.Address || a.MAC != w.MAC {
			return fmt.Errorf("worker %s before the restart %+v, behind it %+v", name, w, a)
		}
	}
	if _, err := e.awaitJob(ctx, id, func(j worker.Job) bool {
		return completed(j) &&
			j.Restarts == 0
	}); err != nil {
		return err
	}
	return e.settle(ctx)
}

// elsewhere: the host of the node that a job has to take first does not answer; the job runs on another node. The other
// nodes are excluded until then: which one Slurm takes by itself depends on what it still does behind a VM that was
// killed before.
func elsewhere(ctx context.Context, e *elastic, f *figures) error {
	sound, err := os.ReadFile(e.path("worker.toml"))
	if err != nil {
		return err
	}
	broken := strings.Replace(string(sound), "[[host]]",
		"[[host]]\nnodes = \"vwn1\"\nsocket = \"/nonexistent/agent.sock\"\n[[host]]", 1)
	if err := os.WriteFile(e.path("worker.toml"), []byte(broken), 0o644); err != nil {
		return err
	}
	defer os.WriteFile(e.path("worker.toml"), sound, 0o644)
	began := time.Now()
	id, err := e.submit(ctx, "vm", "sleep 1", "--exclude=vwn[2-4]")
	if err != nil {
		return err
	}
	if _, err := e.awaitJob(ctx, id, func(j worker.Job) bool { return j.Restarts > 0 }); err != nil {
		return err
	}
	// Slurm refuses this while the job is on its way to vwn1 once more.
	if err := e.await(ctx, "job "+id+" to be free to go elsewhere", func() (bool, error) {
		return e.inside(ctx, "/usr/bin/scontrol", "update", "JobId="+id, "ExcNodeList=").Run() == nil, nil
	}); err != nil {
		return err
	}
	at, err := e.awaitJob(ctx, id, func(j worker.Job) bool { return running(j) || completed(j) })
	if err != nil {
		return err
	}
	f.ElsewhereRun = at.Sub(began).Seconds()
	if _, err := e.awaitJob(ctx, id, completed); err != nil {
		return err
	}
	return e.settle(ctx)
}

// warm: one worker is kept booted; a job that comes runs there at once.
func warm(ctx context.Context, e *elastic, f *figures) error {
	e.stop("watch")
	if err := e.workerConfig(1); err != nil {
		return err
	}
	if err := e.watch(); err != nil {
		return err
	}
	if err := e.await(ctx, "a warm node", func() (bool, error) {
		nodes, err := e.slurm.Nodes(ctx, "")
		for _, n := range nodes {
			if err == nil && n.State == "IDLE" && n.Registered() {
				return true, nil
			}
		}
		return false, nil
	}); err != nil {
		return err
	}
	began := time.Now()
	id, err := e.submit(ctx, "vm", "sleep 1")
	if err != nil {
		return err
	}
	at, err := e.awaitJob(ctx, id, func(j worker.Job) bool { return running(j) || completed(j) })
	if err != nil {
		return err
	}
	f.WarmRun = at.Sub(began).Seconds()
	if _, err := e.awaitJob(ctx, id, completed); err != nil {
		return err
	}
	e.stop("watch")
	if err := e.workerConfig(0); err != nil {
		return err
	}
	if err := e.watch(); err != nil {
		return err
	}
	// What was warmed up behind the job is powered down as an administrator would.
	return e.await(ctx, "nodes off and no VM", func() (bool, error) {
		nodes, err := e.slurm.Nodes(ctx, "")
		for _, n := range nodes {
			if err == nil && n.State == "IDLE" && n.Registered() && !n.Is("DRAIN") {
				e.slurm.SetNode(ctx, n.Name, "POWER_DOWN", "not wanted any more")
			}
		}
		return len(e.wrong(ctx)) == 0, nil
	})
}

// dynamic: nodes that slurm.conf does not know come, take a job, are lost under one, and are forgotten.
func dynamic(ctx context.Context, e *elastic, f *figures) error {
	start := func(name string) error {
		out, err := e.hosts[0].Grange(ctx, "worker", "start", name, "--dynamic", "--feature", "dyn", "--cpus", "1",
			"--memory", nodeMemory).CombinedOutput()
		if err != nil {
			return fmt.Errorf("worker start: %w: %s", err, out)
		}
		return e.await(ctx, "node "+name, func() (bool, error) {
			nodes, err := e.slurm.Nodes(ctx, name)
			return err == nil && len(nodes) == 1 && nodes[0].Registered() && nodes[0].State == "IDLE", nil
		})
	}
	began := time.Now()
	if err := start("dyn1"); err != nil {
		return err
	}
	f.DynamicNode = time.Since(began).Seconds()
	began = time.Now()
	id, err := e.submit(ctx, "dyn", "sleep 1800")
	if err != nil {
		return err
	}
	at, err := e.awaitJob(ctx, id, running)
	if err != nil {
		return err
	}
	f.DynamicRun = at.Sub(began).Seconds()
	if err := start("dyn2"); err != nil {
		return err
	}
	if err := e.awaitLaunch(ctx, id, "dyn1"); err != nil {
		return err
	}
	killed, err := e.kill(ctx, "dyn1")
	if err != nil {
		return err
	}
	if at, err = e.awaitJob(ctx, id, func(j worker.Job) bool {
		return running(j) &&
			j.Restarts == 1
	}); err != nil {
		return err
	}
	f.DynamicCrashRun = at.Sub(killed).Seconds()
	if out, err := e.inside(ctx, "/usr/bin/scancel", id).CombinedOutput(); err != nil {
		return fmt.Errorf("scancel: %w: %s", err, out)
	}
	if err := start("dyn3"); err != nil {
		return err
	}
	if out, err := e.inside(ctx, e.hosts[0].Binary, "worker", "--config", e.path("worker.toml"), "stop",
		"dyn3").CombinedOutput(); err != nil {
		return fmt.Errorf("worker stop: %w: %s", err, out)
	}
	return e.settle(ctx) // no dynamic node is left: one would not be powered down
}

func print(f figures) error {
	for _, v := range []*float64{&f.Queue, &f.FirstRun, &f.Boot, &f.CrashRun, &f.CrashBoot, &f.CrashExtra,
		&f.ElsewhereRun, &f.WarmRun, &f.DynamicNode, &f.DynamicRun, &f.DynamicCrashRun} {
		*v = float64(int(*v*100+0.5)) / 100
	}
	return lastline.Print(f, 0)
}
