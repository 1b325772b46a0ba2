package conform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Verdict is what came of a case.
type Verdict string

// The verdicts.
const (
	Pass    Verdict = "pass"
	Fail    Verdict = "FAIL"
	Differs Verdict = "differs" // what the user sees of it is not as on the host; Note has both
	Absent  Verdict = "none"    // the system has no such thing; Note says why
)

// Outcome is one case on one system.
type Outcome struct {
	Case    string
	Verdict Verdict
	Note    string // what a reader of the table has to know
	Err     error  // what was seen, for Fail
	Took    time.Duration
}

// Case is one thing that must hold.
type Case struct {
	Name  string
	Holds string // what must hold, in one sentence for people
	alone bool   // nothing else runs on the system meanwhile
	limit time.Duration
	run   func(ctx context.Context, t *try) error
}

// Everything here is awaited, not timed: on a machine with much to do each step takes many times as long. The limits
// end what hangs.
const (
	caseLimit = 6 * time.Minute // for a case that says nothing else: its jobs wait in the queue behind other cases'
	timeout   = 90 * time.Second
	nobody    = 65534
)

// Slow is how many times as long the limits are: for machines that are emulated.
var Slow = 1

// Run tries all cases whose names match on a system, those that can beside each other, and tells of each as it ends.
// What is left of a failed case is ended, so that the next one finds the system as it should be. quiet is called when
// only those are left that want the system for themselves: they wait, mostly, and another system may be busy on the
// machine meanwhile.
func Run(ctx context.Context, sys System, match *regexp.Regexp, tell func(Outcome), quiet func()) []Outcome {
	var together, alone []Case
	for _, c := range Cases() {
		switch {
		case match != nil && !match.MatchString(c.Name):
		case !tries(sys, c.Name):
		case c.alone:
			alone = append(alone, c)
		default:
			together = append(together, c)
		}
	}
	var (
		mu       sync.Mutex
		outcomes []Outcome
	)
	one := func(c Case) {
		if ctx.Err() != nil {
			return // somebody wants the end
		}
		o := attempt(ctx, sys, c)
		mu.Lock()
		defer mu.Unlock()
		outcomes = append(outcomes, o)
		tell(o)
	}
	queue := make(chan Case)
	var workers sync.WaitGroup
	for range sys.Slots() + 1 { // one more: while a job ends, the next one waits in the queue
		workers.Go(func() {
			for c := range queue {
				one(c)
			}
		})
	}
	for _, c := range together {
		queue <- c
	}
	close(queue)
	workers.Wait()
	quiet()
	for _, c := range alone {
		one(c)
	}
	return outcomes
}

// tries reports whether a system wants a case: one that is another's with another way in tries only what that changes.
func tries(sys System, name string) bool {
	chooser, ok := sys.(interface{ Tries(name string) bool })
	return !ok || chooser.Tries(name)
}

func attempt(ctx context.Context, sys System, c Case) Outcome {
	limit := c.limit
	if limit == 0 {
		limit = caseLimit
	}
	limit *= time.Duration(Slow)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	t, err := newTry(sys, c.Name)
	if err == nil {
		err = c.run(ctx, t)
		t.end(ctx)
	}
	o := Outcome{Case: c.Name, Verdict: Pass, Note: t.note, Took: time.Since(began)}
	switch {
	case err == nil && t.differs:
		o.Verdict = Differs
	case errors.Is(err, ErrNone):
		o.Verdict, o.Note = Absent, reason(err)
	case err != nil:
		o.Verdict, o.Err = Fail, err
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			o.Err = fmt.Errorf("%w (after %v)", err, limit)
		}
		if logs := t.logs(); logs != "" {
			o.Err = fmt.Errorf("%w\n%s", o.Err, logs)
		}
	}
	return o
}

// reason is the text of an ErrNone without what every such text has.
func reason(err error) string {
	_, text, _ := strings.Cut(err.Error(), ErrNone.Error()+": ")
	text, _, _ = strings.Cut(text, "\n") // in a VM and on the host: once is enough
	return text
}

// try is one case while it runs.
type try struct {
	System
	dir     string // of the case, below the system's home
	note    string
	differs bool // in the VM the job ends otherwise than on the host, as note says
	mu      sync.Mutex
	jobs    map[string]*running
}

// running is a job that somebody waits for from the moment of its submission, so that nobody waits for what an ended
// job can not do any more.
type running struct {
	ended  chan struct{}
	result Result // when ended is closed
	err    error
}

var unfit = regexp.MustCompile(`[^a-z0-9]+`)

func newTry(sys System, name string) (*try, error) {
	t := &try{System: sys, jobs: map[string]*running{}}
	var err error
	if t.dir, err = os.MkdirTemp(sys.Home(), unfit.ReplaceAllString(strings.ToLower(name), "-")+"-"); err != nil {
		return t, err
	}
	return t, errors.Join(os.Chmod(t.dir, 0o755), os.Chown(t.dir, nobody, nobody))
}

// end leaves no job behind, whatever became of the case.
func (t *try) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for id, j := range t.jobs {
		select {
		case <-j.ended:
			if j.err == nil {
				continue
			}
		default:
		}
		if t.Kill(ctx, id) == nil {
			t.System.Wait(ctx, id)
		}
	}
}

