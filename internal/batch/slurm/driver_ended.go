package slurm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// place is where a reader of ended jobs is. slurmdbd hears of ends in no order, and late when it was away: whoever
// reads behind the latest end it saw would leave some out. So reading goes back a while each time, and knows by name
// what it has had of that while.
type place struct {
	Until int64    `json:"t"` // all that ended before was handed out, but for what comes late; in seconds
	Had   []string `json:"had"`
}

// lateness is how long a job's end may come behind another's. slurmctld hands over at once, and keeps what slurmdbd
// does not take.
const lateness = 10 * time.Minute

// halfKnown is how long slurmdbd is given to hear of a job's beginning. Of a job that ended within seconds it hears the
// end first: it lists it without partition, and named "allocation", until slurmctld tells the rest, if it ever does.
const halfKnown = 2 * time.Minute

// complete asks slurmctld, which knows jobs for some minutes after their end (MinJobAge), for what slurmdbd has not
// heard.
func (d *Driver) complete(ctx context.Context, jobs []batch.Ended) {
	var ids []string
	at := map[string][]int{}
	for i, j := range jobs {
		if j.Queue == "" {
			ids = append(ids, j.Job)
			at[j.Job] = append(at[j.Job], i)
		}
	}
	const most = 1000 // of one command line
	if len(ids) == 0 || len(ids) > most {
		return
	}
	out, _ := d.command(ctx, "squeue", "--noheader", "--states=all", "--jobs="+strings.Join(ids, ","),
		"--format="+strings.Join([]string{"%A", "%P", "%j"}, separator))
	for line := range strings.Lines(out) {
		f := fields(line, 3)
		if f == nil {
			continue
		}
		for _, i := range at[f[0]] {
			jobs[i].Queue, jobs[i].Name, jobs[i].Reservation = firstOf(f[1]), f[2], batch.ReservationOf(f[2])
		}
	}
}

// endedStates are those of sacct in which a run is over. RQ: it was put back into the queue.
const endedStates = "BF,CA,CD,DL,F,NF,OOM,PR,RQ,TO"

var sacctFields = []string{"JobIDRaw", "JobID", "User", "Account", "Partition", "AllocCPUS", "Submit", "Start", "End",
	"State", "ExitCode", "TotalCPU", "MaxRSS", "NodeList", "JobName", "UserCPU", "SystemCPU", "TRESUsageInTot"}

// Behind is the place behind what ended before a time.
func (d *Driver) Behind(t time.Time) batch.Cursor {
	text, _ := json.Marshal(place{Until: t.Add(lateness).Unix()}) // of numbers and texts
	return batch.Cursor(text)
}

// Ended are jobs as slurmdbd has them.
func (d *Driver) Ended(ctx context.Context, after batch.Cursor, limit int) ([]batch.Ended, batch.Cursor, error) {
	var at place
	if after != "" {
		if err := json.Unmarshal([]byte(after), &at); err != nil {
			return nil, after, batch.NoCursor(farm.Slurm, after)
		}
	}
	// Not from 0: sacct takes that for no time at all, and lists what ends at this moment only.
	const first = 24 * time.Hour
	from := time.Unix(max(at.Until, int64((first+lateness)/time.Second)), 0).Add(-lateness).UTC()
	now := time.Now()
	if from.After(now) {
		return nil, after, nil // sacct refuses to look from a time to come
	}
	var fresh []batch.Ended
	for began, last := from, false; !last && len(fresh) < limit; {
		until := from.Add(d.window.size())
		all, err := d.endedBetween(ctx, from, until)
		d.window.read(len(all), limit, err)
		if err != nil && from == began {
			return nil, after, err
		}
		if err != nil {
			break // what was read is not read again, and less of the rest
		}
		last = until.After(now)
		fresh = append(fresh, at.take(all, limit-len(fresh))...)
		if !last && len(fresh) < limit {
			at.Until = max(at.Until, until.Unix())
		}
		from = until.Add(-lateness)
	}
	text, err := json.Marshal(at)
	return fresh, batch.Cursor(text), err
}

