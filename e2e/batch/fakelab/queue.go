package fakelab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
)

// job is one job, or one element of an array.
type job struct {
	id                      string
	number                  int // the first of an array's, for all of them
	element                 int // from 1; 0: no array
	wanted                  conform.Job
	command                 string // LSF: the command line, as its hooks left it
	env                     []string
	out                     string // paths of its output
	err                     string
	runs                    int
	pid                     int
	cpu                     int
	groups                  groups
	began                   time.Time
	timer                   *time.Timer
	cancelled, killed, late bool
	done                    bool
	result                  conform.Result
}

func (l *Lab) changedLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits until something holds, looking at every change.
func (l *Lab) await(ctx context.Context, holds func() bool) error {
	for {
		l.mu.Lock()
		ok, changed := holds(), l.changed
		l.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Submit queues a job.
func (l *Lab) Submit(_ context.Context, wanted conform.Job) (string, error) {
	if len(wanted.Mounts) > 0 {
		return "", conform.ErrNoMounts
	}
	if wanted.Tasks > 1 {
		return "", fmt.Errorf("%w: tasks are the business of MPI programs there (TM, blaunch)", conform.ErrNone)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	number := l.next
	l.next++
	wanted.Dir = cmp.Or(wanted.Dir, l.Home())
	wanted.Memory = cmp.Or(wanted.Memory, memoryMiB)
	var elements []*job
	for i := range max(wanted.Array, 1) {
		j := &job{number: number, wanted: wanted, cpu: -1}
		if wanted.Array > 0 {
			j.element = i + 1
		}
		j.id = l.jobID(j)
		j.out, j.err = l.path("out/"+j.id+".out"), l.path("out/"+j.id+".err")
		if err := l.accept(l, j); err != nil {
			return "", err
		}
		elements = append(elements, j)
	}
	for _, j := range elements {
		l.jobs[j.id] = j
		l.order = append(l.order, j)
	}
	l.schedule()
	l.changedLocked()
	return elements[0].id, nil
}

// jobID is as the system has it: 7.server and 7[1].server, or 7 and 7[1].
func (l *Lab) jobID(j *job) string {
	id := fmt.Sprint(j.number)
	if j.element > 0 {
		id += fmt.Sprintf("[%d]", j.element)
	}
	if _, ok := l.flavor.(*pbs); ok {
		id += "." + l.name
	}
	return id
}

// schedule starts what has a CPU, in order.
func (l *Lab) schedule() {
	for _, j := range l.order {
		if j.done || j.pid != 0 || j.cpu >= 0 || l.closed || !l.may(l, j) {
			continue
		}
		for cpu := range l.slots {
			if l.busy[cpu] == nil {
				l.launch(j, cpu)
				break
			}
		}
	}
}

// errRejected is what a flavor's start says of a job that a hook did not let through.
var errRejected = errors.New("rejected by a hook")

func (l *Lab) launch(j *job, cpu int) {
	l.busy[cpu], j.cpu = j, cpu
	j.runs++
	s, err := l.start(l, j, cpu)
	if err == nil {
		s.Job, s.UID = j.id, nobody
		s.Cgroups, s.Stdout, s.Stderr = j.groups.dirs, j.out, j.err
		s.Umask = cmp.Or(j.wanted.Umask, 0o022) // qsub -W umask; bsub takes that of its caller
		err = l.orders.Encode(map[string]any{"start": s})
	}
	if err != nil {
		if !errors.Is(err, errRejected) {
			l.wrong = append(l.wrong, fmt.Sprintf("job %s cannot be started: %v", j.id, err))
		} else if err := j.groups.remove(); err != nil {
			l.wrong = append(l.wrong, err.Error())
		}
		l.finish(j, conform.Result{State: conform.NotStarted, Reason: err.Error()})
	}
}

// heard takes what the daemon tells.
func (l *Lab) heard(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changedLocked()
	j := l.jobs[e.Job]
	if e.Error != "" {
		l.wrong = append(l.wrong, "job "+e.Job+": "+e.Error)
	}
	if !e.Ended {
		j.pid, j.began = e.PID, time.Now()
		if limit := j.wanted.Limit; limit > 0 {
			j.timer = time.AfterFunc(limit, func() { l.limit(l, j) })
		}
		return
	}
	go l.bury(j, syscall.WaitStatus(e.Status))
}

// bury cleans up after the job's first process: the rest of its session, its control groups, and the accounting. mom
// notices the end at a turn of its main loop and kills what is left then (src/resmom/catch_child.c, scan_for_exiting);
// sbatchd does the same.
func (l *Lab) bury(j *job, status syscall.WaitStatus) {
	time.Sleep(mainLoop)
	l.signal(j, syscall.SIGKILL)
	cpu, memory := j.groups.used()
	oom := j.groups.killed()
	err := j.groups.remove()
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changedLocked()
	if err != nil {
		l.wrong = append(l.wrong, fmt.Sprintf("control groups of job %s: %v", j.id, err))
	}
	if j.timer != nil {
		j.timer.Stop()
	}
	r, again := l.over(l, j, status)
	if again && !l.closed {
		delete(l.busy, j.cpu)
		j.pid, j.cpu = 0, -1
		l.schedule()
		return
	}
	r.CPU, r.MaxRSS, r.Runs = cpu, memory, j.runs
	if oom && r.State == conform.Failed {
		r.State = conform.OutOfMemory
	}
	l.finish(j, r)
}

// mainLoop is how long a daemon takes to see that a job's first process has ended.
const mainLoop = 300 * time.Millisecond

func (l *Lab) finish(j *job, r conform.Result) {
	delete(l.busy, j.cpu)
	j.done, j.pid, j.result = true, 0, r
	l.schedule()
	l.changedLocked()
}

// signal sends a signal to a job's processes.
func (l *Lab) signal(j *job, s syscall.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j.pid != 0 {
		l.orders.Encode(map[string]any{"pid": j.pid, "signal": int(s)})
	}
}

// elements are the jobs behind an ID that Submit gave.
func (l *Lab) elements(id string) ([]*job, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.jobs[id]
	if first == nil {
		return nil, fmt.Errorf("no job %s", id)
	}
	var all []*job
	for _, j := range l.order {
		if j.number == first.number {
			all = append(all, j)
		}
	}
	return all, nil
}

// Wait waits for all elements.
func (l *Lab) Wait(ctx context.Context, id string) (conform.Result, error) {
	all, err := l.elements(id)
	if err != nil {
		return conform.Result{}, err
	}
	if err := l.await(ctx, func() bool {
		return !slices.ContainsFunc(all,
			func(j *job) bool { return !j.done })
	}); err != nil {
		return conform.Result{}, err
	}
	r := all[0].result
	for _, j := range all[1:] {
		if r.State == conform.Done {
			r.State, r.Code, r.Signal = j.result.State, j.result.Code, j.result.Signal
		}
		r.CPU, r.MaxRSS, r.Runs = r.CPU+j.result.CPU, max(r.MaxRSS, j.result.MaxRSS), max(r.Runs, j.result.Runs)
	}
	r.Stdout, r.Stderr = l.Output(id)
	return r, nil
}

// Output is that of all elements.
func (l *Lab) Output(id string) (stdout, stderr string) {
	all, _ := l.elements(id)
	var out, errs strings.Builder
	for _, j := range all {
		text, _ := os.ReadFile(j.out)
		out.Write(text)
		text, _ = os.ReadFile(j.err)
		errs.Write(text)
	}
	return out.String(), errs.String()
}

// running calls do with each element's job that runs, in time; one that waits is taken out of the queue if drop is set.
func (l *Lab) running(id string, drop bool, do func(*job)) error {
	all, err := l.elements(id)
	if err != nil {
		return err
	}
	for _, j := range all {
		l.mu.Lock()
		waits := j.cpu < 0 && !j.done
		if waits && drop {
			l.finish(j, conform.Result{State: conform.Cancelled, Reason: "taken out of the queue", Runs: j.runs})
		}
		runs := j.pid != 0
		l.mu.Unlock()
		if runs {
			do(j)
		}
	}
	return nil
}

// Cancel is qdel or bkill.
func (l *Lab) Cancel(_ context.Context, id string) error {
	return l.running(id, true, func(j *job) {
		l.mark(func() { j.cancelled = true })
		go l.cancel(l, j)
	})
}

// Kill is qdel -W force or bkill -s KILL.
func (l *Lab) Kill(_ context.Context, id string) error {
	return l.running(id, true, func(j *job) {
		l.mark(func() { j.cancelled, j.killed = true, true })
		l.signal(j, syscall.SIGKILL)
	})
}

// mark changes a job.
func (l *Lab) mark(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// Suspend and Resume are STOP and CONT to every process: `qsig -s suspend` (src/resmom/requests.c, req_signaljob) and
// bstop.
func (l *Lab) Suspend(_ context.Context, id string) error {
	return l.running(id, false, func(j *job) { l.signal(j, syscall.SIGSTOP) })
}

// Resume lets it go on.
func (l *Lab) Resume(_ context.Context, id string) error {
	return l.running(id, false, func(j *job) { l.signal(j, syscall.SIGCONT) })
}

// escalate sends signals with pauses between them, until the job has ended.
func (l *Lab) escalate(j *job, pause time.Duration, signals ...syscall.Signal) {
	run := j.runs
	for i, s := range signals {
		if i > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), pause)
			err := l.await(ctx, func() bool { return j.pid == 0 || j.runs != run })
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				return
			}
		}
		l.signal(j, s)
	}
}
