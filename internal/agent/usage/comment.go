package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// Comments are what a batch system shows of its jobs beside what it says of them itself.
type Comments struct {
	System farm.BatchSystem
	Set    func(ctx context.Context, job, text string) error // batch.Commenter's
}

// The times of comments.
const (
	commentAgain = time.Minute         // after a system did not take one
	commentLate  = time.Hour           // behind a VM's end; then nobody tries any more
	commentJob   = 31 * 24 * time.Hour // that VMs of a job come one after the other, at most
	commentLimit = 30 * time.Second    // of one attempt
	commentRead  = 1000                // records at once
)

// commented are batch jobs that have had VMs here.
type commented struct {
	jobs map[string]*used     // by batch system and job, as slurm/17
	due  map[string]time.Time // since when a comment is to be written
}

// used is what the VMs of a job have used.
type used struct {
	uid         uint32
	vms, cores  int
	job, vm     float64 // seconds of CPU time
	peak, asked farm.Bytes
	ended       string // of the last VM
	last        time.Time
}

// comment has a batch system show what the programs of its jobs have used, whenever one of their VMs has ended, until
// ctx ends. A system that is away is asked again for an hour, also after a restart. The records count, whatever a
// comment says.
func (d *Desk) comment(ctx context.Context, to Comments) {
	c := commented{jobs: map[string]*used{}, due: map[string]time.Time{}}
	told := d.records.told()
	at := d.records.lately(time.Now().Add(-commentJob))
	for ctx.Err() == nil {
		changed := d.records.changed()
		news, behind, err := d.records.since(at, commentRead)
		for _, u := range news {
			c.add(u, to.System, time.Now(), !behind.after(told))
		}
		at = behind
		c.forget(time.Now())
		if err == nil && len(news) == commentRead {
			continue
		}
		err = errors.Join(err, c.tell(ctx, to, time.Now()))
		if len(c.due) == 0 && at.after(told) {
			told = at
			err = errors.Join(err, d.records.tellTo(told))
		}
		if ctx.Err() == nil {
			d.comments.Log(d.Log, "comments of jobs are not written", err)
		}
		var again <-chan time.Time
		if len(c.due) > 0 {
			again = time.After(commentAgain)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// add counts a record, of which its job's comment may have been told. Another user's job of that number is another one:
// a batch system that lost its state begins with 1 again.
func (c *commented) add(u api.Usage, system farm.BatchSystem, now time.Time, told bool) {
	job, ok := strings.CutPrefix(u.Batch, string(system)+"/")
	if u.Kind != api.UsageJob || !ok || job == "" || now.Sub(u.End) > commentJob {
		return
	}
	of := c.jobs[u.Batch]
	if of == nil || of.uid != u.UID {
		of = &used{uid: u.UID}
		c.jobs[u.Batch] = of
	}
	of.vms++
	of.cores = max(of.cores, u.Cores)
	of.vm += cpuOf(u).Seconds()
	if u.JobCPU != nil {
		of.job += *u.JobCPU
	}
	of.peak, of.asked = max(of.peak, farm.Bytes(u.JobMemory)), max(of.asked, farm.Bytes(u.Memory))
	of.ended, of.last = u.Ended, u.End
	if !told && now.Sub(u.End) < commentLate {
		c.due[u.Batch] = now
	}
}

// forget drops jobs that had their last VM long ago.
func (c *commented) forget(now time.Time) {
	maps.DeleteFunc(c.jobs, func(_ string, of *used) bool { return now.Sub(of.last) > commentJob })
}

// tell writes the comments that are due, and returns the first fault. One that fails stays due for an hour: accounts
// may hear of a job later than of its VM's end. Where the system does not answer, so do those behind it.
func (c *commented) tell(ctx context.Context, to Comments, now time.Time) (first error) {
	for _, batch := range slices.Sorted(maps.Keys(c.due)) {
		_, job, _ := strings.Cut(batch, "/")
		limited, cancel := context.WithTimeout(ctx, commentLimit)
		err := to.Set(limited, job, c.jobs[batch].String())
		cancel()
		if err == nil || now.Sub(c.due[batch]) > commentLate {
			delete(c.due, batch)
		}
		first = cmp.Or(first, err)
		if farm.IsKind(err, farm.Unavailable) || errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	return first
}

// String is for whoever reads sacct. sacctmgr makes all letters small.
func (u *used) String() string {
	return fmt.Sprintf("grange: vms=%d cpus=%d job_cpu=%s vm_cpu=%s job_memory=%v of=%v ended=%s", u.vms, u.cores,
		clock(u.job), clock(u.vm), u.peak.Rounded(), u.asked.Rounded(), u.ended)
}

// clock is a time as sacct writes it.
func clock(seconds float64) string {
	s := int(seconds + 0.5)
	text := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if days := s / 86400; days > 0 {
		return fmt.Sprintf("%d-%s", days, text)
	}
	return text
}
