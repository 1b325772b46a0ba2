package condorlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/classad"
)

// job is what the lab has to remember of one that it submitted.
type job struct {
	base  string // of its files; behind it come the element and what it is
	array int    // elements; 0: no array
}

// Name and version, for the table.
func (l *Lab) Name() string { return "HTCondor " + l.version }

// Lab is the agent's.
func (l *Lab) Lab() *lab.Lab { return l.host }

// Home is where the jobs' files lie, on the host and in every VM. It is a file system that all of the pool share.
func (l *Lab) Home() string { return filepath.Join(l.host.Dir, "home") }

// Slots is how many jobs of one CPU run at once.
func (l *Lab) Slots() int { return l.o.CPUs }

// Submit queues a job with condor_submit.
func (l *Lab) Submit(ctx context.Context, j conform.Job) (string, error) {
	if j.Tasks > 0 {
		return "", fmt.Errorf("%w: a job is one process; those of the parallel universe are on slots of their own",
			conform.ErrNone)
	}
	l.mu.Lock()
	l.count++
	rec := &job{base: filepath.Join(l.Home(), fmt.Sprintf("job-%d", l.count)), array: j.Array}
	l.mu.Unlock()
	var s strings.Builder
	say := func(key, value string) { fmt.Fprintf(&s, "%s = %s\n", key, value) }
	say("universe", "vanilla")
	say("should_transfer_files", "NO")
	argv := append([]string{rec.base + ".sh"}, j.Args...)
	if j.Script == "" {
		argv = j.Argv
	} else if err := os.WriteFile(argv[0], []byte(j.Script), 0o755); err != nil {
		return "", err
	}
	say("executable", argv[0])
	say("transfer_executable", "False")
	if len(argv) > 1 {
		say("arguments", QuoteWords(argv[1:]))
	}
	dir := j.Dir
	if dir == "" {
		dir = l.Home()
	}
	say("initialdir", dir)
	say("output", rec.base+".$(Process).out")
	say("error", rec.base+".$(Process).err")
	if j.Stdin != "" {
		if err := os.WriteFile(rec.base+".in", []byte(j.Stdin), 0o644); err != nil {
			return "", err
		}
		say("input", rec.base+".in")
	}
	// In a submit file an element of an array is told its number by a macro.
	say("environment", QuoteWords(append(slices.Clone(j.Env), "CONDOR_PROCESS=$(Process)")))
	if j.CPUs > 0 {
		say("request_cpus", strconv.Itoa(j.CPUs))
	}
	if j.Memory > 0 {
		say("request_memory", strconv.Itoa(j.Memory))
	}
	if j.Limit > 0 {
		// Not allowed_execute_duration: HTCondor 23.9 forgets it when a job starts in the second in which its shadow
		// was born.
		say("allowed_job_duration", strconv.Itoa(int(j.Limit.Seconds())))
	}
	if j.Metal {
		say("+WantVM", "False")
	}
	if j.Image != "" {
		say("+VMImage", classad.Quote(j.Image))
	}
	if len(j.Mounts) > 0 {
		say("+VMMounts", classad.Quote(strings.Join(j.Mounts, ",")))
	}
	say("queue", "")
	text := strings.Replace(s.String(), "queue = \n", fmt.Sprintf("queue %d\n", max(j.Array, 1)), 1)
	if err := os.WriteFile(rec.base+".sub", []byte(text), 0o644); err != nil {
		return "", err
	}
	out, err := l.Condor(ctx, "nobody", "condor_submit", "-terse", rec.base+".sub")
	if err != nil {
		return "", err
	}
	return l.follow(out, rec)
}

// Follow lets Wait wait for the job of which condor_submit -terse printed out, and returns its ID.
func (l *Lab) Follow(out string) (string, error) { return l.follow(out, &job{}) }

func (l *Lab) follow(out string, rec *job) (string, error) {
	first, _, _ := strings.Cut(strings.TrimSpace(out), " ") // "5.0 - 5.1"
	cluster, _, ok := strings.Cut(first, ".")
	if _, err := strconv.Atoi(cluster); err != nil || !ok {
		return "", fmt.Errorf("condor_submit said %q", out)
	}
	// As the agent calls it: with the name of the access point.
	id := name + "#" + cluster
	if rec.array == 0 {
		id += ".0"
	}
	l.mu.Lock()
	l.jobs[id] = rec
	l.mu.Unlock()
	return id, nil
}

// QuoteWords writes words as submit files have arguments and environment.
func QuoteWords(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("'" + strings.ReplaceAll(strings.ReplaceAll(w, "'", "''"), `"`, `""`) + "'")
	}
	return `"` + b.String() + `"`
}

// ad is what we ask of a job.
type ad struct {
	ProcId           int
	JobStatus        int
	ExitCode         *int
	ExitStatus       int
	ExitBySignal     bool
	ExitSignal       int
	HoldReason       string
	HoldReasonCode   int
	RemoveReason     string
	NumShadowStarts  int
	NumJobStarts     int
	RemoteUserCpu    float64
	RemoteSysCpu     float64
	ResidentSetSize  any
	MemoryUsage      any
	CpusUsage        float64
	RemoteHost       string
	LastRemoteHost   string
	LastVacateReason string `json:"VacateReason"`
}

