package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
)

// batchJob stands for a job of Slurm: control groups of its names, which root alone can make.
type batchJob struct{ groups []string }

func newBatchJob(t *testing.T, number int) batchJob {
	t.Helper()
	var b batchJob
	for _, controller := range []string{"memory", "freezer", "cpuacct"} {
		root := filepath.Join("/sys/fs/cgroup", controller)
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		node := filepath.Join(root, "slurm_"+filepath.Base(host.Dir))
		b.groups = append(b.groups, filepath.Join(node, "uid_0", fmt.Sprintf("job_%d", number)))
		t.Cleanup(func() { removeGroups(t, node) })
	}
	if len(b.groups) == 0 { // a host with unified control groups
		node := "/sys/fs/cgroup/" + filepath.Base(host.Dir) + "_slurmstepd.scope"
		b.groups = []string{filepath.Join(node, fmt.Sprintf("job_%d", number))}
		t.Cleanup(func() { removeGroups(t, node) })
	}
	return b
}

// removeGroups removes a tree of control groups, once the kernel has let the last process go.
func removeGroups(t *testing.T, top string) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var dirs []string
		filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append([]string{path}, dirs...)
			}
			return nil
		})
		var last error
		for _, d := range dirs {
			if err := os.Remove(d); err != nil {
				last = err
			}
		}
		if last == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("control groups stay: %v", last)
			return
		}
	}
}

// task is a `grange exec` in a step of the job.
func (b batchJob) task(t *testing.T, step string, args ...string) *exec.Cmd {
	t.Helper()
	return b.within(t, step, append([]string{host.Binary, "exec"}, args...)...)
}

// within is a command in a step of the job.
func (b batchJob) within(t *testing.T, step string, argv ...string) *exec.Cmd {
	t.Helper()
	script := ""
	for _, g := range b.groups {
		dir := filepath.Join(g, "step_"+step)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		script += "echo $$ > " + dir + "/cgroup.procs && "
	}
	cmd := host.Exec(ctx(t))
	cmd.Args, cmd.Path = append([]string{"sh", "-c", script + `exec "$@"`, "sh"}, argv...), "/bin/sh"
	return cmd
}

// oneVM runs commands in one VM, as tasks of a job.
type oneVM struct {
	job   batchJob
	steps atomic.Int64
}

// inOneVM has commands run in one VM, as tasks of a job that lasts until the test has ended: a VM of its own for each
// takes most of a test's time, and shows nothing more of streams, signals and status.
func inOneVM(t *testing.T, number int) *oneVM {
	t.Helper()
	b := newBatchJob(t, number)
	hold := b.task(t, "batch", "--", "sh", "-c", "echo up; cat")
	input, err := hold.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	launch(t, hold).expect(t, "up")
	t.Cleanup(func() { input.Close() })
	return &oneVM{job: b}
}

// exec is a `grange exec` in the VM.
func (v *oneVM) exec(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return v.job.task(t, fmt.Sprint(v.steps.Add(1)), args...)
}

// within is a command on the host that may become a `grange exec` in the VM.
func (v *oneVM) within(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	return v.job.within(t, fmt.Sprint(v.steps.Add(1)), argv...)
}

const bootID = "cat /proc/sys/kernel/random/boot_id"

