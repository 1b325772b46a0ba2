package gridenginelab

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
)

// Statuses of the wrapper: the job was not started and is not tried again.
const exitNever = 197

// Wait asks qstat until it does not know the job any more, then qacct.
func (l *Lab) Wait(ctx context.Context, id string) (conform.Result, error) {
	for {
		state, err := l.state(ctx, id)
		if err != nil {
			return conform.Result{}, err
		}
		if strings.HasPrefix(state, "E") { // it stays so until somebody clears it
			l.mu.Lock()
			l.jobs[id].error = true
			l.mu.Unlock()
			if err := l.Cancel(ctx, id); err != nil {
				return conform.Result{}, err
			}
		}
		if strings.Contains(state, "r") { // r, dr; not qw, and not Rq
			l.mu.Lock()
			l.jobs[id].ran = true
			l.mu.Unlock()
		}
		if state == "" && l.gone(ctx, id) {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return conform.Result{}, fmt.Errorf("it is in state %q: %w; %s", state, ctx.Err(), l.cell.messages())
		}
	}
	return l.result(ctx, id)
}

// state is the job's letters in qstat; "" when it is not there.
func (l *Lab) state(ctx context.Context, id string) (string, error) {
	out, err := l.cell.run(ctx, master, programs+"/qstat", "-u", "*")
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == id {
			return f[4], nil
		}
	}
	return "", err
}

// gone reports that no VM of the job is left.
func (l *Lab) gone(ctx context.Context, id string) bool {
	vms, err := l.lab.Client.VMs(ctx)
	if err != nil {
		return true // the agent is what is broken
	}
	for _, vm := range vms {
		if _, job, _ := strings.Cut(vm.Batch, "/"); job == id || strings.HasPrefix(job, id+".") {
			return false
		}
	}
	return true
}

func (l *Lab) result(ctx context.Context, id string) (conform.Result, error) {
	j := l.job(id)
	records, err := l.records(ctx, id, j)
	if err != nil {
		return conform.Result{}, err
	}
	r := conform.Result{State: conform.Done, Runs: len(records)}
	r.Stdout, r.Stderr = l.Output(id)
	if j.Array > 0 {
		r.Runs = 1
	}
	for _, record := range records {
		if one := record.result(j); one.State != conform.Done || j.Array == 0 {
			r.State, r.Code, r.Signal, r.Reason = one.State, one.Code, one.Signal, one.Reason
		}
		r.CPU += seconds(record["cpu"])
		r.MaxRSS = max(r.MaxRSS, size(record["maxvmem"]))
	}
	if len(records) == 0 && j.ended {
		r.State = conform.Cancelled // while it waited
	}
	if j.error {
		r.State = conform.NotStarted
	}
	return r, nil
}

// record is one of qacct's: the end of one run of a job.
type record map[string]string

// records waits for the accounting, which comes a little after the end. A job that was deleted while it waited has
// none.
func (l *Lab) records(ctx context.Context, id string, j *job) ([]record, error) {
	deadline := time.Now().Add(time.Minute)
	if j.ended && !j.ran {
		deadline = time.Now().Add(3 * time.Second)
	}
	for {
		out, err := l.cell.run(ctx, master, programs+"/qacct", "-j", id)
		var found []record
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "=====") {
				found = append(found, record{})
				continue
			}
			if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && len(found) > 0 {
				found[len(found)-1][key] = strings.TrimSpace(value)
			}
		}
		if len(found) >= max(1, j.Array) || j.ended && time.Now().After(deadline) {
			return found, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, fmt.Errorf("qacct knows no end of job %s: %v", id, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (r record) result(j *job) conform.Result {
	failed, why, _ := strings.Cut(r["failed"], ":")
	code, _ := strconv.Atoi(strings.TrimSpace(strings.Fields(r["exit_status"] + " ")[0]))
	out := conform.Result{State: conform.Failed, Code: code,
		Reason: strings.TrimSpace("failed " + strings.TrimSpace(failed) + " " + why)}
	if code > 128 && code < 192 {
		out.Signal = code - 128
	}
	switch number, _ := strconv.Atoi(strings.TrimSpace(failed)); {
	case number == 37 && j.Limit == 0: // one number for h_rt, h_cpu and h_vmem
		out.State = conform.OutOfMemory
	case number == 37:
		out.State = conform.Timeout
	case j.ended:
		out.State = conform.Cancelled
	case number == 0 && code == 0:
		out.State = conform.Done
	case number != 0 && number < 12 || number == 25 || number == 26 || number == 27 || code == exitNever && !j.Metal:
		out.State = conform.NotStarted
	}
	return out
}

// seconds reads qacct's "1.234s".
func seconds(text string) time.Duration {
	v, _ := strconv.ParseFloat(strings.TrimSuffix(text, "s"), 64)
	return time.Duration(v * float64(time.Second))
}

// size reads qacct's "3.379MB".
func size(text string) int64 {
	for i, unit := range []string{"KB", "MB", "GB", "TB"} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			v, _ := strconv.ParseFloat(number, 64)
			return int64(v * float64(uint64(1)<<(10*(i+1))))
		}
	}
	v, _ := strconv.ParseFloat(strings.TrimSuffix(text, "B"), 64)
	return int64(v)
}