func (t *try) file(name string) string { return filepath.Join(t.dir, name) }

// submit queues a job in the case's directory.
func (t *try) submit(ctx context.Context, j Job) (string, error) {
	if j.Dir == "" {
		j.Dir = t.dir
	}
	id, err := t.Submit(ctx, j)
	if err != nil {
		return "", fmt.Errorf("submit: %w", err)
	}
	r := &running{ended: make(chan struct{})}
	t.mu.Lock()
	t.jobs[id] = r
	t.mu.Unlock()
	go func() {
		defer close(r.ended)
		r.result, r.err = t.System.Wait(ctx, id)
	}()
	return id, nil
}

func (t *try) running(id string) *running {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.jobs[id]
}

// wait is for the end of a job.
func (t *try) wait(ctx context.Context, id string) (Result, error) {
	j := t.running(id)
	select {
	case <-j.ended:
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
	if j.err != nil {
		out, errOut := t.Output(id)
		return j.result, fmt.Errorf("wait for job %s: %w\nstdout: %s\nstderr: %s", id, j.err, brief(out), brief(errOut))
	}
	return j.result, nil
}

// job is one job from its submission to its end.
func (t *try) job(ctx context.Context, j Job) (Result, error) {
	id, err := t.submit(ctx, j)
	if err != nil {
		return Result{}, err
	}
	return t.wait(ctx, id)
}

// both runs the same job in a VM and on the host, which is what it is to be compared with.
func (t *try) both(ctx context.Context, j Job) (vm, metal Result, err error) {
	var vmErr, metalErr error
	var wg sync.WaitGroup
	wg.Go(func() { vm, vmErr = t.job(ctx, j) })
	onMetal := j
	onMetal.Metal = true
	wg.Go(func() { metal, metalErr = t.job(ctx, onMetal) })
	wg.Wait()
	if vmErr != nil {
		vmErr = fmt.Errorf("in a VM: %w", vmErr)
	}
	if metalErr != nil {
		metalErr = fmt.Errorf("on the host: %w", metalErr)
	}
	return vm, metal, errors.Join(vmErr, metalErr)
}

// until waits for something that no event tells of.
func until(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, timeout*time.Duration(Slow))
	defer cancel()
	for !holds() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waited %v in vain: %s", timeout*time.Duration(Slow), what)
		}
	}
	return nil
}

// logs is what the system and the host said of the case's jobs, where the system can tell.
func (t *try) logs() string {
	teller, ok := t.System.(interface{ Logs(id string) string })
	if !ok {
		return ""
	}
	var all strings.Builder
	for id := range t.jobs {
		fmt.Fprintf(&all, "logs of job %s:\n%s\n", id, teller.Logs(id))
	}
	return all.String()
}

// says waits until a job has written a text to its output: as long as the case lasts while it is in the queue, and then
// not long.
func (t *try) says(ctx context.Context, id, text string) error {
	j, ended := t.running(id), false
	if err := t.starts(ctx, id); err != nil {
		return err
	}
	err := until(ctx, fmt.Sprintf("job %s writes %q", id, text), func() bool {
		select {
		case <-j.ended: // look once more
			ended = true
		default:
		}
		out, _ := t.Output(id)
		return ended || strings.Contains(out, text)
	})
	out, errOut := t.Output(id)
	switch {
	case err != nil:
		return fmt.Errorf("%w\nstdout: %s\nstderr: %s", err, brief(out), brief(errOut))
	case strings.Contains(out, text):
		return nil
	}
	return fmt.Errorf("job %s did not write %q and ended: %v %v", id, text, j.result, j.err)
}

// starts waits until a job has left the queue: the agent makes a VM for it, or it has written something, or ended.
func (t *try) starts(ctx context.Context, id string) error {
	j := t.running(id)
	began := time.Now()
	for {
		if out, errOut := t.Output(id); out+errOut != "" || t.hasVM(ctx, id) {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-j.ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("job %s did not start in %v: %w", id, time.Since(began).Round(time.Second), ctx.Err())
		}
	}
}

// all runs several parts of a case at the same time.
func all(parts ...func() error) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() { errs[i] = part() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (r Result) String() string {
	text := fmt.Sprintf("%s, status %d, signal %d, runs %d, CPU %v, MaxRSS %d", r.State, r.Code, r.Signal, r.Runs,
		r.CPU, r.MaxRSS)
	if r.Reason != "" {
		text += ", reason: " + r.Reason
	}
	return text + "\n  stdout: " + brief(r.Stdout) + "\n  stderr: " + brief(r.Stderr)
}

// brief is a text for a message: its beginning and its end.
func brief(text string) string {
	const most = 600
	if len(text) > most {
		return fmt.Sprintf("%q ... %q (%d bytes)", text[:most/2], text[len(text)-most/2:], len(text))
	}
	return fmt.Sprintf("%q", text)
}

// sameEnd reports how a job in a VM ended differently from the same on the host.
func sameEnd(vm, metal Result) error {
	if vm.State != metal.State || vm.Code != metal.Code || vm.Signal != metal.Signal {
		return fmt.Errorf("ended in a VM otherwise than on the host:\n vm    %v\n metal %v", vm, metal)
	}
	return nil
}
