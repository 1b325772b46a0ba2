package pbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

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
	host, err := d.node(ctx, b.Host)
	if err != nil {
		return batch.Reserved{}, err
	}
	if b.CPUs > host.CPUs { // PBS would let it wait for ever
		return batch.Reserved{}, batch.Refused(farm.PBS, fmt.Sprintf("%s has %d CPUs", b.Host, host.CPUs))
	}
	chunk := fmt.Sprintf("select=1:ncpus=%d:host=%s", b.CPUs, b.Host)
	if b.Memory > 0 {
		chunk += fmt.Sprintf(":mem=%dkb", b.Memory>>10)
	}
	args := []string{"-N", batch.JobName(b.Name), "-r", "n", "-o", "/dev/null", "-e", "/dev/null", "-l", chunk}
	if b.Limit > 0 {
		args = append(args, "-l", fmt.Sprintf("walltime=%d", int((b.Limit+time.Second-1)/time.Second)))
	}
	if b.Account != "" {
		args = append(args, "-A", b.Account)
	}
	if queue := cmp.Or(d.o.Hold, b.Queue); queue != "" {
		args = append(args, "-q", queue)
	}
	if _, err := d.command(ctx, "qsub", append(args, "--", "/bin/sleep", "infinity")...); err != nil {
		failed := new(program.Failed)
		if e := new(farm.Error); errors.As(err, &failed) && !errors.As(err, &e) {
			return batch.Reserved{}, batch.Refused(farm.PBS, failed.Said)
		}
		return batch.Reserved{}, err
	}
	return d.Reserved(ctx, b.Name)
}

// reservations are ordered by name, and those of one name with the oldest first.
func (d *Driver) reservations(ctx context.Context, only string) ([]batch.Reserved, error) {
	jobs, err := d.jobs(ctx)
	if err != nil {
		return nil, err
	}
	var all []batch.Reserved
	for _, j := range jobs {
		name := d.reservation(j)
		if name == "" || only != "" && name != only || j.State == "F" || j.State == "X" || j.State == "E" {
			continue
		}
		b := batch.Reserved{Job: j.id, Held: j.runs(),
			Reservation: batch.Reservation{Name: name, Account: j.account(), CPUs: j.cpus(),
				Memory: size(j.text("mem")),
				Queue:  j.Queue, Limit: j.limit()}}
		for part := range strings.SplitSeq(j.text("select"), ":") {
			if host, ok := strings.CutPrefix(part, "host="); ok {
				b.Host = host
			}
		}
		if b.Held {
			b.Since = moment(j.Started)
		} else {
			b.Why = cmp.Or(j.Comment, "it waits for the scheduler")
		}
		all = append(all, b)
	}
	slices.SortStableFunc(all, func(a, b batch.Reserved) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

func (d *Driver) delete(ctx context.Context, job string) error {
	_, err := d.command(ctx, "qdel", job)
	if program.Said(err, "Unknown Job Id", "Job has finished") {
		return nil
	}
	return err
}
