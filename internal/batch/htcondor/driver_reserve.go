package htcondor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/classad"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

// Reserve submits the placeholder, unless there is one of this name. Two processes that do so at the same moment make
// two; the later one is taken away here.
func (d *Driver) Reserve(ctx context.Context, b batch.Reservation) (batch.Reserved, error) {
	if err := b.Validate(); err != nil {
		return batch.Reserved{}, err
	}
	if b.Queue != "" {
		return batch.Reserved{}, batch.Refused(farm.HTCondor, "it has no queues, and none called "+b.Queue)
	}
	got, err := d.Reserved(ctx, b.Name)
	if !farm.IsKind(err, farm.NotFound) {
		return got, err
	}
	n, err := d.node(ctx, b.Host)
	if err != nil {
		return batch.Reserved{}, err
	}
	if b.CPUs > n.CPUs || b.Memory > n.Memory { // HTCondor would let it wait for ever
		return batch.Reserved{}, batch.Refused(farm.HTCondor,
			fmt.Sprintf("%s has %d CPUs and %v", b.Host, n.CPUs, n.Memory))
	}
	name, args, err := d.asOwner(ctx, "condor_submit", "-terse")
	if err != nil {
		return batch.Reserved{}, err
	}
	if _, err := d.command(ctx, name, placeholder(b), args...); err != nil {
		failed := new(program.Failed)
		if errors.As(err, &failed) && !farm.IsKind(err, farm.Unavailable) {
			return batch.Reserved{}, batch.Refused(farm.HTCondor, failed.Said)
		}
		return batch.Reserved{}, err
	}
	return d.Reserved(ctx, b.Name)
}

// asOwner is a command as whoever owns the placeholders.
func (d *Driver) asOwner(ctx context.Context, name string, args ...string) (string, []string, error) {
	if os.Getuid() != 0 || d.o.ReserveAs == "root" {
		return name, args, nil
	}
	u, err := names.Host().Named(ctx, d.o.ReserveAs)
	if err != nil {
		return "", nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadReservation,
			Message: "who owns reservations: " + err.Error(),
			Hint:    "name a user of this host; HTCondor takes no jobs of root"}
	}
	return "setpriv", append([]string{fmt.Sprintf("--reuid=%d", u.UID), fmt.Sprintf("--regid=%d", u.GID),
		"--clear-groups", name}, args...), nil
}

// placeholder is the submit file of a job that does nothing on the host itself. It ends by itself when its time is
// over, and is never held.
func placeholder(b batch.Reservation) string {
	var s strings.Builder
	say := func(key, value string) { fmt.Fprintf(&s, "%s = %s\n", key, value) }
	say("universe", "vanilla")
	say("executable", "/bin/sleep")
	say("transfer_executable", "False")
	say("should_transfer_files", "YES")
	say("arguments", "infinity")
	say("batch_name", batch.JobName(b.Name))
	say("request_cpus", fmt.Sprint(b.CPUs))
	say("request_memory", fmt.Sprint(int64(max(b.Memory, farm.MiB)+farm.MiB-1)/int64(farm.MiB)))
	say("request_disk", "1")
	// Never in the slot of a job that has ended, which a schedd gives to the next one of the same owner: it would be
	// larger than what is reserved.
	say("requirements", "Machine == "+classad.Quote(b.Host)+" && TARGET.DynamicSlot =!= True")
	say("+WantVM", "False")
	say("+GrangeBooking", classad.Quote(b.Name)) // so called in queues since the first release
	say("+GrangeHost", classad.Quote(b.Host))
	ends := "JobStatus == 5"
	if b.Limit > 0 {
		seconds := int64((b.Limit + time.Second - 1) / time.Second)
		say("+GrangeLimit", fmt.Sprint(seconds))
		ends += fmt.Sprintf(" || JobStatus == 2 && time() - JobCurrentStartDate > %d", seconds)
	}
	say("periodic_remove", ends)
	if b.Account != "" {
		say("accounting_group", b.Account)
	}
	return s.String() + "queue\n"
}

// reservations are ordered by name, and those of one name with the oldest first: all who look agree on it.
func (d *Driver) reservations(ctx context.Context, only string) ([]batch.Reserved, error) {
	constraint := "GrangeBooking =!= undefined"
	if only != "" {
		constraint = "GrangeBooking == " + classad.Quote(only)
	}
	jobs, err := d.queue(ctx, fmt.Sprintf("%s && JobStatus =!= %d && JobStatus =!= %d", constraint, jobRemoved,
		jobCompleted))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(jobs, func(a, b job) int {
		return cmp.Or(cmp.Compare(a.GrangeBooking, b.GrangeBooking), cmp.Compare(a.ClusterId, b.ClusterId),
			cmp.Compare(a.ProcId, b.ProcId))
	})
	var all []batch.Reserved
	for _, j := range jobs {
		name := d.reservation(j)
		if name == "" {
			continue
		}
		// The queue says for a moment that a job runs before it says since when.
		since := j.JobCurrentStartDate.time()
		b := batch.Reserved{Job: j.id(), Held: j.runs() &&
			!since.IsZero(), Reservation: batch.Reservation{Name: name, Account: string(j.AcctGroup),
			Host: cmp.Or(j.host(), string(j.GrangeHost)), CPUs: j.RequestCpus.int(),
			Memory: farm.Bytes(j.RequestMemory.value) * farm.MiB,
			Limit:  time.Duration(j.GrangeLimit.value) * time.Second}}
		if b.Held {
			b.Since = since
		} else {
			b.Why = cmp.Or(string(j.HoldReason), "it waits for its host to have room")
		}
		all = append(all, b)
	}
	return all, nil
}

// remove takes a job of ours out of the queue. One that has gone meanwhile is no error.
func (d *Driver) remove(ctx context.Context, id string) error {
	name, args, err := d.asOwner(ctx, "condor_rm", localID(id))
	if err != nil {
		return err
	}
	_, err = d.command(ctx, name, "", args...)
	if failed := new(program.Failed); errors.As(err, &failed) && !farm.IsKind(err, farm.Unavailable) {
		cluster, proc, _ := strings.Cut(localID(id), ".")
		left, listErr := d.queue(ctx, fmt.Sprintf("ClusterId == %s && ProcId == %s && JobStatus =!= %d", cluster, proc,
			jobRemoved))
		if listErr == nil && len(left) == 0 {
			return nil
		}
	}
	return err
}

// localID is the number as HTCondor's commands take it, of a job as we call it.
func localID(id string) string { return id[strings.LastIndexByte(id, '#')+1:] }

// Lookup adds account and end.
func (d *Driver) Lookup(ctx context.Context, a farm.Allotment) (farm.Allotment, error) {
	cluster, proc, ok := strings.Cut(localID(a.Job), ".")
	if !ok || !digits(cluster) || !digits(proc) {
		return a, batch.NoJob(farm.HTCondor, a.Job)
	}
	jobs, err := d.queue(ctx, fmt.Sprintf("ClusterId == %s && ProcId == %s", cluster, proc))
	if err != nil {
		return a, err
	}
	for _, j := range jobs {
		if j.runs() && (j.id() == a.Job || localID(j.id()) == a.Job) {
			a.Account, a.Ends = string(j.AcctGroup), j.ends()
			return a, nil
		}
	}
	return a, batch.NoJob(farm.HTCondor, a.Job)
}

func digits(s string) bool {
	return s != "" && len(s) < 12 && strings.Trim(s, "0123456789") == ""
}
