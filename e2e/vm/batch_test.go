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

	"github.com/grange-project/grange/internal/farm"
)

// batchUser runs the jobs of these tests.
const batchUser = 12345

// batchLimit is what the jobs of these tests may use of memory.
const batchLimit = farm.GiB

// batchJobs numbers the jobs.
var batchJobs atomic.Int32

// slurmJob is a job of our user in control groups as Slurm makes them.
type slurmJob struct {
	dirs  []string // of the job, by hierarchy
	steps *atomic.Int32
}

func newSlurmJob(t *testing.T) slurmJob {
	t.Helper()
	node, number := fmt.Sprintf("slurm_grange%d", os.Getpid()), batchJobs.Add(1)
	name := fmt.Sprintf("%s/uid_%d/job_%d", node, batchUser, number)
	j := slurmJob{steps: new(atomic.Int32)}
	for _, controller := range []string{"memory", "freezer"} {
		root := filepath.Join("/sys/fs/cgroup", controller)
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			root = "/sys/fs/cgroup" // one hierarchy for all
			name = fmt.Sprintf("system.slice/%s_slurmstepd.scope/job_%d", node, number)
		}
		dir := filepath.Join(root, name)
		makeGroup(t, dir)
		for _, file := range []string{"memory.limit_in_bytes", "memory.max"} {
			path := filepath.Join(dir, file)
			if _, err := os.Stat(path); err == nil {
				if err := os.WriteFile(path, fmt.Append(nil, uint64(batchLimit)), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		j.dirs = append(j.dirs, dir)
	}
	return j
}

// makeGroup makes a control group, and those above it, for the time of the test.
func makeGroup(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for d := dir; strings.Contains(d, "slurm"); d = filepath.Dir(d) {
			os.Remove(d) // others may be in those further up
		}
	})
}

// in prepares a command that runs in a step of the job: in its control groups, as its user, in a directory.
func (j slurmJob) in(t *testing.T, step, dir string, argv ...string) *exec.Cmd {
	t.Helper()
	script := ""
	for _, job := range j.dirs {
		group := filepath.Join(job, "step_"+step)
		makeGroup(t, group)
		script += "echo $$ >" + filepath.Join(group, "cgroup.procs") + "\n"
	}
	script += fmt.Sprintf("exec setpriv --reuid %d --regid %d --clear-groups -- \"$@\"", batchUser, batchUser)
	cmd := exec.CommandContext(ctx(t), "/bin/sh", append([]string{"-ec", script, "sh"}, argv...)...)
	cmd.Env, cmd.Dir = append(os.Environ(), "GRANGE_SOCKET=/nowhere"), dir // the user's own word, which does not count
	return cmd
}

// step is a command in the next step of the job.
func (j slurmJob) step(t *testing.T, dir string, argv ...string) *exec.Cmd {
	t.Helper()
	return j.in(t, fmt.Sprint(j.steps.Add(1)), dir, argv...)
}

// inSlurm is a command as the script of a job of its own.
func inSlurm(t *testing.T, dir string, argv ...string) *exec.Cmd {
	t.Helper()
	return newSlurmJob(t).in(t, "batch", dir, argv...)
}

// wrapped is a script as a batch system starts it here.
func wrapped(script string) []string {
	return []string{host.Binary, "exec", "--socket", host.Socket, "--batch", "slurm", "--", script}
}

// batchDirs are a spool that nobody binds, with a script in it, and a working directory of the job's user.
func batchDirs(t *testing.T, script string) (path, work string) {
	t.Helper()
	top := t.TempDir()
	openUp(t, top)
	spool, work := filepath.Join(top, "spool"), filepath.Join(top, "work")
	for _, d := range []string{spool, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(spool, "slurm_script")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, work} {
		if err := os.Chown(p, batchUser, batchUser); err != nil {
			t.Fatal(err)
		}
	}
	return path, work
}

const batchScript = `#!/bin/sh
echo "$0 $# $2"
pwd
id -u
echo ${#BIG} ${#LONG} $TMPDIR
echo $GRANGE_BATCH $FROM_PROLOG ${GONE-gone}
cat $JOBFEATURES/allocated_cpu
awk '/MemTotal/ { print ($2 < 1048576) ? "within" : "beyond" }' /proc/meminfo
cat
echo made >made
exit 3
`

