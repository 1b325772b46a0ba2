package lsf

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

// place is where a reader of ended jobs is: the latest end it was handed, and the runs it has had that mbatchd still
// lists.
type place struct {
	Until int64    `json:"t"`
	Had   []string `json:"had"`
}

// Ended are jobs that mbatchd still lists after their end: for CLEAN_PERIOD of lsb.params, an hour by default. Whoever
// reads more seldom misses some; the server reads every minute.
func (d *Driver) Ended(ctx context.Context, after batch.Cursor, limit int) ([]batch.Ended, batch.Cursor, error) {
	var at place
	if after != "" {
		if err := json.Unmarshal([]byte(after), &at); err != nil {
			return nil, after, batch.NoCursor(farm.LSF, after)
		}
	}
	records, err := d.jobs(ctx, "-d")
	if err != nil {
		return nil, after, err
	}
	var all []batch.Ended
	for _, r := range records {
		if j, ok := d.ended(r); ok {
			all = append(all, j)
		}
	}
	slices.SortStableFunc(all, func(a, b batch.Ended) int { return a.Finished.Compare(b.Finished) })
	var fresh []batch.Ended
	had := slices.Clone(at.Had)
	at.Had = nil
	for _, j := range all {
		run := fmt.Sprintf("%s@%d", j.Job, j.Finished.Unix())
		if !slices.Contains(had, run) {
			if len(fresh) == limit {
				continue
			}
			fresh = append(fresh, j)
			at.Until = max(at.Until, j.Finished.Unix())
		}
		at.Had = append(at.Had, run)
	}
	if len(fresh) == 0 && after != "" {
		return nil, after, nil
	}
	text, err := json.Marshal(at)
	return fresh, batch.Cursor(text), err
}

func (d *Driver) ended(r record) (batch.Ended, bool) {
	state := r.get("STAT")
	if state != "DONE" && state != "EXIT" {
		return batch.Ended{}, false
	}
	j := batch.Ended{Job: r.id(), Name: r.get("JOB_NAME"), User: r.get("USER"), Account: r.account(),
		Queue: r.get("QUEUE"), Hosts: hostsOf(r.get("EXEC_HOST")), CPUs: r.cpus(),
		Submitted: d.moment(r.get("SUBMIT_TIME")), Started: d.moment(r.get("START_TIME")),
		Finished: d.moment(r.get("FINISH_TIME")), MaxRSS: amount(r.get("MAX_MEM")), Reservation: d.reservation(r),
		Outcome: batch.OutcomeDone, Code: r.number("EXIT_CODE")}
	if f := strings.Fields(r.get("CPU_USED")); len(f) > 0 { // "62.1 second(s)"
		if seconds, err := strconv.ParseFloat(f[0], 64); err == nil {
			j.CPUTime = batch.Measured(time.Duration(seconds * float64(time.Second)))
		}
	}
	if state == "EXIT" {
		j.Outcome = outcome(r.get("EXIT_REASON"))
	}
	if j.Outcome != batch.OutcomeFailed && j.Outcome != batch.OutcomeDone {
		j.Code = 0
	}
	return j, !j.Finished.IsZero()
}

// outcome reads "TERM_OWNER: job killed by owner".
func outcome(reason string) batch.Outcome {
	word, _, _ := strings.Cut(reason, ":")
	switch word {
	case "TERM_OWNER", "TERM_FORCE_OWNER", "TERM_ADMIN", "TERM_FORCE_ADMIN", "TERM_BUCKET_KILL", "TERM_REQUEUE_OWNER",
		"TERM_REQUEUE_ADMIN", "TERM_PREEMPT":
		return batch.OutcomeCancelled
	case "TERM_RUNLIMIT", "TERM_CPULIMIT", "TERM_DEADLINE", "TERM_WINDOW":
		return batch.OutcomeTimeout
	case "TERM_MEMLIMIT", "TERM_SWAP":
		return batch.OutcomeMemory
	case "TERM_ZOMBIE", "TERM_RC_RECLAIM", "TERM_ORPHAN_SYSTEM", "TERM_PROCESSLIMIT_HOST":
		return batch.OutcomeNode
	}
	return batch.OutcomeFailed
}