// endedBetween are the jobs that ended in a window, in the order of their ends.
func (d *Driver) endedBetween(ctx context.Context, from, until time.Time) ([]batch.Ended, error) {
	const layout = "2006-01-02T15:04:05"
	end := "now" // by slurmdbd's clock
	if until.Before(time.Now()) {
		end = until.Format(layout)
	}
	lines, err := d.records(ctx, "sacct", len(sacctFields), func(mark string) []string {
		return []string{"--noheader", "--allusers", "--duplicates", "--parsable", "--delimiter=" + mark,
			"--starttime=" + from.Format(layout), "--endtime=" + end, "--state=" + endedStates,
			"--format=" + strings.Join(sacctFields, ",")}
	})
	switch {
	case farm.IsCode(err, batch.CodeBatchGarbled):
		return nil, err
	case err != nil:
		return nil, batch.Away(farm.Slurm, err)
	}
	all, err := parseEnded(lines)
	if err != nil {
		return nil, err
	}
	d.complete(ctx, all)
	return slices.DeleteFunc(all, func(j batch.Ended) bool {
		return j.Finished.Before(from) || j.Finished.After(until) || j.Queue == "" && time.Since(j.Finished) < halfKnown
	}), nil
}

// take hands out what was not handed out before of jobs in the order of their ends, and remembers it.
func (p *place) take(all []batch.Ended, limit int) (fresh []batch.Ended) {
	had := map[string]bool{}
	for _, run := range p.Had {
		had[run] = true
	}
	for _, j := range all {
		if run := runOf(j); len(fresh) < limit && !had[run] {
			fresh = append(fresh, j)
			p.Had, had[run] = append(p.Had, run), true
			p.Until = max(p.Until, j.Finished.Unix())
		}
	}
	horizon := p.Until - int64(lateness/time.Second)
	p.Had = slices.DeleteFunc(p.Had, func(run string) bool { return runEnd(run) < horizon })
	return fresh
}

// Fate asks slurmctld, which knows a job for some minutes after its end (MinJobAge), and then slurmdbd, where there is
// one. A cluster that was made anew gives numbers once more: the job must have the name, too.
func (d *Driver) Fate(ctx context.Context, reservation, job string) (batch.Ended, error) {
	if !isJob(job) {
		return batch.Ended{}, batch.NoJob(farm.Slurm, job)
	}
	out, err := d.command(ctx, "squeue", "--noheader", "--states=all", "--jobs="+job,
		"--format="+strings.Join([]string{"%A", "%T", "%e", "%j"}, separator))
	if err != nil && !program.Said(err, "Invalid job id") {
		return batch.Ended{}, err
	}
	for line := range strings.Lines(out) {
		if f := fields(line, 4); f != nil && f[0] == job && batch.ReservationOf(f[3]) == reservation {
			return fate(job, f[1], f[2]), nil
		}
	}
	// A cluster that keeps no accounts fails here.
	out, err = d.command(ctx, "sacct", "--noheader", "--allocations", "--parsable2", "--delimiter="+separator,
		"--jobs="+job, "--format=JobIDRaw,State,End,JobName")
	if ctx.Err() != nil {
		return batch.Ended{}, err
	}
	if f := fields(out, 4); err == nil && f != nil && f[0] == job && batch.ReservationOf(f[3]) == reservation {
		return fate(job, f[1], f[2]), nil
	}
	return batch.Ended{}, batch.NoJob(farm.Slurm, job)
}

func isJob(id string) bool {
	_, err := strconv.ParseUint(id, 10, 64)
	return err == nil
}

// fate is how a job ended by its state; while that is none of an end, without an outcome.
func fate(job, state, end string) batch.Ended {
	e := batch.Ended{Job: job, Finished: moment(end)}
	state, _, _ = strings.Cut(state, " ") // CANCELLED by 1000
	switch state = strings.TrimSuffix(state, "+"); state {
	case "PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "SIGNALING", "STAGE_OUT",
		"REQUEUED", "RESIZING":
	default:
		e.Outcome = outcome(state)
	}
	return e
}

// runOf names one run: a job that was put back has several.
func runOf(j batch.Ended) string { return fmt.Sprintf("%s@%d", j.Job, j.Finished.Unix()) }

// runEnd is when a run of that name ended.
func runEnd(run string) int64 {
	_, text, _ := strings.Cut(run, "@")
	end, _ := strconv.ParseInt(text, 10, 64) // runOf wrote it
	return end
}

