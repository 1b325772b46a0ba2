package fakelab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/internal/batch/pbs/setup"
)

// pbs is OpenPBS: its server's queue, and a mom with Altair's cgroup hook and grange's.
type pbs struct {
	ready bool // the hook has said that this host has grange
}

func (*pbs) title() string { return "PBS (model of OpenPBS 23.06)" }

const python = "/usr/bin/python3"

func (p *pbs) install(l *Lab) error {
	if _, err := os.Stat(python); err != nil {
		return fmt.Errorf("mom runs hooks in Python: %w", err)
	}
	if err := os.WriteFile(l.path("hooks/mom.py"), momPython, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(l.path("hooks/launch.py"), setup.Hook, 0o644); err != nil {
		return err
	}
	config, err := setup.Setup{Grange: l.wrapper(), Socket: l.host.Socket, Queues: []string{mainQueue},
		Requeues: 2}.Config()
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.path("hooks/grange.json"), config, 0o644); err != nil {
		return err
	}
	return p.startup(l)
}

// startup is exechost_startup, at mom's start. A mom without the hook reports no resource.
func (p *pbs) startup(l *Lab) error {
	p.ready = false
	if _, err := os.Stat(l.path("hooks/launch.py")); err != nil {
		return nil
	}
	a, err := p.hook(l, p.event(l, "EXECHOST_STARTUP", nil))
	p.ready = err == nil && a.Accept && a.Resources["grange"] == true
	if !p.ready && err == nil {
		err = errors.New(a.Message)
	}
	return err
}

type answer struct {
	Accept    bool           `json:"accept"`
	Message   string         `json:"message"`
	Resources map[string]any `json:"resources"`
	Rerun     bool           `json:"rerun"`
}

func (p *pbs) event(l *Lab, kind string, more map[string]any) map[string]any {
	e := map[string]any{"type": kind, "node": l.name, "hook": l.path("hooks/launch.py"),
		"config": l.path("hooks/grange.json")}
	for k, v := range more {
		e[k] = v
	}
	return e
}

func (p *pbs) hook(l *Lab, e map[string]any) (answer, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return answer{}, err
	}
	cmd := exec.Command(python, "-I", l.path("hooks/mom.py"))
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		return answer{}, err
	}
	var a answer
	return a, json.Unmarshal(out, &a)
}

// accept is qsub: PBS gives a batch job no input of its user's. What is behind "qsub --" is a program with arguments,
// and no script.
func (*pbs) accept(l *Lab, j *job) error {
	if j.wanted.Stdin != "" {
		return fmt.Errorf("%w: PBS gives a batch job no input", conform.ErrNone)
	}
	if j.wanted.Script != "" && len(j.wanted.Args) > 0 {
		j.wanted.Argv = append([]string{filepath.Join(j.wanted.Dir, "job"+strconv.Itoa(j.number)+".sh")},
			j.wanted.Args...)
		return writeAs(j.wanted.Argv[0], j.wanted.Script, 0o755)
	}
	if j.wanted.Script == "" {
		return nil
	}
	return os.WriteFile(l.path("spool/"+j.id+".SC"), []byte(j.wanted.Script), 0o755)
}

// may: default_chunk.grange of the queue asks for a host that has it.
func (p *pbs) may(_ *Lab, j *job) bool { return j.wanted.Metal || p.ready }

// start is src/resmom/start_exec.c, finish_exec: the login shell without arguments, named with a dash, reads the
// script's path from its input; it begins in the user's home directory, in a session of its own, and in the job's
// control groups, which the cgroup hook's execjob_launch enters (pbs_cgroups.PY).
func (p *pbs) start(l *Lab, j *job, cpu int) (start, error) {
	memory := int64(j.wanted.Memory) << 20
	var err error
	if j.groups, err = makeGroups(l.parent(), j.id, memory, strconv.Itoa(cpu)); err != nil {
		return start{}, err
	}
	queue := mainQueue
	if j.wanted.Metal {
		queue = metalQueue
	}
	// The account's home is the directory that the case submits from: PBS starts jobs at home, and scripts change to
	// $PBS_O_WORKDIR.
	env := append([]string{}, j.wanted.Env...)
	env = append(env, "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME="+j.wanted.Dir, "LOGNAME=nobody", "USER=nobody",
		"SHELL=/bin/bash", "PBS_JOBNAME=job", "PBS_JOBID="+j.id, "PBS_QUEUE="+queue, "PBS_JOBCOOKIE=0123456789ABCDEF",
		"PBS_NODENUM=0", "PBS_TASKNUM=1", "PBS_MOMPORT=15003", "PBS_O_WORKDIR="+j.wanted.Dir, "PBS_O_HOST="+l.name,
		"PBS_O_QUEUE="+queue, "PBS_JOBDIR="+j.wanted.Dir, "OMP_NUM_THREADS=1", "NCPUS=1", "PBS_ENVIRONMENT=PBS_BATCH",
		"ENVIRONMENT=BATCH")
	if j.element > 0 {
		env = append(env, "PBS_ARRAY_INDEX="+strconv.Itoa(j.element))
	}
	s := start{Program: "/bin/bash", Argv: []string{"-bash"}, Env: env, Dir: j.wanted.Dir,
		Line: l.path("spool/"+j.id+".SC") + "\n"}
	if argv := j.wanted.Argv; len(argv) > 0 {
		s.Program, s.Argv, s.Line, s.Stdin = argv[0], argv, "", "/dev/null"
	}
	if _, err := os.Stat(l.path("hooks/launch.py")); err != nil {
		return s, nil // a mom without the hook
	}
	// PBS tries again, and holds the job after 20 times
	if a, err := p.hook(l, p.event(l, "EXECJOB_BEGIN", nil)); err != nil || !a.Accept {
		return s, fmt.Errorf("%w: %s", errRejected, a.Message)
	}
	resources := map[string]any{}
	if j.wanted.Image != "" {
		resources["grange_image"] = j.wanted.Image
	}
	if j.wanted.Limit > 0 {
		resources["walltime"] = int(j.wanted.Limit.Seconds())
	}
	text, err := json.Marshal(p.event(l, "EXECJOB_LAUNCH",
		map[string]any{"progname": s.Program, "argv": s.Argv, "job": map[string]any{
			"id": j.id, "queue": queue, "exec_vnode": fmt.Sprintf("(%s:ncpus=1:mem=%dkb)", l.name, memory>>10),
			"resources": resources}}))
	s.Hook, s.Event = []string{python, "-I", l.path("hooks/mom.py")}, string(text)
	return s, err
}