// TestBatchWrapper is a job's script in its VM, as it would be on the host.
func TestBatchWrapper(t *testing.T) {
	script, work := batchDirs(t, batchScript)
	prolog := filepath.Join(filepath.Dir(script), "prolog")
	if err := os.WriteFile(prolog, []byte(
		"#!/bin/sh\necho export FROM_PROLOG=$(id -u):$(pwd | wc -l)\necho unset GONE\necho print hello from "+
			"$SLURM_SCRIPT_CONTEXT\necho noise\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := inSlurm(t, work, host.Binary, "exec", "-v", "--socket", host.Socket, "--batch", "slurm", "--task-prolog",
		prolog, "--", script, "a", "b  c")
	cmd.Env = append(cmd.Env, "TMPDIR=/nowhere", "GONE=here", "BIG="+strings.Repeat("x", 120<<10),
		"LONG="+strings.Repeat("y", 100000))
	r := run(t, cmd, "from stdin\n")
	r.want(t, 3, "hello from prolog_task\n"+script+" 2 b  c\n"+work+"\n12345\n122880 100000 /tmp\nslurm 12345:1 "+
		"gone\n"+fmt.Sprint(batchCPUs(t))+"\nwithin\nfrom stdin\n")
	if text, err := os.ReadFile(filepath.Join(work, "made")); err != nil || string(text) != "made\n" {
		t.Errorf("the job's file: %q, %v", text, err)
	}
	if !strings.Contains(r.errors, `image micro: rule "jobs of slurm"`) {
		t.Errorf("-v does not tell which rule set the image: %s", r.errors)
	}
}

// batchCPUs is how many a job without a cpuset may get: those of its affinity where that confines it, else those of the
// default shape.
func batchCPUs(t *testing.T) int {
	h, err := host.Client.Host(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, c := range h.Cores {
		set, err := farm.ParseCPUSet(c.Threads)
		if err != nil {
			t.Fatal(err)
		}
		all += set.Len()
	}
	var set farm.CPUSet
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			set, err = farm.ParseCPUSet(strings.TrimSpace(list))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if set.Len() < all {
		return set.Len()
	}
	return 1
}

// TestBatchSteps has steps of one job in its VM, each with a script of its own.
func TestBatchSteps(t *testing.T) {
	job := newSlurmJob(t)
	script, work := batchDirs(t, "#!/bin/sh\necho up\ncat\n")
	hold := job.in(t, "batch", work, wrapped(script)...)
	input, err := hold.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	launch(t, hold).expect(t, "up")
	t.Cleanup(func() { input.Close() })
	for name, test := range map[string]func(*testing.T, slurmJob){"death": batchDeath, "trap": batchTrap,
		"prolog that ends": batchPrologEnds, "hook": batchHook, "input": batchInput, "terminal": batchTerminal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, job)
		})
	}
}

// batchDeath: the wrapper dies of the signal that ended the job, and an ordinary `grange exec` does not.
func batchDeath(t *testing.T, steps slurmJob) {
	for _, s := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(s.String(), func(t *testing.T) {
			script, work := batchDirs(t, fmt.Sprintf("#!/bin/sh\nkill -%d $$\n", s))
			cmd := steps.step(t, work, wrapped(script)...)
			r := run(t, cmd, "")
			w := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !w.Signaled() || w.Signal() != s || w.CoreDump() {
				t.Errorf("%v, want death by %v: %s", cmd.ProcessState, s, r.errors)
			}
		})
	}
}

// batchTrap is how batch systems end jobs: TERM, and the job cleans up. INT twice is no giving up.
func batchTrap(t *testing.T, steps slurmJob) {
	script, work := batchDirs(t, "#!/bin/sh\ntrap 'echo int' INT\ntrap 'echo xcpu' XCPU\ntrap 'echo clean >clean; "+
		"exit 9' TERM\necho up\nwhile :; do sleep 0.05; done\n")
	j := launch(t, steps.step(t, work, wrapped(script)...))
	j.expect(t, "up")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGXCPU} {
		j.Process.Signal(s)
		j.expect(t, map[syscall.Signal]string{syscall.SIGINT: "int", syscall.SIGXCPU: "xcpu"}[s])
	}
	j.Process.Signal(syscall.SIGTERM)
	if r := j.finish(t); r.code != 9 {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	if text, err := os.ReadFile(filepath.Join(work, "clean")); err != nil || string(text) != "clean\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestBatchRefused: nothing of the job runs where something is wrong, and the batch system is told whether to try
// again.
func TestBatchRefused(t *testing.T) {
	script, work := batchDirs(t, "#!/bin/sh\ntouch ran\n")
	for name, c := range map[string]struct {
		cmd  *exec.Cmd
		code int
		says string
	}{
		"no job at all": {host.Exec(ctx(t), "--socket", host.Socket, "--batch", "slurm", "--", script), 199,
			"[wrong-batch]"},
		"of another system": {inSlurm(t, work, host.Binary, "exec", "--socket", host.Socket, "--batch", "pbs", "--",
			script), 199, "[wrong-batch]"},
		"no agent": {inSlurm(t, work, host.Binary, "exec", "--socket", "/nowhere", "--batch", "slurm", "--",
			script), 199, "[no-agent]"},
		"no such image": {inSlurm(t, work, host.Binary, "exec", "--socket", host.Socket, "--batch", "slurm",
			"--image", "nosuch", "--", script), 197, "[not-allowed]"},
		"too much memory": {inSlurm(t, work, host.Binary, "exec", "--socket", host.Socket, "--batch", "slurm",
			"--memory", "1G", "--", script), 197, "[too-big]"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cmd.Dir = work
			if r := run(t, c.cmd, ""); r.code != c.code || !strings.Contains(r.errors, c.says) {
				t.Errorf("status %d, want %d with %q: %s", r.code, c.code, c.says, r.errors)
			}
			if _, err := os.Stat(filepath.Join(work, "ran")); err == nil {
				t.Error("the job ran")
			}
		})
	}
}