const (
	idle       = 1
	running    = 2
	removed    = 3
	completed  = 4
	held       = 5
	exitNever  = 197 // the wrapper's
	overTime   = 46  // HoldReasonCode: of the job's whole time
	overRun    = 47  // of one run
	overMemory = 34
)

// local is the number as HTCondor's own commands take it.
func local(id string) string { return strings.TrimPrefix(id, name+"#") }

func (l *Lab) ads(ctx context.Context, program, id string) ([]ad, error) {
	out, err := l.Condor(ctx, "root", program, local(id), "-json")
	if err != nil {
		return nil, err
	}
	var all []ad
	if out = strings.TrimSpace(out); out == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("%s %s: %w", program, id, err)
	}
	return all, nil
}

// Wait returns when no element of the job will run any more. A held job has ended: its user has to do something. It is
// removed.
func (l *Lab) Wait(ctx context.Context, id string) (conform.Result, error) {
	l.mu.Lock()
	rec := l.jobs[id]
	l.mu.Unlock()
	if rec == nil {
		return conform.Result{}, fmt.Errorf("no job %s", id)
	}
	final := map[int]ad{}
	for {
		queue, err := l.ads(ctx, "condor_q", id)
		if err != nil {
			return conform.Result{}, err
		}
		open := 0
		for _, a := range queue {
			if a.JobStatus == held {
				final[a.ProcId] = a
			} else {
				open++
			}
		}
		if open == 0 && !l.starters(id) {
			break
		}
		select {
		case <-ctx.Done():
			return conform.Result{}, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	if len(final) > 0 {
		if _, err := l.Condor(ctx, "root", "condor_rm", local(id)); err != nil {
			return conform.Result{}, err
		}
	}
	for deadline := time.Now().Add(time.Minute); len(final) < max(rec.array, 1); {
		past, err := l.ads(ctx, "condor_history", id)
		if err != nil {
			return conform.Result{}, err
		}
		for _, a := range past {
			if _, ok := final[a.ProcId]; !ok {
				final[a.ProcId] = a
			}
		}
		if time.Now().After(deadline) {
			return conform.Result{}, fmt.Errorf("job %s is neither in the queue nor in the history", id)
		}
	}
	if err := l.gone(ctx, id); err != nil {
		return conform.Result{}, err
	}
	r := result(final[0])
	for proc := 1; proc < rec.array; proc++ {
		if one := result(final[proc]); one.State != conform.Done {
			r.State, r.Code, r.Signal, r.Reason = one.State, one.Code, one.Signal, one.Reason
		}
	}
	r.Stdout, r.Stderr = l.Output(id)
	return r, nil
}

// gone waits for the end of the job's VM.
func (l *Lab) gone(ctx context.Context, id string) error {
	for {
		vms, err := l.host.Client.VMs(ctx)
		if err != nil { // a case killed the agent: it will see for itself
			return nil
		}
		if !slices.ContainsFunc(vms, func(vm api.VM) bool {
			return vm.Batch == "htcondor/"+id || strings.HasPrefix(vm.Batch, "htcondor/"+id+".")
		}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the VM of job %s stays: %w", id, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// starters reports whether a starter still has the job, or one of its elements.
func (l *Lab) starters(id string) bool {
	ours, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", l.root.pid))
	if err != nil {
		return false
	}
	paths, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range paths {
		dir := filepath.Dir(path)
		if comm, err := os.ReadFile(path); err != nil || string(comm) != "condor_starter\n" {
			continue
		}
		if ns, err := os.Readlink(dir + "/ns/pid"); err != nil || ns != ours {
			continue
		}
		text, err := os.ReadFile(dir + "/cwd/.job.ad")
		if err != nil {
			continue
		}
		if ad, err := classad.Parse(string(text)); err == nil && (strings.HasPrefix(ad.String("GlobalJobId"), id+"#") ||
			strings.HasPrefix(ad.String("GlobalJobId"), id+".")) {
			return true
		}
	}
	return false
}

func result(a ad) conform.Result {
	r := conform.Result{Runs: a.NumShadowStarts,
		CPU: time.Duration((a.RemoteUserCpu + a.RemoteSysCpu) * float64(time.Second)), Reason: a.HoldReason}
	const kib, mib = 1 << 10, 1 << 20
	if v, ok := a.ResidentSetSize.(float64); ok {
		r.MaxRSS = int64(v) * kib
	}
	if v, ok := a.MemoryUsage.(float64); ok { // an expression while nothing was measured
		r.MaxRSS = max(r.MaxRSS, int64(v)*mib)
	}
	if a.ExitCode != nil {
		r.Code = *a.ExitCode
	}
	if a.ExitBySignal {
		r.Code, r.Signal = 0, a.ExitSignal
	}
	switch {
	case a.JobStatus == removed:
		r.State, r.Reason = conform.Cancelled, a.RemoveReason
	case a.JobStatus == held && (a.HoldReasonCode == overRun || a.HoldReasonCode == overTime):
		r.State = conform.Timeout
	case a.JobStatus == held && a.HoldReasonCode == overMemory:
		r.State = conform.OutOfMemory
	case a.JobStatus != completed, r.Code == exitNever && !a.ExitBySignal:
		r.State = conform.NotStarted
	case r.Code == 0 && r.Signal == 0:
		r.State = conform.Done
	default:
		r.State = conform.Failed
	}
	return r
}

// Output is what the job has written so far.
func (l *Lab) Output(id string) (stdout, stderr string) {
	l.mu.Lock()
	rec := l.jobs[id]
	l.mu.Unlock()
	if rec == nil {
		return "", ""
	}
	for proc := range max(rec.array, 1) {
		out, _ := os.ReadFile(fmt.Sprintf("%s.%d.out", rec.base, proc))
		errs, _ := os.ReadFile(fmt.Sprintf("%s.%d.err", rec.base, proc))
		stdout, stderr = stdout+string(out), stderr+string(errs)
	}
	return stdout, stderr
}

// Cancel is condor_rm.
func (l *Lab) Cancel(ctx context.Context, id string) error {
	_, err := l.Condor(ctx, "nobody", "condor_rm", local(id))
	return err
}

// Kill takes the job from its slot without asking it, and then from the queue. HTCondor has no one command for both.
func (l *Lab) Kill(ctx context.Context, id string) error {
	l.Condor(ctx, "root", "condor_vacate_job", "-fast", local(id)) // an error: it does not run
	_, err := l.Condor(ctx, "root", "condor_rm", local(id))
	return err
}

// Suspend and Resume are those of an administrator.
func (l *Lab) Suspend(ctx context.Context, id string) error {
	_, err := l.Condor(ctx, "root", "condor_suspend", local(id))
	return err
}

func (l *Lab) Resume(ctx context.Context, id string) error {
	_, err := l.Condor(ctx, "root", "condor_continue", local(id))
	return err
}

// Break makes something go wrong.
func (l *Lab) Break(ctx context.Context, f conform.Fault) (func(), error) {
	hide := func(hook string) (func(), error) {
		path := l.root.path(l.site.Dir + "/condor-" + hook)
		return func() { os.Rename(path+".hidden", path) }, os.Rename(path, path+".hidden")
	}
	switch f {
	case conform.NoAgent, conform.NoHypervisor:
		// As long as the startd has not looked again, its ad says what was: jobs come, and the wrapper is all there is.
		show, err := hide("cron")
		if err != nil {
			return nil, err
		}
		mend, _, err := conform.BreakHost(ctx, l.host, f)
		if err != nil {
			show()
			return nil, err
		}
		return l.mending(ctx, func() { mend(); show() }), nil
	case conform.NoImage:
		return func() {}, nil // the case asks for it
	case conform.NoWrapper:
		mend, err := hide("wrapper")
		return l.mending(ctx, mend), err
	case conform.BrokenHook: // a wrapper that is no wrapper
		path := l.root.path(l.site.Dir + "/condor-wrapper")
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte("#!/bin/false\n"), 0o755); err != nil {
			return nil, err
		}
		return l.mending(ctx, func() { os.WriteFile(path, text, 0o755) }), nil
	case conform.NoPlugin:
		return nil, fmt.Errorf("%w: HTCondor has no plug-in of ours", conform.ErrNone)
	}
	return nil, fmt.Errorf("%w: %s", conform.ErrNone, f)
}

// mending mends, and waits until the host says again that it can make VMs.
func (l *Lab) mending(ctx context.Context, mend func()) func() {
	ctx = context.WithoutCancel(ctx)
	return sync.OnceFunc(func() {
		mend()
		l.await(ctx)
	})
}

// idle waits until no job runs.
func (l *Lab) idle(ctx context.Context) {
	for ctx.Err() == nil {
		if out, err := l.Condor(ctx, "root", "condor_q", "-af", "ClusterId"); err == nil &&
			strings.TrimSpace(out) == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Sound looks at the slots and the queue.
func (l *Lab) Sound(ctx context.Context) []string {
	const timeout = time.Minute
	for deadline := time.Now().Add(timeout); ; time.Sleep(200 * time.Millisecond) {
		wrong := l.soundNow(ctx)
		if len(wrong) == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			return wrong
		}
	}
}

func (l *Lab) soundNow(ctx context.Context) []string {
	var wrong []string
	slots, slotErr := l.Condor(ctx, "root", "condor_status", "-af", "Name", "State", "GrangeReady", "Cpus")
	queue, queueErr := l.Condor(ctx, "root", "condor_q", "-allusers", "-af", "ClusterId", "JobStatus", "HoldReason")
	if err := errors.Join(slotErr, queueErr); err != nil {
		return []string{err.Error()}
	}
	if want := fmt.Sprintf("slot1@%s Unclaimed true %d", name, l.o.CPUs); strings.TrimSpace(slots) != want {
		wrong = append(wrong, "slots: "+strings.TrimSpace(slots))
	}
	for line := range strings.Lines(queue) {
		wrong = append(wrong, "job "+strings.TrimSpace(line))
	}
	return wrong
}