// Exit statuses of mom's own (src/include/job.h, JOB_EXEC_*).
const (
	execKillWalltime = -29
	execFailHook     = -17 // JOB_EXEC_FAILHOOK_DELETE: the job is deleted
)

// rejected is how our daemon says that a hook rejected the job.
const rejected = 253

func (p *pbs) over(l *Lab, j *job, status syscall.WaitStatus) (conform.Result, bool) {
	exit := status.ExitStatus()
	if status.Signaled() {
		exit = 256 + int(status.Signal()) // src/resmom/catch_child.c
	}
	switch {
	case j.late:
		exit = execKillWalltime
	case exit == rejected:
		exit = execFailHook
	}
	reason := "Exit_status " + strconv.Itoa(exit)
	a := answer{}
	if _, err := os.Stat(l.path("hooks/launch.py")); err == nil && exit != execFailHook {
		job := map[string]any{"id": j.id, "exit_status": exit, "run_count": j.runs}
		a, _ = p.hook(l, p.event(l, "EXECJOB_EPILOGUE", map[string]any{"job": job}))
		p.hook(l, p.event(l, "EXECJOB_END", map[string]any{"job": job}))
	}
	switch {
	case a.Rerun && !j.cancelled:
		return conform.Result{}, true
	case exit == execKillWalltime:
		return conform.Result{State: conform.Timeout, Reason: reason}, false
	case j.cancelled:
		return conform.Result{State: conform.Cancelled, Reason: reason, Code: exit}, false
	case exit == execFailHook, !j.wanted.Metal && (exit == 199 || exit == 197):
		return conform.Result{State: conform.NotStarted, Reason: reason}, false
	case exit > 256:
		return conform.Result{State: conform.Failed, Signal: exit - 256, Reason: reason}, false
	case exit > 0:
		return conform.Result{State: conform.Failed, Code: exit, Reason: reason}, false
	}
	return conform.Result{State: conform.Done, Reason: reason}, false
}

// killDelay is the queue's kill_delay. Its default is 10 s (PBS Reference Guide, queue attributes), which a job in an
// emulated VM may need to hear TERM and answer when several systems share two cores.
const killDelay = 30 * time.Second

// cancel is qdel: TERM to the session, KILL kill_delay later (src/server/req_delete.c; src/resmom/requests.c).
func (*pbs) cancel(l *Lab, j *job) { l.escalate(j, killDelay, syscall.SIGTERM, syscall.SIGKILL) }

// limit is mom's own look at the time that was used (src/resmom/mom_main.c, job_over_limit): TERM, and KILL a little
// later.
func (*pbs) limit(l *Lab, j *job) {
	l.mark(func() { j.late = true })
	l.escalate(j, killDelay, syscall.SIGTERM, syscall.SIGKILL)
}

func (p *pbs) damage(l *Lab, f conform.Fault) (func(), error) {
	hook := l.path("hooks/launch.py")
	mend := func() {
		os.WriteFile(hook, setup.Hook, 0o644)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := p.startup(l); err != nil {
			l.wrong = append(l.wrong, err.Error())
		}
		l.schedule()
		l.changedLocked()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch f {
	case conform.BrokenHook: // while mom runs: it has told the server that it is there
		return mend, os.WriteFile(hook, []byte("import pbs\nthis is no Python\n"), 0o644)
	case conform.NoPlugin: // and mom was restarted
		if err := os.Remove(hook); err != nil {
			return nil, err
		}
		return mend, p.startup(l)
	}
	return nil, fmt.Errorf("%w: %s", conform.ErrNone, strings.ToLower(string(f)))
}
