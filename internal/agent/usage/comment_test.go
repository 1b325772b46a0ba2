package usage

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/waittest"
)

// TestComment: a job's comment says what all its VMs here have used; of other systems' jobs and of workers there is
// none; and a system that is away is asked again, also by the next agent.
func TestComment(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	said, away := map[string]string{}, true
	set := func(_ context.Context, job, text string) error {
		if away {
			return &farm.Error{Kind: farm.Unavailable, Message: "slurmdbd is away"}
		}
		said[job] = text
		return nil
	}
	ran := func(job, batch, kind string, cpu time.Duration) {
		d.Begin(job, api.Usage{Kind: kind, Job: job, Batch: batch, Cores: 4, Memory: 8 << 30}, 0, 0)
		d.Exited(job, job, api.Exit{User: cpu, MaxRSS: 3 << 20})
		d.End(job, api.EndedLeft)
	}
	run := func(until func() bool) {
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); d.comment(ctx, Comments{farm.Slurm, set}) }()
		waittest.Until(until)
		cancel()
		<-over
	}
	aSecond := func() bool { time.Sleep(time.Second); return true } // for what should not come
	ran("j1", "slurm/17", api.UsageJob, 3600*time.Second)
	ran("j2", "gridengine/17", api.UsageJob, time.Second)
	ran("j3", "slurm/18", api.UsageWorker, time.Second)
	run(aSecond)
	if len(said) > 0 {
		t.Errorf("%v", said)
	}
	away = false
	d = open(t, copyOf(t, dir), "b1")
	run(func() bool { return len(said) > 0 })
	if text := said["17"]; len(said) != 1 || !strings.Contains(text, "vms=1 cpus=4 job_cpu=01:00:00 vm_cpu=00:00:00 "+
		"job_memory=3G of=8G ended=exit:0") {
		t.Errorf("%q", said)
	}
	said = map[string]string{}
	d = open(t, copyOf(t, d.Dir), "b1")
	run(aSecond)
	if len(said) > 0 {
		t.Errorf("the next agent tells it again: %v", said)
	}
	ran("j4", "slurm/17", api.UsageJob, 25*time.Hour)
	run(func() bool { return strings.Contains(said["17"], "vms=2") })
	if text := said["17"]; !strings.Contains(text, "vms=2 cpus=4 job_cpu=1-02:00:00 ") {
		t.Errorf("%q", text)
	}
}

// TestCommentsDue: what fails is tried again for an hour, for accounts may hear of a job later; a job that they do not
// know keeps back no other one; a number that another user's job has again is another job's; and a job of last month is
// forgotten.
func TestCommentsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := commented{jobs: map[string]*used{}, due: map[string]time.Time{}}
		u := api.Usage{Kind: api.UsageJob, Batch: "slurm/17", End: time.Now()}
		fails := func(err error) Comments {
			return Comments{farm.Slurm, func(context.Context, string, string) error { return err }}
		}
		gone, away := errors.New("no such job"), error(&farm.Error{Kind: farm.Unavailable})
		for _, s := range []struct {
			after time.Duration
			err   error
			due   int
		}{{0, nil, 0}, {0, gone, 2}, {0, away, 2}, {2 * commentLate, gone, 0}} {
			u.End = time.Now()
			c.add(u, farm.Slurm, time.Now(), false)
			other := u
			other.Batch = "slurm/16"
			c.add(other, farm.Slurm, time.Now(), false)
			time.Sleep(s.after)
			if err := c.tell(t.Context(), fails(s.err), time.Now()); !errors.Is(err, s.err) || len(c.due) != s.due {
				t.Errorf("after %v: %v, %d are due", s.after, err, len(c.due))
			}
		}
		u.End = time.Now()
		c.add(u, farm.Slurm, time.Now(), true)
		if len(c.due) > 0 {
			t.Error("what was told is told again")
		}
		c.add(u, farm.Slurm, time.Now(), false)
		other := u
		other.Batch = "slurm/16"
		c.add(other, farm.Slurm, time.Now(), false)
		said := 0
		knowsOne := func(_ context.Context, job, _ string) error {
			if said++; job == "16" {
				return gone
			}
			return nil
		}
		c.tell(t.Context(), Comments{farm.Slurm, knowsOne}, time.Now())
		if _, due := c.due["slurm/16"]; said != 2 || len(c.due) != 1 || !due {
			t.Errorf("%d were said, %v are due", said, c.due)
		}
		u.UID = 7
		if c.add(u, farm.Slurm, time.Now(), false); c.jobs["slurm/17"].vms != 1 {
			t.Errorf("%+v", c.jobs["slurm/17"])
		}
		time.Sleep(2 * commentJob)
		if c.forget(time.Now()); len(c.jobs) > 0 {
			t.Errorf("%v", c.jobs)
		}
	})
}
