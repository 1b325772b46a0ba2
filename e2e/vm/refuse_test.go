package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/api"
)

// TestRefusals are requests that no VM is made for. Each says what is wrong and what to try.
func TestRefusals(t *testing.T) {
	cases := []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"absurd CPUs", []string{"--cpus", "100000", "--", "true"}, 2, []string{"100000 CPUs"}},
		{"negative CPUs", []string{"--cpus", "-1", "--", "true"}, 2, []string{"-1 CPUs"}},
		{"absurd memory", []string{"--memory", "900000G", "--", "true"}, 2, []string{"of memory"}},
		{"memory for nothing", []string{"--memory", "1M", "--", "true"}, 2, []string{"the least is 64M"}},
		{"more than the host has", []string{"--memory", "20000G", "--", "true"}, 2, []string{"try:"}},
		{"no size", []string{"--memory", "much", "--", "true"}, 2, []string{`"much" is not a size`}},
		{"no such image", []string{"--image", "nosuch", "--", "true"}, 2, []string{"nosuch", "try:"}},
		{"hostile image name", []string{"--image", "../../etc/passwd", "--", "true"}, 2, []string{"try:"}},
		{"no such shape", []string{"--shape", "nosuch", "--", "true"}, 2, []string{`no shape "nosuch"`}},
		{"no command", []string{"--cpus", "1"}, 2, []string{"no command"}},
		{"unknown flag", []string{"--nosuch", "--", "true"}, 2, []string{"unknown flag"}},
		{"bind of nothing", []string{"--bind", "/nosuch", "--", "true"}, 2, []string{"/nosuch"}},
		{"bind over everything", []string{"--bind", "/tmp:/", "--", "true"}, 2, []string{"below /"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := grange(t, c.args...)
			if r.code != c.code {
				t.Errorf("status %d, want %d", r.code, c.code)
			}
			for _, s := range c.says {
				if !strings.Contains(r.errors, s) {
					t.Errorf("%q does not say %q", r.errors, s)
				}
			}
		})
	}
}

// noDirectory asks for a working directory that is not there.
func noDirectory(t *testing.T, vm *oneVM) {
	r := run(t, vm.exec(t, "--workdir", "/nosuch", "--", "true"), "")
	if r.code != 199 || !strings.Contains(r.errors, "/nosuch is not in the VM") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
}

// TestNoRoom fills the host: --no-wait says who holds what, and those who wait are served in order.
func TestNoRoom(t *testing.T) {
	hostCPUs := fmt.Sprint(cpus(t))
	first, input := startWithInput(t, "--cpus", hostCPUs, "--memory", "512M", "--", "sh", "-c", "echo up; read go")
	r := grange(t, "--no-wait", "--", "true")
	if r.code != 199 || !strings.Contains(r.errors, vmName(t)) || !strings.Contains(r.errors, "(root: sh)") {
		t.Errorf("status %d, want 199 and the holder's name: %s", r.code, r.errors)
	}
	order := filepath.Join(t.TempDir(), "order")
	var waiting []*job
	for i := range 3 {
		script := fmt.Sprintf("echo %d >> order", i)
		j := launch(t, host.Exec(ctx(t), "--cpus", hostCPUs, "--bind", filepath.Dir(order)+":/w", "--workdir", "/w",
			"--", "sh", "-c", script))
		await(t, host, "one more that waits", func(vms []api.VM) bool { return len(vms) == i+2 })
		waiting = append(waiting, j)
	}
	fmt.Fprintln(input, "go")
	first.finish(t).want(t, 0, "up\n")
	for _, j := range waiting {
		j.finish(t).want(t, 0, "")
	}
	if text, _ := os.ReadFile(order); string(text) != "0\n1\n2\n" {
		t.Errorf("served in the order %q", text)
	}
}

func cpus(t *testing.T) int {
	h, err := host.Client.Host(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range h.Sockets {
		n += len(strings.Split(s.CPUs, ","))
		if lo, hi, ok := strings.Cut(s.CPUs, "-"); ok {
			var a, b int
			fmt.Sscan(lo, &a)
			fmt.Sscan(hi, &b)
			n += b - a
		}
	}
	return n
}

// TestAffinity keeps a VM on the CPUs that its caller may use.
func TestAffinity(t *testing.T) {
	last := fmt.Sprint(cpus(t) - 1)
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		t.Fatal(err)
	}
	j := host.Exec(ctx(t), "--", "sh", "-c", "echo up; read go")
	j.Args = append([]string{taskset, "-c", last}, j.Args...)
	j.Path = taskset
	input, err := j.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	running := launch(t, j)
	running.expect(t, "up")
	vms, err := host.Client.VMs(ctx(t))
	if err != nil || len(vms) != 1 || strings.Join(vms[0].Plan.VCPUs, ",") != last {
		t.Errorf("planned on %+v, %v; want CPU %s only", vms, err, last)
	}
	checkThreads(t, last)
	input.Close()
	running.finish(t)

	two := host.Exec(ctx(t), "--cpus", "2", "--", "true")
	two.Args, two.Path = append([]string{taskset, "-c", last}, two.Args...), taskset
	if r := run(t, two, ""); r.code != 2 || !strings.Contains(r.errors, "may use CPUs "+last+" only") {
		t.Errorf("status %d, %q; want 2 and a word about the caller's CPUs", r.code, r.errors)
	}
}

// checkThreads reads from the kernel where the vCPU threads of the only VM may run.
func checkThreads(t *testing.T, want string) {
	for _, pid := range host.QEMUs() {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		seen := 0
		for _, task := range tasks {
			name, _ := os.ReadFile(task + "/comm")
			if !strings.HasPrefix(string(name), "CPU ") {
				continue
			}
			seen++
			status, _ := os.ReadFile(task + "/status")
			if !strings.Contains(string(status), "Cpus_allowed_list:\t"+want+"\n") {
				t.Errorf("thread %s may run elsewhere than on %s:\n%s", name, want, status)
			}
		}
		if seen == 0 {
			t.Errorf("QEMU %d has no vCPU threads", pid)
		}
	}
}

// TestMemoryOfCgroup gives a VM no more memory than its caller's cgroup allows.
func TestMemoryOfCgroup(t *testing.T) {
	dir := cgroup(t, 300<<20)
	for _, c := range []struct {
		args []string
		code int
		out  string
	}{{[]string{"--", "sh", "-c", "echo $GRANGE_MEMORY"}, 0, "300\n"}, {[]string{"--memory", "512M", "--", "true"}, 2,
		""}} {
		cmd := host.Exec(ctx(t), c.args...)
		inner := append([]string{"/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, dir, cmd.Path},
			cmd.Args[1:]...)
		cmd.Path, cmd.Args = "/bin/sh", inner
		run(t, cmd, "").want(t, c.code, c.out)
	}
}

// cgroup makes a cgroup with a memory limit, in whichever version this host has.
func cgroup(t *testing.T, limit int) string {
	t.Helper()
	for _, c := range []struct{ root, file string }{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"}} {
		dir := filepath.Join(c.root, fmt.Sprintf("grange-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { syscall.Rmdir(dir) })
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(fmt.Sprint(limit)), 0o644); err == nil {
			return dir
		}
	}
	t.Fatal("no cgroup with a memory controller can be made here")
	return ""
}
