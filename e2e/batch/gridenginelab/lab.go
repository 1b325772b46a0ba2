// Package gridenginelab runs a private Grid Engine cell of Debian's packages in namespaces of its own, with an agent
// and grange's hooks. Its administrator set it up with `grange gridengine install`.
package gridenginelab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/lab"
)

const (
	vmQueue    = "vm.q"
	metalQueue = "metal.q"
	slots      = 2
	nobody     = 65534
)

// Options change a lab.
type Options struct {
	Config string   // TOML appended to the agent's configuration
	Binds  []string // directories that every VM sees, besides Home
	Wait   string   // wait_timeout of the agent's configuration; "": 3s
	Bare   bool     // a cell without an agent and without grange's hooks
}

// Lab is one host with one cell.
type Lab struct {
	lab     *lab.Lab
	cell    *cell
	dir     string
	version string
	number  atomic.Int64 // of files for jobs' output

	mu   sync.Mutex
	jobs map[string]*job
}

// job is what Grid Engine would not tell of a job that has ended.
type job struct {
	conform.Job
	file  string // output is in file.TASK.out and file.TASK.err
	ended bool   // by Cancel or Kill
	error bool   // it was in state Eqw
	ran   bool   // it was seen to run
}

var _ conform.System = (*Lab)(nil)

// Start brings up a host and a cell on it.
func Start(ctx context.Context, o Options) (*Lab, error) {
	dir, err := os.MkdirTemp("/tmp", "ge")
	if err != nil {
		return nil, err
	}
	l := &Lab{dir: dir, jobs: map[string]*job{}}
	l.cell = &cell{dir: filepath.Join(dir, "sge")}
	if err := l.start(ctx, o); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context, o Options) error {
	if err := os.Chmod(l.dir, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{l.cell.dir, l.path("links")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{l.Home(), l.path("out")} {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, nobody, nobody)); err != nil {
			return err
		}
	}
	if o.Bare {
		l.cell.socket = l.path("no.sock")
		return l.startCell(ctx)
	}
	var err error
	config := fmt.Sprintf("reserved_memory = \"256M\"\n%s\n[default_shape]\nmemory = \"384M\"\n[batch]\nwait_timeout = "+
		"%q\nbinds = %s\n", o.Config, cmp.Or(o.Wait, "3s"), lab.Strings(append([]string{l.Home()}, o.Binds...)))
	if l.lab, err = lab.Start(ctx, lab.Options{Config: config}); err != nil {
		return err
	}
	l.cell.socket = l.lab.Socket
	if err := l.startCell(ctx); err != nil {
		return err
	}
	if err := l.install(ctx); err != nil {
		return err
	}
	out, err := l.cell.run(ctx, master, programs+"/qstat", "-help")
	if f := strings.Fields(out); err == nil && len(f) > 1 {
		l.version = f[1]
	}
	return err
}

// startCell brings up a cell of one host.
func (l *Lab) startCell(ctx context.Context) error {
	hosts := "127.0.0.1 localhost\n" + subnet + "1 " + master + "\n"
	for n := 2; n < 6; n++ {
		hosts += fmt.Sprintf("%s%d sge%d\n", subnet, n, n)
	}
	if err := os.WriteFile(l.cell.path("hosts"), []byte(hosts), 0o644); err != nil {
		return err
	}
	if err := l.cell.addHost(ctx, master, 1); err != nil {
		return err
	}
	return l.cell.start(ctx)
}

func (l *Lab) path(name string) string { return filepath.Join(l.dir, name) }

// install does what the guide tells the administrator to do, and lets qdel end jobs on the host as gently.
func (l *Lab) install(ctx context.Context) error {
	args := []string{"--queue", vmQueue, "--host", master, "--links", l.path("links")}
	if _, err := l.cell.run(ctx, master, append([]string{l.lab.Binary, "gridengine", "install", "--small-jobs"},
		args...)...); err != nil {
		return err
	}
	if _, err := l.cell.run(ctx, master,
		append([]string{l.lab.Binary, "gridengine", "check"}, args...)...); err != nil {
		return err
	}
	if _, err := l.cell.qconf(ctx, "-mattr", "queue", "terminate_method", l.lab.Binary+" gridengine terminate $job_pid",
		metalQueue); err != nil {
		return err
	}
	// execd learns of its configuration with the next report: what our load sensor says is the first sign of it.
	return l.cell.await(ctx, "the load sensor", func() bool {
		out, err := l.cell.run(ctx, master, programs+"/qhost", "-h", master, "-F", "vmslots,vmimages")
		return err == nil && strings.Contains(out, "vmslots=") && strings.Contains(out, "vmimages=micro")
	})
}

