package slurmlab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/batch/slurm"
)

// queue is Slurm's, with the jobs of a lab.
type queue struct {
	*programs

	mu    sync.Mutex
	jobs  map[string]*job
	count int
}

// job is what the lab has to remember of one that it submitted.
type job struct {
	out, err string // paths; %a for the element of an array
	array    int
	srun     *exec.Cmd // runs in front of it, where it is no script
	ended    chan struct{}
}

// Name and version, for the table.
func (l *Lab) Name() string {
	switch {
	case l.o.OCI:
		return "Slurm OCI " + l.release.String()
	case l.installed:
		return "Slurm on systemd " + l.release.String()
	}
	return "Slurm " + l.release.String()
}

// Lab is the agent's; nil in a Slurm without grange.
func (l *Lab) Lab() *lab.Lab { return l.host }

// Home is where the jobs' files lie, on the host and in every VM.
func (p *programs) Home() string { return p.path("home") }

// Slots is how many jobs of one CPU run at once.
func (l *Lab) Slots() int { return l.cpus() }

func dials(port int) bool {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// Submit queues a job with sbatch, or runs it with srun where it is no script.
func (q *queue) Submit(ctx context.Context, j conform.Job) (string, error) {
	q.mu.Lock()
	q.count++
	base := q.path(fmt.Sprintf("home/job-%d", q.count))
	name := fmt.Sprintf("%s-%d", q.Node(), q.count)
	q.mu.Unlock()
	rec := &job{out: base + ".out", err: base + ".err", array: j.Array}
	args := []string{"--job-name=" + name}
	if j.Array > 0 {
		rec.out, rec.err = base+".%a.out", base+".%a.err"
		args = append(args, fmt.Sprintf("--array=1-%d", j.Array))
	}
	args = append(args, "--output="+rec.out, "--error="+rec.err)
	if q.o.OCI && len(j.Mounts) > 0 {
		return "", conform.ErrNoMounts
	}
	if len(j.Mounts) > 0 {
		args = append(args, "--vm-mount="+strings.Join(j.Mounts, ","))
	}
	if !q.o.NoPlugin {
		switch {
		case q.o.OCI && j.Metal: // what names no bundle
		case q.o.OCI:
			bundle, err := q.Bundle(j.Image)
			if err != nil {
				return "", err
			}
			args = append(args, "--container="+bundle)
		case j.Metal:
			args = append(args, "--no-vm")
		case j.Image != "":
			args = append(args, "--vm="+j.Image)
		}
	}
	if j.Memory > 0 {
		args = append(args, fmt.Sprintf("--mem=%d", j.Memory))
	}
	if j.CPUs > 1 { // one is what everybody gets; said aloud, 24.11 wants one for each task also with --overcommit
		args = append(args, fmt.Sprintf("--cpus-per-task=%d", j.CPUs))
	}
	if j.Tasks > 0 {
		// On one CPU: a job that needs the whole node waits until nothing else runs.
		args = append(args, fmt.Sprintf("--ntasks=%d", j.Tasks), "--overcommit")
	}
	if j.Limit > 0 { // in minutes, rounded up
		args = append(args, fmt.Sprintf("--time=%d", (j.Limit+time.Minute-1)/time.Minute))
	}
	dir := j.Dir
	if dir == "" {
		dir = q.Home()
	}
	args = append(args, "--chdir="+dir)
	if j.Stdin != "" {
		if err := os.WriteFile(base+".in", []byte(j.Stdin), 0o644); err != nil {
			return "", err
		}
		args = append(args, "--input="+base+".in")
	}
	if j.Script == "" {
		return q.srun(ctx, rec, name, append(args, j.Argv...), j)
	}
	if err := os.WriteFile(base+".sh", []byte(j.Script), 0o755); err != nil {
		return "", err
	}
	args = append(append(append([]string{"--parsable"}, args...), base+".sh"), j.Args...)
	program := "sbatch"
	if j.Umask != 0 || j.Shell != "" { // sbatch takes both from its caller
		shell := fmt.Sprintf("umask %o; %s\nexec sbatch \"$@\"", cmp.Or(j.Umask, 0o022), cmp.Or(j.Shell, ":"))
		program, args = "/bin/sh", append([]string{"-c", shell, "sh"}, args...)
	}
	cmd := q.Command(ctx, User, program, args...)
	cmd.Env = append(cmd.Env, j.Env...)
	out, err := run(cmd)
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";")
	return id, q.remember(id, rec)
}

