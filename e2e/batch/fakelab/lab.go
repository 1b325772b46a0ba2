// Package fakelab runs a batch system that cannot be installed here, as far as a job can see it: OpenPBS and IBM
// Spectrum LSF. A daemon called as theirs, run by root, starts jobs with the argv, environment, input, process tree,
// sessions and control groups that theirs has, and sends the signals that theirs sends; grange's generated hooks are in
// it, an agent with its VMs beside it. The queue is in memory and only as clever as the cases need. Each behaviour
// names the document or source that it follows.
package fakelab

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/farm"
)

// Options choose the system.
type Options struct{ System farm.BatchSystem }

// Lab is one batch system.
type Lab struct {
	kind  farm.BatchSystem
	host  *lab.Lab
	dir   string
	name  string // of the server or cluster, and of the node: unique on this machine
	slots int
	flavor

	daemon *exec.Cmd
	orders *json.Encoder
	ended  chan struct{} // closed when the daemon has

	mu      sync.Mutex
	changed chan struct{} // closed and made anew at every change
	jobs    map[string]*job
	order   []*job
	next    int
	busy    map[int]*job // by CPU
	wrong   []string     // what should never happen
	closed  bool
}

var _ conform.System = (*Lab)(nil)

// flavor is what one batch system does in its own way.
type flavor interface {
	title() string
	// install puts grange's hooks in.
	install(l *Lab) error
	// accept looks at a submission, as the submitting program and its hooks do; an error refuses it.
	accept(l *Lab, j *job) error
	// may reports whether the node takes the job now.
	may(l *Lab, j *job) bool
	// start describes the job's process.
	start(l *Lab, j *job, cpu int) (start, error)
	// over turns how the process ended into the system's own words; again puts it back into the queue.
	over(l *Lab, j *job, status syscall.WaitStatus) (r conform.Result, again bool)
	// cancel is the user's command; limit what happens when the time is over. Both may take their time.
	cancel(l *Lab, j *job)
	limit(l *Lab, j *job)
	// damage makes one of the faults that are the system's own.
	damage(l *Lab, f conform.Fault) (mend func(), err error)
}

const (
	nobody     = 65534
	memoryMiB  = 700 // of a job that asks for none
	mainQueue  = "vm"
	metalQueue = "metal"
)

//go:embed mom.py
var momPython []byte