// Name is Grid Engine and its version.
func (l *Lab) Name() string { return "Grid Engine " + l.version }

// Lab is the host.
func (l *Lab) Lab() *lab.Lab { return l.lab }

// Home is shown in every VM.
func (l *Lab) Home() string { return l.path("home") }

// Slots are those of the queue for VMs.
func (l *Lab) Slots() int { return slots }

// asUser is a program on the cell's first host, run by the jobs' user.
func (l *Lab) asUser(ctx context.Context, dir string, env []string, argv ...string) (string, error) {
	return l.cell.runWith(ctx, master, env, userArgv(dir, argv)...)
}

// userArgv is a command line that the jobs' user runs in a directory.
func userArgv(dir string, argv []string) []string {
	return append([]string{"/usr/bin/env", "--chdir=" + dir, "/usr/bin/setpriv", "--reuid", strconv.Itoa(nobody),
		"--regid", strconv.Itoa(nobody), "--clear-groups"}, argv...)
}

// Submit is qsub.
func (l *Lab) Submit(ctx context.Context, j conform.Job) (string, error) {
	if len(j.Mounts) > 0 {
		return "", conform.ErrNoMounts
	}
	if j.Tasks > 1 {
		return "", fmt.Errorf("%w: tasks (qrsh -inherit) are started from within the job, which is in its VM",
			conform.ErrNone)
	}
	if j.Dir == "" {
		j.Dir = l.Home()
	}
	kept := &job{Job: j, file: l.path(fmt.Sprintf("out/job%d", l.number.Add(1)))}
	args := []string{programs + "/qsub", "-terse", "-wd", j.Dir, "-o", kept.file + ".$TASK_ID.out", "-e",
		kept.file + ".$TASK_ID.err", "-r", "y"}
	queue := vmQueue
	if j.Metal {
		queue = metalQueue
	}
	args = append(args, "-q", queue)
	env := slices.Clone(j.Env)
	if j.Image != "" {
		env = append(env, "GRANGE_VM_IMAGE="+j.Image)
	}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		args = append(args, "-v", name) // the value is qsub's own: in an argument a comma would end it
	}
	if j.Stdin != "" {
		if err := os.WriteFile(kept.file+".in", []byte(j.Stdin), 0o644); err != nil {
			return "", err
		}
		args = append(args, "-i", kept.file+".in")
	}
	if j.Limit > 0 {
		args = append(args, "-l", fmt.Sprintf("h_rt=%d", int(j.Limit.Seconds())))
	}
	if j.Memory > 0 {
		args = append(args, "-l", fmt.Sprintf("h_vmem=%dM", j.Memory))
	}
	if j.CPUs > 1 {
		args = append(args, "-pe", "smp", strconv.Itoa(j.CPUs))
	}
	if j.Array > 0 {
		args = append(args, "-t", fmt.Sprintf("1-%d", j.Array))
	}
	if len(j.Argv) > 0 {
		args = append(append(args, "-b", "y"), j.Argv...)
	} else {
		if err := os.WriteFile(kept.file+".sh", []byte(j.Script), 0o644); err != nil {
			return "", err
		}
		args = append(append(args, kept.file+".sh"), j.Args...)
	}
	out, err := l.asUser(ctx, j.Dir, env, args...)
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ".") // of an array: 7.1-2:1
	if _, err := strconv.Atoi(id); err != nil {
		return "", fmt.Errorf("qsub says %q", out)
	}
	l.mu.Lock()
	l.jobs[id] = kept
	l.mu.Unlock()
	return id, nil
}