// batchPrologEnds: a prolog that fails ends the job before its script.
func batchPrologEnds(t *testing.T, steps slurmJob) {
	script, work := batchDirs(t, "#!/bin/sh\ntouch ran\n")
	failing := filepath.Join(filepath.Dir(script), "failing")
	if err := os.WriteFile(failing, []byte("#!/bin/sh\necho sorry >&2\nexit 5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := run(t, steps.step(t, work, host.Binary, "exec", "--socket", host.Socket, "--batch", "slurm", "--task-prolog",
		failing, "--", script), "")
	if r.code != 5 || !strings.Contains(r.errors, "sorry") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	if _, err := os.Stat(filepath.Join(work, "ran")); err == nil {
		t.Error("the job ran")
	}
}

// batchHook starts the wrapper as the kernel does for a batch system that knows a path only.
func batchHook(t *testing.T, steps slurmJob) {
	script, work := batchDirs(t, "#!/bin/sh\necho \"$@\"\nexit 4\n")
	hook := filepath.Join(filepath.Dir(script), "starter")
	if err := os.WriteFile(hook, []byte("#!"+host.Binary+" hook\nexec --batch slurm --socket "+host.Socket+" --\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	cmd := steps.step(t, work, hook, script, "x y", "--z")
	run(t, cmd, "").want(t, 4, "x y --z\n")
}

// batchInput feeds a job from what batch systems have for its input: a socket, as slurmstepd and pbs_mom, in either
// mode.
func batchInput(t *testing.T, steps slurmJob) {
	for _, mode := range []int{0, syscall.SOCK_NONBLOCK} {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|mode, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
		script, work := batchDirs(t, "#!/bin/sh\ncat\n")
		cmd := steps.step(t, work, wrapped(script)...)
		cmd.Stdin = theirs
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		fmt.Fprintln(ours, "through a socket")
		ours.Close()
		if err := cmd.Wait(); err != nil || out.String() != "through a socket\n" {
			t.Errorf("mode %#x: %q, %v", mode, out.String(), err)
		}
	}
}

// batchTerminal is srun --pty: a job that has a terminal here has one there, without a flag.
func batchTerminal(t *testing.T, steps slurmJob) {
	program, err := exec.LookPath("script")
	if err != nil {
		t.Fatal(err)
	}
	job, work := batchDirs(t, "#!/bin/sh\ntest -t 0 && test -t 1 && test -t 2 && stty size\nexit 4\n")
	inner := steps.step(t, work, wrapped(job)...)
	file := filepath.Join(filepath.Dir(job), "inner")
	text := "#!/bin/sh\nstty rows 31 cols 71\nset --"
	for _, word := range inner.Args[3:] {
		text += " '" + word + "'"
	}
	text += "\nshift\n" + inner.Args[2] + "\n" // sh's own argument 0 is the first of them
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx(t), program, "-qec", file, "/dev/null")
	cmd.Env, cmd.Dir = append(inner.Env, "TERM=xterm"), work
	if r := run(t, cmd, ""); r.code != 4 || !strings.Contains(r.out, "31 71") {
		t.Errorf("status %d, %q, want 4 and a terminal of 31 lines and 71 columns", r.code, r.out)
	}
}

// TestBatchReload changes the site's policy and its hook under a running job, which stays what it is; the next job gets
// what is new.
func TestBatchReload(t *testing.T) {
	script, work := batchDirs(t, "#!/bin/sh\necho up\ncat >/dev/null\necho end\n")
	running := inSlurm(t, work, wrapped(script)...)
	input, err := running.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	j := launch(t, running)
	j.expect(t, "up")
	hook := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nid -u >/tmp/hooked\necho $GRANGE_BATCH >>/tmp/hooked\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	defer reload(t, testConfig, "configuration reloaded")
	reload(t, fmt.Sprintf("hook = %q\n[[policy]]\nname = \"new\"\nusers = [\"%d\"]\nshape = "+
		"\"tiny\"\n[shapes.tiny]\nmemory = \"128M\"\n", hook, batchUser), "configuration reloaded")
	next, _ := batchDirs(t, "#!/bin/sh\ncat /tmp/hooked\necho $GRANGE_MEMORY\n")
	r := run(t, inSlurm(t, work, host.Binary, "exec", "-v", "--socket", host.Socket, "--batch", "slurm", "--", next),
		"")
	r.want(t, 0, "0\nslurm\n128\n")
	if !strings.Contains(r.errors, `shape tiny: rule "new"`) {
		t.Errorf("-v does not tell of the new rule: %s", r.errors)
	}
	reload(t, "[[policy]]\nname = \"closed\"\nsystems = [\"slurm\"]\ndeny = \"for repair\"\n", "configuration reloaded")
	if r := run(t, inSlurm(t, work, wrapped(next)...),
		""); r.code != 197 || !strings.Contains(r.errors,
		`rule "closed" of this host's policy gives this job no VM: for repair`) {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	input.Close()
	j.finish(t).want(t, 0, "up\nend\n")
}
