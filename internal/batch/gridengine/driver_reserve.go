package gridengine

import (
	"cmp"
	"context"
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

// Reserve submits the placeholder, unless there is one of this name. Two processes that do so at the same moment make
// two; the later waits for the end of the earlier (-hold_jid), and is taken away here.
func (d *Driver) Reserve(ctx context.Context, b batch.Reservation) (batch.Reserved, error) {
	if err := b.Validate(); err != nil {
		return batch.Reserved{}, err
	}
	got, err := d.Reserved(ctx, b.Name)
	if !farm.IsKind(err, farm.NotFound) {
		return got, err
	}
	n, err := d.node(ctx, b.Host)
	switch {
	case err != nil:
		return batch.Reserved{}, err
	case b.CPUs > n.CPUs: // qsub takes what never can run
		return batch.Reserved{}, batch.Refused(farm.GridEngine,
			fmt.Sprintf("host %s has %d slots, not %d", b.Host, n.CPUs, b.CPUs))
	case b.Queue != "" && !slices.Contains(n.Queues, b.Queue):
		return batch.Reserved{}, batch.Refused(farm.GridEngine, "host "+b.Host+" is in no queue "+b.Queue)
	}
	name := batch.JobName(b.Name)
	args := []string{"-terse", "-b", "y", "-N", name, "-hold_jid", name, "-wd", "/", "-o", "/dev/null", "-j", "y", "-r",
		"n", "-S", "/bin/sh", "-l", "hostname=" + b.Host}
	if b.Queue != "" {
		args = append(args, "-q", b.Queue)
	}
	if b.Account != "" && d.o.Projects {
		args = append(args, "-P", b.Account)
	} else if b.Account != "" {
		args = append(args, "-A", b.Account)
	}
	if b.CPUs > 1 {
		if d.o.Parallel == "" {
			return batch.Reserved{}, batch.Refused(farm.GridEngine,
				"several CPUs need a parallel environment of one host, which is not configured")
		}
		args = append(args, "-pe", d.o.Parallel, strconv.Itoa(b.CPUs))
	}
	if b.Limit > 0 {
		args = append(args, "-l", fmt.Sprintf("h_rt=%d", int((b.Limit+time.Second-1)/time.Second)))
	}
	if b.Memory > 0 { // of each slot
		args = append(args, "-l", fmt.Sprintf("h_vmem=%dM",
			(b.Memory+farm.Bytes(b.CPUs)*farm.MiB-1)/(farm.Bytes(b.CPUs)*farm.MiB)))
	}
	args = append(append(args, d.o.Hold...), "/bin/sleep", "infinity")
	if _, err := d.command(ctx, "qsub", args...); err != nil {
		if failed := new(program.Failed); errors.As(err, &failed) && !farm.IsKind(err, farm.Unavailable) {
			return batch.Reserved{}, batch.Refused(farm.GridEngine, failed.Said)
		}
		return batch.Reserved{}, err
	}
	return d.Reserved(ctx, b.Name)
}

// reservations are ordered by name, and those of one name with the one that holds the capacity first, then by age. Of
// our own user only: anybody may give a job any name. One that is being deleted is none any more.
func (d *Driver) reservations(ctx context.Context, only string) ([]batch.Reserved, error) {
	jobs, err := d.jobs(ctx, "-u", d.o.User, "-s", "prs", "-r")
	if err != nil {
		return nil, err
	}
	jobs = slices.DeleteFunc(jobs, func(j qstatJob) bool {
		name := batch.ReservationOf(j.name())
		return name == "" || only != "" && name != only || strings.Contains(j.State, "d") || j.Owner != d.o.User
	})
	slices.SortFunc(jobs, func(a, b qstatJob) int {
		// running before pending
		return cmp.Or(cmp.Compare(a.name(), b.name()), -cmp.Compare(a.Listed, b.Listed),
			cmp.Compare(a.Number, b.Number))
	})
	var numbers []int
	for _, j := range jobs {
		numbers = append(numbers, j.Number)
	}
	accounts, err := d.accounts(ctx, numbers)
	if err != nil {
		return nil, err
	}
	var all []batch.Reserved
	for _, j := range jobs {
		memory, err := j.memory()
		if err != nil {
			return nil, batch.Garbled(farm.GridEngine, "qstat", err)
		}
		queue, host := j.where()
		b := batch.Reserved{Job: strconv.Itoa(j.Number), Held: j.running(),
			Reservation: batch.Reservation{Name: batch.ReservationOf(j.name()), Account: accounts[j.Number],
				Host: cmp.Or(host, j.request("hostname")), CPUs: max(j.Slots, 1), Memory: memory,
				Queue: cmp.Or(queue, j.wantedQueue()), Limit: seconds(j.request("h_rt"))}}
		switch {
		case b.Held:
			b.Since = moment(j.Started)
		case strings.Contains(j.State, "E"):
			b.Why = "it could not be started: qstat -j " + b.Job + " says why"
		default:
			b.Why = "it waits for room (state " + j.State + ")"
		}
		all = append(all, b)
	}
	return all, nil
}

func (d *Driver) remove(ctx context.Context, job string) error {
	_, err := d.command(ctx, "qdel", job)
	if program.Said(err, "does not exist", "already in deletion") {
		return nil
	}
	return err
}