// others are cases in which it makes no difference how the wrapper was started; with several tasks Slurm 22.05 starts
// none in a container.
var others = regexp.MustCompile(
	`^(limits|time limit|accounting|out of memory|array|tasks|mixed|own VM|input file|output|exit (0|255)|death by (ABRT|TERM|KILL)|fail closed: hypervisor down)$`)

// Tries leaves them out where bundles are the way in.
func (l *Lab) Tries(name string) bool { return !l.o.OCI || !others.MatchString(name) }

// Bundle is the directory that stands for an image; "": for the one that there is.
func (q *queue) Bundle(image string) (string, error) {
	if image == "" {
		image = "micro"
	}
	dir := q.path("bundle/" + image)
	text, err := slurm.Bundle(image, "")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if file := filepath.Join(dir, "config.json"); !exists(file) {
		return dir, os.WriteFile(file, text, 0o644)
	}
	return dir, nil
}

func (q *queue) remember(id string, rec *job) error {
	if _, err := strconv.Atoi(id); err != nil {
		return fmt.Errorf("invalid job id %q", id)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs[id] = rec
	return nil
}

// srun starts a job that is a command, and learns its number from Slurm: srun tells it only when it starts.
func (q *queue) srun(ctx context.Context, rec *job, name string, args []string, j conform.Job) (string, error) {
	cmd := q.Command(context.WithoutCancel(ctx), User, "srun", args...)
	cmd.Env = append(cmd.Env, j.Env...)
	log, err := os.Create(strings.TrimSuffix(rec.out, ".out") + ".srun")
	if err != nil {
		return "", err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	rec.srun, rec.ended = cmd, make(chan struct{})
	go func() {
		cmd.Wait()
		close(rec.ended)
	}()
	for {
		out, err := q.Slurm(ctx, "root", "squeue", "-h", "-a", "-t", "all", "-n", name, "-o", "%A")
		if id := strings.TrimSpace(out); err == nil && id != "" {
			return id, q.remember(id, rec)
		}
		select {
		case <-rec.ended:
			text, _ := os.ReadFile(log.Name())
			if len(text) > 0 {
				return "", fmt.Errorf("srun: %s", text)
			}
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Output is what the job wrote so far; that of an array in the order of its elements.
func (q *queue) Output(id string) (stdout, stderr string) {
	q.mu.Lock()
	rec := q.jobs[id]
	q.mu.Unlock()
	if rec == nil {
		return "", ""
	}
	read := func(path string) string {
		var all strings.Builder
		for element := range max(rec.array, 1) {
			text, _ := os.ReadFile(strings.ReplaceAll(path, "%a", strconv.Itoa(element+1)))
			all.Write(text)
		}
		return all.String()
	}
	return read(rec.out), read(rec.err)
}

// Cancel is scancel.
func (q *queue) Cancel(ctx context.Context, id string) error {
	_, err := q.Slurm(ctx, User, "scancel", id)
	return err
}

// Kill is SIGKILL to all of the job, and its end in the queue if it waits there.
func (q *queue) Kill(ctx context.Context, id string) error {
	_, err := q.Slurm(ctx, User, "scancel", "--full", "--signal=KILL", id)
	if _, cancelled := q.Slurm(ctx, User, "scancel", "--state=PENDING", id); err != nil {
		return cancelled
	}
	return nil
}

// Suspend is `scontrol suspend`.
func (q *queue) Suspend(ctx context.Context, id string) error {
	_, err := q.Slurm(ctx, "root", "scontrol", "suspend", id)
	return err
}

// Resume is `scontrol resume`.
func (q *queue) Resume(ctx context.Context, id string) error {
	_, err := q.Slurm(ctx, "root", "scontrol", "resume", id)
	return err
}

// Wait polls, for sbatch --wait polls in steps of many seconds.
func (q *queue) Wait(ctx context.Context, id string) (conform.Result, error) {
	hurried := "0"
	for {
		records, err := q.shown(ctx, id)
		if err != nil {
			return conform.Result{}, err
		}
		if !slices.ContainsFunc(records, func(r Record) bool { return !r.ended() }) {
			return q.result(ctx, id, records)
		}
		if r := records[0]; r["JobState"] == "PENDING" && r["Reason"] == "BeginTime" && r["Restarts"] != hurried {
			// Slurm lets a job that was queued again wait for two minutes. Nothing happens in them. But in the second
			// in which it ended slurmd takes its new credential for the old one, and slurmctld then fails the job, with
			// status 1.
			if _, err := q.Slurm(ctx, "root", "scontrol", "update", "jobid="+id, "StartTime=now+2seconds"); err == nil {
				hurried = r["Restarts"]
			}
		}
		select {
		case <-ctx.Done():
			return conform.Result{}, fmt.Errorf("job %s is %v: %w", id, records, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Record is what `scontrol show job` tells of a job, or of an element of an array.
type Record map[string]string

func (r Record) String() string {
	return fmt.Sprintf("%s (%s, exit code %s, restarts %s)", r["JobState"], r["Reason"], r["ExitCode"], r["Restarts"])
}

// ended: for good. Held after its VM could not be started counts: nothing happens any more without somebody's help.
func (r Record) ended() bool {
	switch r["JobState"] {
	case "PENDING":
		return r.held()
	case "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED", "STAGE_OUT", "SIGNALING", "STOPPED", "":
		return false
	}
	return true
}

func (r Record) held() bool {
	reason := strings.ToLower(r["Reason"])
	return r["JobState"] == "REQUEUE_HOLD" || r["JobState"] == "SPECIAL_EXIT" || strings.Contains(reason, "held") ||
		strings.Contains(reason, "requeue_hold") || strings.Contains(reason, "maxrequeue")
}

// shown is Show on a busy machine, where slurmctld may not answer for longer than scontrol waits.
func (q *queue) shown(ctx context.Context, id string) (records []Record, err error) {
	const patience, pause = 2 * time.Minute, 100 * time.Millisecond
	for began := time.Now(); ; time.Sleep(pause) {
		if records, err = q.Show(ctx, id); err == nil || ctx.Err() != nil || time.Since(began) > patience {
			return records, err
		}
	}
}

// Show is what Slurm knows of a job, one record for each element of an array.
func (q *queue) Show(ctx context.Context, id string) ([]Record, error) {
	out, err := q.Slurm(ctx, "root", "scontrol", "-o", "show", "job", id)
	if err != nil {
		return nil, err
	}
	var records []Record
	for line := range strings.Lines(out) {
		r := Record{}
		for _, field := range strings.Fields(line) {
			if key, value, ok := strings.Cut(field, "="); ok && r[key] == "" {
				r[key] = value
			}
		}
		if r["JobId"] != "" {
			records = append(records, r)
		}
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("scontrol show job %s: %q", id, out)
	}
	return records, nil
}

// result takes the worst of an array's elements.
func (q *queue) result(ctx context.Context, id string, records []Record) (conform.Result, error) {
	r := conform.Result{State: conform.Done, Runs: 1}
	for _, rec := range records {
		one := rec.result()
		if one.State != conform.Done || len(records) == 1 {
			r = one
		}
	}
	q.mu.Lock()
	known := q.jobs[id]
	q.mu.Unlock()
	if known != nil && known.ended != nil {
		select {
		case <-known.ended: // its output is complete
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
	r.Stdout, r.Stderr = q.Output(id)
	if !q.o.Accounting {
		return r, nil
	}
	return r, q.account(ctx, id, &r)
}

func (r Record) result() conform.Result {
	var out conform.Result
	fmt.Sscanf(r["ExitCode"], "%d:%d", &out.Code, &out.Signal)
	restarts, _ := strconv.Atoi(r["Restarts"])
	out.Runs, out.Reason = restarts+1, r["Reason"]
	switch state := r["JobState"]; {
	case r.held():
		out.State = conform.NotStarted
	case state == "COMPLETED":
		out.State = conform.Done
	case state == "CANCELLED":
		out.State = conform.Cancelled
	case state == "TIMEOUT", state == "DEADLINE":
		out.State = conform.Timeout
	case state == "OUT_OF_MEMORY":
		out.State = conform.OutOfMemory
	case state == "BOOT_FAIL", out.Code == 199, out.Code == 197: // as the wrapper ends without a VM
		out.State = conform.NotStarted
	default:
		out.State = conform.Failed
	}
	return out
}

// account asks sacct. slurmctld writes to slurmdbd a moment after the end.
func (q *queue) account(ctx context.Context, id string, r *conform.Result) error {
	for deadline := time.Now().Add(time.Minute); ; {
		out, err := q.Slurm(ctx, "root", "sacct", "-n", "-P", "-D", "-j", id, "-o", "JobID,State,TotalCPU,MaxRSS,End")
		if err != nil {
			return err
		}
		complete := out != ""
		for line := range strings.Lines(out) {
			f := strings.Split(strings.TrimSpace(line), "|")
			if len(f) != 5 {
				return fmt.Errorf("sacct: %q", line)
			}
			complete = complete && f[4] != "Unknown"
			if !strings.Contains(f[0], ".") {
				r.CPU = max(r.CPU, cpuTime(f[2]))
			} else {
				r.MaxRSS = max(r.MaxRSS, size(f[3]))
			}
		}
		if complete || r.State == conform.NotStarted || time.Now().After(deadline) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// cpuTime reads [DD-[HH:]]MM:SS[.mmm].
func cpuTime(text string) time.Duration {
	var total time.Duration
	if days, rest, ok := strings.Cut(text, "-"); ok {
		n, _ := strconv.Atoi(days)
		total, text = time.Duration(n)*24*time.Hour, rest
	}
	var seconds float64
	for _, part := range strings.Split(text, ":") {
		n, _ := strconv.ParseFloat(part, 64)
		seconds = 60*seconds + n
	}
	return total + time.Duration(seconds*float64(time.Second))
}

// size reads 209828K.
func size(text string) int64 {
	units := map[byte]float64{'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'T': 1 << 40}
	if text == "" {
		return 0
	}
	unit, ok := units[text[len(text)-1]]
	if !ok {
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	n, _ := strconv.ParseFloat(text[:len(text)-1], 64)
	return int64(n * unit)
}

// Sound looks at the node and the queue.
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
	nodes, err := l.Slurm(ctx, "root", "sinfo", "-h", "-N", "-o", "%N %T %E")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); len(f) < 2 || f[1] != "idle" {
			wrong = append(wrong, "node "+strings.TrimSpace(line))
		}
	}
	jobs, err := l.Slurm(ctx, "root", "squeue", "-h", "-o", "%i %T %r")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(jobs) {
		wrong = append(wrong, "job "+strings.TrimSpace(line))
	}
	words, _ := filepath.Glob(l.path("words/*"))
	for _, file := range words {
		wrong = append(wrong, "file "+file)
	}
	return wrong
}

// endJobs ends what runs in front of jobs.
func (q *queue) endJobs() {
	q.mu.Lock()
	defer q.mu.Unlock()
	var wg sync.WaitGroup
	for _, j := range q.jobs {
		if j.srun != nil {
			wg.Go(func() {
				j.srun.Process.Signal(syscall.SIGKILL)
				<-j.ended
			})
		}
	}
	wg.Wait()
}

// Break makes something go wrong; what mend does takes as long as the daemons need.
func (l *Lab) Break(ctx context.Context, f conform.Fault) (func(), error) {
	if l.host == nil {
		return nil, errors.New("no grange here")
	}
	if mend, ok, err := conform.BreakHost(ctx, l.host, f); ok {
		return l.resuming(ctx, mend), err
	}
	move := func(name string) (func(), error) {
		hidden := l.path("run/hidden-" + filepath.Base(name))
		if err := os.Rename(l.file(name), hidden); err != nil {
			return nil, err
		}
		return l.resuming(ctx, func() { os.Rename(hidden, l.file(name)) }), nil
	}
	switch f {
	case conform.NoWrapper:
		return move("bin/grange")
	case conform.NoPlugin:
		if l.o.OCI {
			return move("etc/oci.conf") // is all that there is of it
		}
		return move("plugin/grange_spank.so")
	case conform.BrokenHook: // a prolog that is no program
		prolog, err := os.ReadFile(l.file("bin/prolog"))
		if err == nil {
			err = os.WriteFile(l.file("bin/prolog"), []byte("#!/bin/false\n"), 0o755)
		}
		if err != nil {
			return nil, err
		}
		return l.resuming(ctx, func() { os.WriteFile(l.file("bin/prolog"), prolog, 0o755) }), nil
	}
	return nil, fmt.Errorf("%w: %s", conform.ErrNone, f)
}

// resuming mends, ends what was held meanwhile and opens the node again, as an administrator does. A job may be in the
// queue again before slurmd has closed the node for it: so the node has to stay open.
func (l *Lab) resuming(ctx context.Context, mend func()) func() {
	ctx = context.WithoutCancel(ctx)
	return sync.OnceFunc(func() {
		mend()
		const timeout, often, pause = time.Minute, 3, 200 * time.Millisecond
		sound := 0
		for deadline := time.Now().Add(timeout); sound < often && time.Now().Before(deadline); time.Sleep(pause) {
			if wrong := l.soundNow(ctx); len(wrong) == 0 {
				sound++
				continue
			}
			sound = 0
			l.Slurm(ctx, "root", "scancel", "--user="+User, "--state=PENDING")
			l.Slurm(ctx, "root", "scontrol", "update", "nodename="+l.Node(), "state=resume")
		}
	})
}