// Start brings the system up.
func Start(ctx context.Context, o Options) (*Lab, error) {
	l := &Lab{kind: o.System, slots: runtime.NumCPU(), changed: make(chan struct{}), jobs: map[string]*job{},
		busy: map[int]*job{}, next: 1}
	switch o.System {
	case farm.PBS:
		l.flavor = &pbs{}
	case farm.LSF:
		l.flavor = &lsf{}
	default:
		return nil, fmt.Errorf("no fake of %q", o.System)
	}
	if err := l.begin(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) begin(ctx context.Context) error {
	var err error
	if s, ok := l.flavor.(*lsf); ok {
		if err := s.prepare(); err != nil {
			return err
		}
	}
	if l.host, err = lab.Start(ctx, lab.Options{}); err != nil {
		return err
	}
	l.dir = filepath.Join(l.host.Dir, string(l.kind))
	l.name = "g" + strings.TrimLeft(filepath.Base(l.host.Dir), "gl")
	for _, dir := range []string{"home", "out", "bin", "hooks", "spool", "wrapper"} {
		if err := os.MkdirAll(l.path(dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"home", "out"} {
		if err := os.Chown(l.path(dir), nobody, nobody); err != nil {
			return err
		}
	}
	// The site's bind has to be there before the agent hears of it, and its path is known only now.
	if err := l.host.Configure(fmt.Sprintf("[batch]\nbinds = [%q]\nrequeues = 2\nwait_timeout = \"3s\"\n",
		l.Home())); err != nil {
		return err
	}
	l.host.SignalAgent(syscall.SIGHUP)
	if err := os.Link(l.host.Binary, l.wrapper()); err != nil { // to be taken away without the agent
		return err
	}
	if err := l.install(l); err != nil {
		return err
	}
	return l.startDaemon(ctx)
}

func (l *Lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *Lab) wrapper() string { return l.path("wrapper/grange") }

// startDaemon builds the daemon under its real name and runs it as root.
func (l *Lab) startDaemon(ctx context.Context) error {
	_, source, _, _ := runtime.Caller(0)
	program := l.path("bin/" + map[farm.BatchSystem]string{farm.PBS: "pbs_mom", farm.LSF: "sbatchd"}[l.kind])
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./daemon")
	build.Dir = filepath.Dir(source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the daemon: %w\n%s", err, out)
	}
	if err := os.Link(program, l.path("bin/res")); err != nil {
		return err
	}
	log, err := os.Create(l.path("daemon.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	l.daemon = exec.Command(program)
	l.daemon.Env, l.daemon.Dir, l.daemon.Stderr = []string{"PATH=/usr/bin:/bin"}, "/", log
	in, err := l.daemon.StdinPipe()
	if err != nil {
		return err
	}
	out, err := l.daemon.StdoutPipe()
	if err != nil {
		return err
	}
	if err := l.daemon.Start(); err != nil {
		return err
	}
	l.orders, l.ended = json.NewEncoder(in), make(chan struct{})
	go func() {
		defer close(l.ended)
		for d := json.NewDecoder(out); ; {
			var e event
			if d.Decode(&e) != nil {
				return
			}
			l.heard(e)
		}
	}()
	return nil
}

// event and start are what the daemon speaks.
type event struct {
	Job    string `json:"job"`
	PID    int    `json:"pid"`
	Ended  bool   `json:"ended"`
	Status int    `json:"status"`
	Error  string `json:"error"`
}

type start struct {
	Job     string   `json:"job"`
	UID     int      `json:"uid"`
	Program string   `json:"program"`
	Argv    []string `json:"argv"`
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`
	Stdin   string   `json:"stdin"`
	Line    string   `json:"line"`
	Stdout  string   `json:"stdout"`
	Stderr  string   `json:"stderr"`
	Umask   int      `json:"umask"`
	Cgroups []string `json:"cgroups"`
	Res     string   `json:"res,omitempty"`
	File    string   `json:"file,omitempty"`
	Hook    []string `json:"hook,omitempty"`
	Event   string   `json:"event,omitempty"`
}

// Name is the system's; it says that it is a model.
func (l *Lab) Name() string { return l.title() }

// Lab is the host.
func (l *Lab) Lab() *lab.Lab { return l.host }

// Home is where jobs are submitted from.
func (l *Lab) Home() string { return l.path("home") }

// Slots is one for each CPU.
func (l *Lab) Slots() int { return l.slots }

// Close ends the daemon, what it started, and the host.
func (l *Lab) Close() error {
	l.mu.Lock()
	l.closed = true
	var running []*job
	for _, j := range l.order {
		if j.pid != 0 {
			running = append(running, j)
		}
	}
	l.mu.Unlock()
	for _, j := range running {
		l.signal(j, syscall.SIGKILL)
	}
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, j := range running {
		if err := l.await(ctx, func() bool { return j.done }); err != nil {
			errs = append(errs, fmt.Errorf("job %s does not end: %w", j.id, err))
		}
	}
	if l.daemon != nil && l.daemon.Process != nil {
		l.daemon.Process.Kill()
		<-l.ended
		l.daemon.Wait()
	}
	l.removeParents()
	if s, ok := l.flavor.(*lsf); ok {
		errs = append(errs, s.close())
	}
	if l.host != nil {
		errs = append(errs, l.host.Close())
	}
	return errors.Join(errs...)
}

// removeParents takes away the groups above those of jobs, unless another lab, or a real system, has jobs in them.
func (l *Lab) removeParents() {
	for _, root := range []string{"", "memory", "cpuacct", "cpuset"} {
		for at := l.parent(); at != "." && at != "/"; at = filepath.Dir(at) {
			os.Remove(filepath.Join(cgroupRoot, root, at))
		}
	}
}

// parent is above the control groups of jobs. PBS: cgroup_prefix "pbs_jobs" of its cgroup hook, pbs_cgroups.CF; LSF:
// /lsf/CLUSTER, as in IBM's page on LSF_LINUX_CGROUP_ACCT.
func (l *Lab) parent() string {
	if l.kind == farm.PBS {
		return "pbs_jobs.service/jobid"
	}
	return "lsf/" + l.name
}

// Sound lists jobs that are left, and what should not have happened.
func (l *Lab) Sound(context.Context) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong := append([]string(nil), l.wrong...)
	for _, j := range l.order {
		if !j.done {
			wrong = append(wrong, "job "+j.id+" is left")
		}
	}
	if len(l.busy) > 0 {
		wrong = append(wrong, strconv.Itoa(len(l.busy))+" CPUs are taken")
	}
	return wrong
}

// Break makes a fault.
func (l *Lab) Break(ctx context.Context, f conform.Fault) (func(), error) {
	if mend, ok, err := conform.BreakHost(ctx, l.host, f); ok {
		return mend, err
	}
	if f == conform.NoWrapper {
		away := l.wrapper() + ".away"
		return func() { os.Rename(away, l.wrapper()) }, os.Rename(l.wrapper(), away)
	}
	return l.damage(l, f)
}
