package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/farm"
)

const nobody = 65534

// stepGroups are control groups as Slurm makes them for one job, in version 1's hierarchies.
type stepGroups struct {
	job  string
	dirs []string // of the job's batch step, by controller as below
}

var controllers = []string{"memory", "freezer", "cpuacct", "cpuset"}

func newStepGroups(t *testing.T, memory farm.Bytes) stepGroups {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err != nil {
		t.Skip("skip batch job: no control groups of version 1")
	}
	put := func(dir, file, text string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	g := stepGroups{job: strconv.Itoa(os.Getpid()*100 + len(t.Name()))}
	for _, c := range controllers {
		dir := filepath.Join("/sys/fs/cgroup", c, "slurm_"+filepath.Base(host.Dir))
		node := dir
		t.Cleanup(func() { removeGroups(t, node) })
		for _, part := range []string{"", fmt.Sprintf("uid_%d", nobody), "job_" + g.job, "step_batch"} {
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
			if c == "cpuset" {
				for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
					all, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuset", file))
					if err != nil {
						t.Fatal(err)
					}
					put(dir, file, string(all))
				}
			}
		}
		if c == "memory" && memory > 0 {
			put(filepath.Dir(dir), "memory.limit_in_bytes", fmt.Sprint(uint64(memory)))
		}
		g.dirs = append(g.dirs, dir)
	}
	return g
}

func (g stepGroups) dir(controller string) string {
	for i, c := range controllers {
		if c == controller {
			return g.dirs[i]
		}
	}
	panic(controller)
}

// exec is `grange exec` as a job of nobody in these groups.
func (g stepGroups) exec(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	enter := ""
	for _, dir := range g.dirs {
		enter += "echo $$ >" + dir + "/cgroup.procs; "
	}
	// The shell itself goes in, and becomes the job.
	words := append([]string{"-ec", enter + `exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`, "sh",
		host.Binary, "exec", "--socket", host.Socket, "--batch", "slurm"}, args...)
	cmd := exec.CommandContext(ctx(t), "/bin/sh", words...)
	cmd.Env, cmd.Dir = append(os.Environ(), "HOME=/"), "/tmp"
	return cmd
}

func (g stepGroups) vm(t *testing.T) api.VM {
	t.Helper()
	v, err := host.Client.VM(t.Context(), "slurm/"+g.job)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// qemu is the process of a VM.
func qemu(t *testing.T, v api.VM) int {
	t.Helper()
	for _, pid := range host.QEMUs() {
		if text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(text), v.ID) {
			return pid
		}
	}
	t.Fatalf("no QEMU runs %s", v.Name)
	return 0
}

func (g stepGroups) number(t *testing.T, controller, file string) uint64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir(controller), file))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// anonymous is what a process has of memory that is no file's.
func anonymous(t *testing.T, pid int) farm.Bytes {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return farm.Bytes(kib) * farm.KiB
		}
	}
	t.Fatalf("no RssAnon: %s", text)
	return 0
}

// charged is the memory of that kind in the job's group of version 1.
func (g stepGroups) charged(t *testing.T) farm.Bytes {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir("memory"), "memory.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var bytes uint64
		if n, _ := fmt.Sscanf(line, "rss %d", &bytes); n == 1 {
			return farm.Bytes(bytes)
		}
	}
	t.Fatalf("no rss: %s", text)
	return 0
}