func (l *Lab) job(id string) *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs[id]
}

// Output is that of all elements, by their numbers.
func (l *Lab) Output(id string) (stdout, stderr string) {
	read := func(end string) string {
		paths, _ := filepath.Glob(l.job(id).file + ".*" + end)
		var all strings.Builder
		for _, path := range paths {
			text, _ := os.ReadFile(path)
			all.Write(text)
		}
		return all.String()
	}
	return read(".out"), read(".err")
}

// Cancel is qdel.
func (l *Lab) Cancel(ctx context.Context, id string) error {
	l.setEnded(id)
	_, err := l.asUser(ctx, "/", nil, programs+"/qdel", id)
	return err
}

func (l *Lab) setEnded(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[id].ended = true
}

// Kill kills the job's process, and lets Grid Engine forget a job that waits. qdel alone gives a job time:
// terminate_method.
func (l *Lab) Kill(ctx context.Context, id string) error {
	l.setEnded(id)
	paths, _ := filepath.Glob(l.cell.path("spool/execd/*/active_jobs/" + id + ".*/job_pid"))
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid > 1 {
			syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
	if _, err := l.asUser(ctx, "/", nil, programs+"/qdel", id); err != nil &&
		!strings.Contains(err.Error(), "does not exist") {
		return err
	}
	return nil
}

// Suspend is qmod -sj, by a manager.
func (l *Lab) Suspend(ctx context.Context, id string) error {
	_, err := l.cell.run(ctx, master, programs+"/qmod", "-sj", id)
	return err
}

// Resume is qmod -usj.
func (l *Lab) Resume(ctx context.Context, id string) error {
	_, err := l.cell.run(ctx, master, programs+"/qmod", "-usj", id)
	return err
}

// Break makes a fault of the host, or one of the starter method.
func (l *Lab) Break(ctx context.Context, f conform.Fault) (mend func(), err error) {
	if mend, ok, err := conform.BreakHost(ctx, l.lab, f); ok {
		return mend, err
	}
	link := l.path("links/grange-exec-gridengine")
	restore := func() {
		os.Remove(link)
		os.Symlink(l.lab.Binary, link)
		l.cell.qconf(context.WithoutCancel(ctx), "-cq", vmQueue)
	}
	switch f {
	case conform.NoWrapper:
		return restore, os.Remove(link)
	case conform.BrokenHook: // half an upgrade
		program, err := os.ReadFile(l.lab.Binary)
		if err != nil {
			return nil, err
		}
		os.Remove(link)
		return restore, os.WriteFile(link, program[:4096], 0o755)
	}
	return nil, fmt.Errorf("%w: Grid Engine loads no plug-ins; its one hook is the starter method", conform.ErrNone)
}

// Sound looks for jobs, queues in error and shepherds.
func (l *Lab) Sound(ctx context.Context) []string {
	const timeout = time.Minute // a deleted job's last message comes with the next report
	for deadline := time.Now().Add(timeout); ; time.Sleep(100 * time.Millisecond) {
		wrong := l.soundNow(ctx)
		if len(wrong) == 0 || time.Now().After(deadline) {
			return wrong
		}
	}
}

func (l *Lab) soundNow(ctx context.Context) []string {
	var wrong []string
	out, err := l.cell.run(ctx, master, programs+"/qstat", "-u", "*")
	if err != nil || strings.TrimSpace(out) != "" {
		wrong = append(wrong, fmt.Sprintf("qstat: %s %v", out, err))
	}
	out, err = l.cell.run(ctx, master, programs+"/qstat", "-f")
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 6 && strings.Contains(f[0], "@") {
			wrong = append(wrong, "queue "+f[0]+" is in state "+f[5])
		}
	}
	active, _ := filepath.Glob(l.cell.path("spool/execd/*/active_jobs/*"))
	for _, dir := range active {
		wrong = append(wrong, "still there: "+dir)
	}
	return wrong
}

// Close ends the cell and the host, and removes both.
func (l *Lab) Close() error {
	l.cell.close()
	var err error
	if l.lab != nil {
		err = l.lab.Close()
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}