// parseEnded reads sacct: a line of the job, then lines of its steps, which alone know the memory.
func parseEnded(lines [][]string) ([]batch.Ended, error) {
	var jobs []batch.Ended
	var whole, steps time.Duration // the CPU time of the last job: by its own line, and by those of its steps
	for _, f := range lines {
		job, _, step := strings.Cut(f[0], ".")
		if step {
			if n := len(jobs); n > 0 && jobs[n-1].Job == job {
				rss, _ := memory(f[12])
				jobs[n-1].MaxRSS = max(jobs[n-1].MaxRSS, rss)
				steps += cpuTime(f)
				jobs[n-1].CPUTime = batch.Measured(max(whole, steps))
			}
			continue
		}
		whole, steps = cpuTime(f), 0
		cpus, err := strconv.Atoi(f[5])
		code, signal, ok := strings.Cut(f[10], ":")
		// slurmdbd knows a run by its submission: one that is put back is submitted anew. A slurmctld that was killed
		// before it wrote down that a job ended has it run once more, or fail with its node, in the same record.
		j := batch.Ended{Job: job, Run: f[6], User: f[2], Account: f[3], Queue: f[4], CPUs: cpus,
			Submitted: moment(f[6]), Started: moment(f[7]), Finished: moment(f[8]), CPUTime: batch.Measured(whole),
			Hosts: hosts(f[13]), Name: f[14], Reservation: batch.ReservationOf(f[14])}
		var err2, err3 error
		j.Code, err2 = strconv.Atoi(code)
		j.Signal, err3 = strconv.Atoi(signal)
		if err := errors.Join(err, err2, err3); err != nil || !ok {
			return nil, batch.Garbled(farm.Slurm, "sacct", errors.Join(err, fmt.Errorf("%q", f)))
		}
		if j.Finished.IsZero() {
			continue // it runs again
		}
		state, _, _ := strings.Cut(f[9], " ") // CANCELLED by 1000
		j.Outcome = outcome(strings.TrimSuffix(state, "+"))
		jobs = append(jobs, j)
	}
	slices.SortStableFunc(jobs, func(a, b batch.Ended) int {
		return cmp.Or(a.Finished.Compare(b.Finished), cmp.Compare(len(a.Job), len(b.Job)), cmp.Compare(a.Job, b.Job))
	})
	return jobs, nil
}

// cpuTime returns the largest of the CPU times that a line of sacct has; 0 if it has none. TotalCPU is 0 or INVALID for
// steps that ended with their node, or by a signal to all of their processes: TRESUsageInTot has the last sample.
func cpuTime(f []string) time.Duration {
	_, usage, _ := strings.Cut(","+f[17], ",cpu=")
	sampled, _, _ := strings.Cut(usage, ",")
	return max(span(f[11]), span(f[15])+span(f[16]), span(sampled))
}

func outcome(state string) batch.Outcome {
	switch state {
	case "COMPLETED":
		return batch.OutcomeDone
	case "CANCELLED", "PREEMPTED", "REQUEUED", "REVOKED":
		return batch.OutcomeCancelled
	case "TIMEOUT", "DEADLINE":
		return batch.OutcomeTimeout
	case "OUT_OF_MEMORY":
		return batch.OutcomeMemory
	case "NODE_FAIL", "BOOT_FAIL":
		return batch.OutcomeNode
	}
	return batch.OutcomeFailed
}

// hosts expands n[1-3,7],m1. What cannot be expanded stays as it is: it is for people.
func hosts(text string) []string {
	if none(text) == "" || text == "None assigned" {
		return nil
	}
	var out []string
	for _, part := range splitOutside(text) {
		prefix, rest, ok := strings.Cut(part, "[")
		inside, suffix, closed := strings.Cut(rest, "]")
		if !ok || !closed || strings.Contains(suffix, "[") {
			out = append(out, part)
			continue
		}
		for r := range strings.SplitSeq(inside, ",") {
			first, last, ranged := strings.Cut(r, "-")
			a, err := strconv.Atoi(first)
			b := a
			if ranged && err == nil {
				b, err = strconv.Atoi(last)
			}
			const most = 1 << 16
			if err != nil || b < a || b-a > most {
				out = append(out, part)
				break
			}
			for n := a; n <= b; n++ {
				out = append(out, fmt.Sprintf("%s%0*d%s", prefix, len(first), n, suffix))
			}
		}
	}
	return out
}

// splitOutside splits at commas that are in no brackets.
func splitOutside(text string) []string {
	var parts []string
	depth, begin := 0, 0
	for i, r := range text {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth == 0:
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	return append(parts, text[begin:])
}