// TestTasksShareOneVM: tasks of one batch job run in one VM, each with its own streams, environment, status and view of
// the same directory; one that ends, or whose caller is killed, takes nothing of the others with it.
func TestTasksShareOneVM(t *testing.T) {
	b, dir := newBatchJob(t, 71), t.TempDir()
	bind := []string{"--bind", dir + ":/shared", "--workdir", "/shared"}
	args := func(env, script string) []string {
		return append(append([]string{}, bind...), "--env", "WHO="+env, "--", "sh", "-c", script)
	}
	first := b.task(t, "batch", args("first",
		"echo up; "+bootID+" > first; sleep 987654 & echo $! > first.pid; echo ready; cat; exit 3")...)
	input, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	j := launch(t, first)
	j.expect(t, "ready")

	second := b.task(t, "0", args("second", "echo $WHO; "+bootID+"; pwd; cat first; sleep 456 & exit 4")...)
	r := run(t, second, "")
	id, _ := os.ReadFile(filepath.Join(dir, "first"))
	r.want(t, 4, "second\n"+string(id)+"/shared\n"+string(id))

	vms, err := host.Client.VMs(ctx(t))
	if err != nil || len(vms) != 1 || vms[0].Batch != "slurm/71" || vms[0].Tasks != 1 {
		t.Errorf("one VM of slurm/71 with one task is wanted: %+v, %v", vms, err)
	}
	third := launch(t, b.task(t, "1",
		args("third", `echo up; trap 'echo term; exit 5' TERM; while :; do sleep 0.1; done`)...))
	third.expect(t, "up")
	await(t, host, "two tasks", func(vms []api.VM) bool { return len(vms) == 1 && vms[0].Tasks == 2 })

	// The caller that the VM was made for dies: what it started goes, the others stay.
	j.Process.Kill()
	<-j.done
	input.Close()
	await(t, host, "one task", func(vms []api.VM) bool { return len(vms) == 1 && vms[0].Tasks == 1 })
	r = run(t, b.task(t, "2", args("fourth",
		bootID+`; [ -d /proc/$(cat first.pid) ] && tr "\0" " " < /proc/$(cat first.pid)/cmdline; echo "hello from $WHO" > fourth`)...), "")
	r.want(t, 0, string(id))
	if text, _ := os.ReadFile(filepath.Join(dir, "fourth")); string(text) != "hello from fourth\n" {
		t.Errorf("the bound directory has %q", text)
	}

	// Signals reach the task that they are meant for.
	third.Process.Signal(syscall.SIGTERM)
	if r := third.finish(t); r.code != 5 || !strings.Contains(r.out, "term") {
		t.Errorf("status %d, %q", r.code, r.out)
	}
	if left := host.Leaks(ctx(t)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestTasksOutliveTheAgent kills the agent under three tasks, and one of their callers while no agent is there.
func TestTasksOutliveTheAgent(t *testing.T) {
	b, dir := newBatchJob(t, 72), t.TempDir()
	args := func(script string) []string { return []string{"--bind", dir + ":/shared", "--", "sh", "-c", script} }
	var tasks []*job
	var inputs []interface{ Write([]byte) (int, error) }
	for i := range 3 {
		cmd := b.task(t, fmt.Sprint(i), args(fmt.Sprintf(bootID+" > /shared/%d; "+counting, i))...)
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { input.Close() })
		j := launch(t, cmd)
		j.expect(t, "up")
		tasks, inputs = append(tasks, j), append(inputs, input)
	}
	host.KillAgent()
	tasks[0].Process.Kill()
	<-tasks[0].done
	if err := host.StartAgent(ctx(t)); err != nil {
		t.Fatal(err)
	}
	await(t, host, "the two that live", func(vms []api.VM) bool {
		return len(vms) == 1 && vms[0].Tasks == 2 &&
			vms[0].State == "running"
	})
	run(t, b.task(t, "9", args("cmp /shared/0 /shared/1 && cmp /shared/1 /proc/sys/kernel/random/boot_id && echo "+
		"same")...), "").want(t, 0, "same\n")
	for i, j := range tasks[1:] {
		fmt.Fprintln(inputs[i+1], "go")
		j.finish(t).want(t, 3, countingOutput())
	}
	if left := host.Leaks(ctx(t)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestMoreTasksThanPlaces starts more tasks than a VM has job ports: some wait and say why, and all run, in one VM.
func TestMoreTasksThanPlaces(t *testing.T) {
	b, dir := newBatchJob(t, 73), t.TempDir()
	const n = 20
	var tasks []*job
	for i := range n {
		cmd := b.task(t, fmt.Sprint(i), "--bind", dir+":/d", "--", "sh", "-c",
			bootID+"; until [ -e /d/go ]; do sleep 0.1; done; exit "+fmt.Sprint(i))
		tasks = append(tasks, launch(t, cmd))
	}
	await(t, host, "all of them", func(vms []api.VM) bool { return len(vms) == 1 && vms[0].Tasks == n })
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	id, waited := "", 0
	for i, j := range tasks {
		r := j.finish(t)
		if id == "" {
			id = r.out
		}
		r.want(t, i, id)
		if strings.Contains(r.errors, "places in VM") {
			waited++
		}
	}
	if waited == 0 {
		t.Error("nobody was told that all places are taken")
	}
}

// TestOtherImageForATask is refused: it would run in another one than it asked for.
func TestOtherImageForATask(t *testing.T) {
	b := newBatchJob(t, 74)
	j := launch(t, b.task(t, "batch", "--", "sh", "-c", "echo up; sleep 1000"))
	j.expect(t, "up")
	if r := run(t, b.task(t, "0", "--image", "other", "--", "echo", "no"), ""); r.code != 199 || r.out != "" ||
		!strings.Contains(r.errors, "slurm/74") {
		t.Errorf("status %d, %q, %q", r.code, r.out, r.errors)
	}
	run(t, b.task(t, "1", "--image", "micro", "--", "echo", "yes"), "").want(t, 0, "yes\n")
}

// TestTasksSeeWhatOthersDid: when a task has ended, the others see at once what it did to a directory that both have,
// as on one host.
func TestTasksSeeWhatOthersDid(t *testing.T) {
	b, dir := newBatchJob(t, 75), t.TempDir()
	cmd := b.task(t, "batch", "--bind", dir+":/shared", "--workdir", "/shared", "--", "sh", "-c",
		`while read c; do eval "$c"; done`)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	j := launch(t, cmd)
	fmt.Fprintln(input, "echo up")
	j.expect(t, "up")
	for i := range 5 {
		fmt.Fprintf(input, "echo a > f%d; exec 3>> f%d; ls -l > /dev/null; stat -c %%s f%d > /dev/null; echo wrote "+
			"%d\n", i, i, i, i)
		j.expect(t, fmt.Sprintf("wrote %d", i))
		run(t, b.task(t, fmt.Sprint(i), "--bind", dir+":/shared", "--", "sh", "-c",
			fmt.Sprintf("echo b >> /shared/f%d", i)), "").want(t, 0, "")
		fmt.Fprintf(input, "echo $(stat -c %%s f%d) $(cat f%d); echo read %d\n", i, i, i)
		j.expect(t, fmt.Sprintf("read %d", i))
	}
	input.Close()
	if r := j.finish(t); strings.Count(r.out, "4 a b\n") != 5 {
		t.Errorf("the script saw\n%s", r.out)
	}
}
