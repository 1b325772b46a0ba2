package slurm

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
// two; they are singletons of one name, so that Slurm runs one at most, and the later one is taken away here.
func (d *Driver) Reserve(ctx context.Context, b batch.Reservation) (batch.Reserved, error) {
	if err := b.Validate(); err != nil {
		return batch.Reserved{}, err
	}
	if strings.ContainsAny(b.Host, "=, []") {
		return batch.Reserved{}, batch.NoNode(farm.Slurm, b.Host)
	}
	got, err := d.Reserved(ctx, b.Name)
	if !farm.IsKind(err, farm.NotFound) {
		return got, err
	}
	args := []string{"--parsable", "--job-name=" + batch.JobName(b.Name), "--dependency=singleton",
		"--nodelist=" + b.Host, "--nodes=1", "--ntasks=1", "--cpus-per-task=" + strconv.Itoa(b.CPUs), "--no-requeue",
		"--output=/dev/null", "--chdir=/", "--export=NONE", "--time=" + limit(b.Limit)}
	if b.Account != "" {
		args = append(args, "--account="+b.Account)
	}
	if b.Queue != "" {
		args = append(args, "--partition="+b.Queue)
	}
	if b.Memory > 0 {
		args = append(args, fmt.Sprintf("--mem=%dM", (b.Memory+farm.MiB-1)/farm.MiB))
	}
	args = append(append(args, d.o.Hold...), "--wrap=exec sleep infinity")
	if _, err := d.command(ctx, "sbatch", args...); err != nil {
		failed := new(program.Failed)
		if errors.As(err, &failed) && !farm.IsKind(err, farm.Unavailable) {
			return batch.Reserved{}, batch.Refused(farm.Slurm, failed.Said)
		}
		return batch.Reserved{}, err
	}
	return d.Reserved(ctx, b.Name)
}

func limit(d time.Duration) string {
	if d == 0 {
		return "UNLIMITED"
	}
	return strconv.Itoa(int((d + time.Minute - 1) / time.Minute))
}

var reservedFields = []string{"%A", "%T", "%r", "%C", "%m", "%a", "%P", "%S", "%l", "%N", "%n", "%j"}

// reservations are ordered by name, and those of one name with the one that holds the capacity first, then by age.
func (d *Driver) reservations(ctx context.Context, only string) ([]batch.Reserved, error) {
	// Of our own user only: anybody may give a job any name.
	args := []string{"--noheader", "--me", "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED",
		"--format=" + strings.Join(reservedFields, separator)}
	if only != "" {
		args = append(args, "--name="+batch.JobName(only))
	}
	out, err := d.command(ctx, "squeue", args...)
	if err != nil {
		return nil, err
	}
	var all []batch.Reserved
	for line := range strings.Lines(out) {
		f := fields(line, len(reservedFields))
		if f == nil {
			return nil, batch.Garbled(farm.Slurm, "squeue", errors.New(strconv.Quote(line)))
		}
		name := batch.ReservationOf(f[11])
		if name == "" {
			continue
		}
		cpus, err := strconv.Atoi(f[3])
		memory, err2 := memory(f[4])
		if err := errors.Join(err, err2); err != nil {
			return nil, batch.Garbled(farm.Slurm, "squeue", err)
		}
		b := batch.Reserved{Job: f[0], Held: f[1] == "RUNNING" ||
			f[1] == "SUSPENDED", Reservation: batch.Reservation{Name: name, Account: none(f[5]),
			Host: cmp.Or(none(f[9]), none(f[10])), CPUs: cpus, Memory: memory, Queue: firstOf(f[6]), Limit: span(f[8])}}
		if b.Held {
			b.Since = moment(f[7])
		} else {
			b.Why = waitsFor(f[2])
		}
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b batch.Reserved) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(rank(a), rank(b)), cmp.Compare(len(a.Job), len(b.Job)),
			cmp.Compare(a.Job, b.Job))
	})
	return all, nil
}

// waitsFor says in people's words what a job waits for, and Slurm's own word for those who look it up.
func waitsFor(reason string) string {
	for _, r := range []struct{ begins, means string }{
		{"None", "Slurm has not looked at it yet"},
		{"Resources", "other jobs have the CPUs or the memory"},
		{"Priority", "other jobs go before it"},
		{"Dependency", "an earlier job for the same place has not ended yet"},
		{"ReqNodeNotAvail", "the host is down, drained or reserved"},
		{"Reservation", "the host is reserved"},
		{"PartitionTimeLimit", "jobs of the partition have a time limit, and this one has none"},
		{"Partition", "the partition is closed, or has no such host"},
		{"JobHeld", "somebody holds it"},
		{"Assoc", "a limit of the account"},
		{"QOS", "a limit of the quality of service"},
		{"NodeDown", "the host is down"},
		{"BadConstraints", "the host can never hold it"},
	} {
		if strings.HasPrefix(reason, r.begins) {
			return fmt.Sprintf("%s (%s)", r.means, reason)
		}
	}
	return reason
}

func rank(b batch.Reserved) int {
	if b.Held {
		return 0
	}
	return 1
}

// Release cancels all of a name in one command.
func (d *Driver) Release(ctx context.Context, name string) error {
	if !batch.ValidName(name) {
		return nil // no reservation was ever called so
	}
	return d.cancel(ctx, "--me", "--name="+batch.JobName(name))
}

// cancel ends a job. One that has ended meanwhile is no error.
func (d *Driver) cancel(ctx context.Context, which ...string) error {
	_, err := d.command(ctx, "scancel", append([]string{"--quiet"}, which...)...)
	if program.Said(err, "Job/step already completing or completed", "Invalid job id") {
		return nil
	}
	return err
}