// eventually waits for something that comes by itself.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// TestBatchJob runs a job in the groups of a batch system: QEMU lives in them, its guest may fill all its memory within
// their limit, and one that wants more is killed in the guest, not by the host.
func TestBatchJob(t *testing.T) {
	const limit = 640 * farm.MiB
	g := newStepGroups(t, limit)
	// tail keeps what it reads until a line ends: it grows until the guest's kernel kills it.
	j := launch(t, g.exec(t, "--", "sh", "-c", "tail /dev/zero; echo killed $?; echo up; exec sleep 1000"))
	j.expect(t, "up")
	v := g.vm(t)
	if want := farm.GuestWithin(limit, v.CPUs, true); v.Memory != uint64(want) || v.CPUs < 1 {
		t.Errorf("the guest has %d bytes and %d CPUs, want %d bytes", v.Memory, v.CPUs, uint64(want))
	}
	pid := qemu(t, v)
	for _, dir := range g.dirs {
		if in, err := allotment.Within(os.DirFS("/"), pid, strings.TrimPrefix(dir, "/sys/fs/cgroup/")); err != nil ||
			!in {
			t.Errorf("QEMU is not in %s: %v", dir, err)
		}
	}
	// Control groups do not move charges: what QEMU took before it came here would be missing, 20 MiB and more. The
	// kernel counts by batches.
	if has, charged := anonymous(t, pid), g.charged(t); charged+4*farm.MiB < has {
		t.Errorf("QEMU has %v, of which the job's group has %v", has, charged)
	} else {
		t.Logf("QEMU has %v, the job's group %v", has, charged)
	}
	used := g.number(t, "memory", "memory.max_usage_in_bytes")
	kernel := g.number(t, "memory", "memory.kmem.max_usage_in_bytes")
	need := int64(used) - int64(v.Memory)
	t.Logf("guest %d MiB, charged at most %d MiB (kernel %d KiB): beside the guest %d MiB of %d MiB", v.Memory>>20,
		used>>20, kernel>>10, need>>20, uint64(farm.Need(farm.Bytes(v.Memory), v.CPUs, true))>>20)
	if used < v.Memory*9/10 || used > uint64(limit) {
		t.Errorf("%d MiB were charged; the guest has %d", used>>20, v.Memory>>20)
	}
	if most := farm.Need(farm.Bytes(v.Memory), v.CPUs, true); need > int64(most) {
		t.Errorf("QEMU needs %d MiB beside its guest, and %v are reckoned with", need>>20, most)
	}
	if n := g.number(t, "memory", "memory.failcnt"); n != 0 {
		t.Errorf("the limit was met %d times", n)
	}
	if cpu := g.number(t, "cpuacct", "cpuacct.usage"); cpu < uint64(100*time.Millisecond) {
		t.Errorf("only %v of CPU time were charged", time.Duration(cpu))
	}
	j.Process.Signal(syscall.SIGTERM)
	if r := j.finish(t); !strings.Contains(r.out, "killed 137\n") {
		t.Errorf("status %d, output %q, %s", r.code, r.out, r.errors)
	}
}

// TestStoppedCaller stops callers as batch systems do.
func TestStoppedCaller(t *testing.T) {
	g := newStepGroups(t, 0)
	cmd := g.exec(t, "--", "sh", "-c", "echo up; read line; exit 7")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	j := launch(t, cmd)
	j.expect(t, "up")
	v := g.vm(t)
	state := func() string { return g.vm(t).State }
	domain := func() string {
		out, err := host.Virsh(ctx(t), "domstate", v.Name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	if domain() != "running" || state() != "running" {
		t.Fatalf("libvirt says %s, the agent %s", domain(), state())
	}
	began := time.Now()
	j.Process.Signal(syscall.SIGSTOP)
	eventually(t, "paused after SIGSTOP", func() bool { return domain() == "paused" })
	t.Logf("paused after %v", time.Since(began).Round(10*time.Millisecond))
	if state() != "suspended (caller stopped)" {
		t.Errorf("the agent says %q", state())
	}
	host.KillAgent()
	if err := host.StartAgent(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if state() != "suspended (caller stopped)" || domain() != "paused" {
		t.Errorf("the next agent says %q, libvirt %s", state(), domain())
	}
	began = time.Now()
	j.Process.Signal(syscall.SIGCONT)
	eventually(t, "running after SIGCONT", func() bool { return domain() == "running" && state() == "running" })
	t.Logf("running after %v", time.Since(began).Round(10*time.Millisecond))

	freezer := filepath.Join(filepath.Dir(g.dir("freezer")), "freezer.state")
	if err := os.WriteFile(freezer, []byte("FROZEN"), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent knows that the job is frozen",
		func() bool { return state() == "suspended (caller stopped)" })
	if domain() != "running" { // nobody told libvirt, which would wait for QEMU's monitor
		t.Errorf("libvirt was told: %s", domain())
	}
	if err := os.WriteFile(freezer, []byte("THAWED"), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "running after the thaw", func() bool { return domain() == "running" && state() == "running" })
	stdin.Close()
	if r := j.finish(t); r.code != 7 {
		t.Errorf("status %d, output %q, %s", r.code, r.out, r.errors)
	}
}

// TestOutOfMemory: a job that wants more than it was given is killed in its VM, says so, and leaves in its control
// group what a job on the host leaves: a kill that the batch system sees.
func TestOutOfMemory(t *testing.T) {
	g := newStepGroups(t, 512*farm.MiB)
	kills := func() string {
		text, err := os.ReadFile(filepath.Join(g.dir("memory"), "memory.oom_control"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
				return strings.TrimSpace(n)
			}
		}
		return ""
	}
	if n := kills(); n != "0" {
		t.Fatalf("%q kills at first", n)
	}
	r := run(t, g.exec(t, "--", "sh", "-c", "exec tail /dev/zero"), "")
	if r.code != -1 || !strings.Contains(r.errors, "out of memory in the VM") { // -1: by a signal
		t.Errorf("status %d, %s", r.code, r.errors)
	}
	if n := kills(); n != "1" {
		t.Errorf("%q kills in the job's control group", n)
	}
}