// hostsOf reads "2*n1:n2".
func hostsOf(text string) []string {
	var hosts []string
	for part := range strings.SplitSeq(text, ":") {
		if _, name, ok := strings.Cut(part, "*"); ok {
			part = name
		}
		if part != "" && !slices.Contains(hosts, part) {
			hosts = append(hosts, part)
		}
	}
	return hosts
}

// Reserve submits the placeholder, unless there is one of this name. Of two that were made at the same moment the later
// one is taken away.
func (d *Driver) Reserve(ctx context.Context, b batch.Reservation) (batch.Reserved, error) {
	if err := b.Validate(); err != nil {
		return batch.Reserved{}, err
	}
	got, err := d.Reserved(ctx, b.Name)
	if !farm.IsKind(err, farm.NotFound) {
		return got, err
	}
	host, err := d.host(ctx, b.Host)
	if err != nil {
		return batch.Reserved{}, err
	}
	if b.CPUs > host.CPUs { // LSF would let it wait for ever
		return batch.Reserved{}, batch.Refused(farm.LSF, fmt.Sprintf("%s has %d slots", b.Host, host.CPUs))
	}
	args := []string{"-J", batch.JobName(b.Name), "-m", b.Host, "-n", strconv.Itoa(b.CPUs), "-R", "span[hosts=1]",
		"-rn", "-o", "/dev/null"}
	if b.Memory > 0 {
		args = append(args, "-M", fmt.Sprintf("%dKB", b.Memory>>10), "-R",
			fmt.Sprintf("rusage[mem=%dKB]", b.Memory>>10))
	}
	if b.Limit > 0 {
		args = append(args, "-W", strconv.Itoa(int((b.Limit+time.Minute-1)/time.Minute)))
	}
	if b.Account != "" {
		args = append(args, "-P", b.Account)
	}
	if queue := cmp.Or(d.o.Hold, b.Queue); queue != "" {
		args = append(args, "-q", queue)
	}
	if _, err := d.command(ctx, "bsub", append(args, "sleep infinity")...); err != nil {
		failed := new(program.Failed)
		if e := new(farm.Error); errors.As(err, &failed) && !errors.As(err, &e) {
			return batch.Reserved{}, batch.Refused(farm.LSF, failed.Said)
		}
		return batch.Reserved{}, err
	}
	return d.Reserved(ctx, b.Name)
}

// reservations are ordered by name, and those of one name with the oldest first. Until one is held LSF does not say for
// which host it waits.
func (d *Driver) reservations(ctx context.Context, only string) ([]batch.Reserved, error) {
	var which []string
	if only != "" {
		which = []string{"-J", batch.JobName(only)}
	}
	jobs, err := d.jobs(ctx, which...)
	if err != nil {
		return nil, err
	}
	var all []batch.Reserved
	for _, r := range jobs {
		name := d.reservation(r)
		if name == "" {
			continue
		}
		b := batch.Reserved{Job: r.id(), Held: r.runs(),
			Reservation: batch.Reservation{Name: name, Account: r.account(), CPUs: r.cpus(),
				Memory: amount(r.get("MEMLIMIT")),
				Queue:  r.get("QUEUE"), Limit: limit(r.get("RUNTIMELIMIT"))}}
		if hosts := hostsOf(r.get("EXEC_HOST")); len(hosts) > 0 {
			b.Host = hosts[0]
		}
		if b.Held {
			b.Since = d.moment(r.get("START_TIME"))
		} else {
			b.Why = cmp.Or(r.get("PEND_REASON"), r.get("STAT"))
		}
		all = append(all, b)
	}
	slices.SortStableFunc(all, func(a, b batch.Reserved) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

func (d *Driver) kill(ctx context.Context, job string) error {
	_, err := d.command(ctx, "bkill", "-s", "KILL", job)
	if program.Said(err, "Job has already finished", "No matching job found", "is not found") {
		return nil
	}
	return err
}
