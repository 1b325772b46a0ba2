package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
	"github.com/grange-project/grange/internal/atomicfile"
)

// Files of the Slurm beside: its configuration once it is up, and at the end what slurmdbd has of its jobs.
const (
	slurmConf = "slurm.conf"
	slurmJobs = "slurm.json"
)

// runSlurm runs jobs without a VM on the agent's host, in a Slurm with slurmdbd, while it kills slurmctld and slurmdbd,
// until it is told to end. It is a program of its own because the test waits for all its children in one place.
func runSlurm(dir string, jobs int) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := slurmlab.Start(ctx,
		slurmlab.Options{NoPlugin: true, Accounting: true, Nodes: []string{hostName}, CPUs: 2})
	if err != nil {
		return err
	}
	defer func() {
		if closed := l.Close(); err == nil {
			err = closed
		}
	}()
	if err := os.Symlink(l.Conf(), filepath.Join(dir, slurmConf)); err != nil {
		return err
	}
	chaos, calm := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- killSlurm(chaos, l) }()
	for range jobs {
		submit(ctx, l)
	}
	calm()
	if err := <-over; err != nil {
		return err
	}
	accounted, err := allAccounted(ctx, l)
	if err != nil {
		return err
	}
	text, err := json.Marshal(accounted)
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, slurmJobs), text, 0o600)
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// submit sends a job that burns CPU time, as often as slurmctld has to be asked for that.
func submit(ctx context.Context, l *slurmlab.Lab) {
	burn := fmt.Sprintf("--wrap=i=0; while [ $i -lt %d ]; do i=$((i+1)); done", 20000+rand.IntN(200000))
	for ctx.Err() == nil {
		if _, err := l.Slurm(ctx, slurmlab.User, "sbatch", "--output=/dev/null", "--mem=50M", burn); err == nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
}

// killSlurm kills slurmctld and slurmdbd in turn until ctx ends, and leaves both running.
func killSlurm(ctx context.Context, l *slurmlab.Lab) error {
	daemons := []struct {
		name  string
		start func(context.Context) error
	}{{"slurmdbd", l.StartSlurmdbd}, {"slurmctld", l.StartSlurmctld}}
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(10+rand.IntN(10)) * time.Second):
		}
		d := daemons[i%len(daemons)]
		if err := l.KillDaemon(d.name); err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
		if err := d.start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
}

// allAccounted waits until no job is left and slurmdbd has been told all: it hears of an end some time after.
func allAccounted(ctx context.Context, l *slurmlab.Lab) (last map[string]slurmlab.Accounted, err error) {
	const limit, pause, calm = 5 * time.Minute, 2 * time.Second, 5
	same, passes := 0, 0
	for until := time.Now().Add(limit); time.Now().Before(until) && ctx.Err() == nil; time.Sleep(pause) {
		queue, err1 := l.Slurm(ctx, "root", "squeue", "--noheader")
		now, err2 := l.Accounted(ctx)
		if err1 != nil || err2 != nil || strings.TrimSpace(queue) != "" || !equal(now, last) {
			last, same = now, 0
			if passes++; passes%15 == 0 {
				resume(ctx, l)
			}
			continue
		}
		if same++; same == calm && len(now) > 0 {
			return now, nil
		}
	}
	queue, _ := l.Slurm(ctx, "root", "squeue", "--format=%i %t %r")
	nodes, _ := l.Slurm(ctx, "root", "sinfo", "--list-reasons")
	return nil, fmt.Errorf("slurmdbd has %d jobs, and there are still others\n%s%s", len(last), queue, nodes)
}

// resume does what an administrator has to after Slurm was killed: a slurmctld that had begun a job, and had not
// written that down, begins it again, which the node refuses ("Duplicate jobid"). Slurm drains the node then, and holds
// the job. And one that was killed when a job ended may hold that to run for as long as nobody asks its node, which
// slurmctld does by itself every half an hour.
func resume(ctx context.Context, l *slurmlab.Lab) {
	l.Slurm(ctx, "root", "scontrol", "reconfigure")
	nodes, _ := l.Slurm(ctx, "root", "sinfo", "--noheader", "--states=drain,down", "--format=%N %E")
	for line := range strings.Lines(nodes) {
		if node, why, _ := strings.Cut(strings.TrimSpace(line), " "); strings.Contains(why, "Duplicate jobid") {
			l.Slurm(ctx, "root", "scontrol", "update", "nodename="+node, "state=resume")
		}
	}
	held, _ := l.Slurm(ctx, "root", "squeue", "--noheader", "--states=PENDING", "--format=%i %r")
	for line := range strings.Lines(held) {
		// "launch failed requeued held", or behind a restart of slurmctld "JobHeldAdmin". No administrator is here.
		job, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.Contains(why, "requeued held") || why == "JobHeldAdmin" {
			l.Slurm(ctx, "root", "scontrol", "release", job)
		}
	}
}

func equal(a, b map[string]slurmlab.Accounted) bool {
	for id, of := range a {
		if b[id] != of {
			return false
		}
	}
	return len(a) == len(b)
}

// slurmEnded waits until the Slurm beside has run all its jobs, and returns them.
func (s *site) slurmEnded() (jobs map[string]slurmlab.Accounted, err error) {
	var text []byte
	err = s.await(15*time.Minute, func() (err error) {
		select {
		case <-s.gone:
			return nil
		default:
			text, err = os.ReadFile(s.path(slurmJobs))
			return err
		}
	})
	if err == nil && text == nil {
		said, _ := os.ReadFile(s.path("slurm.log"))
		err = fmt.Errorf("the Slurm beside has ended: %s", said)
	}
	if err == nil {
		err = json.Unmarshal(text, &jobs)
	}
	return jobs, err
}

// compareMetal holds the records of jobs without a VM against slurmdbd's, which has rounded them to milliseconds.
func compareMetal(records []api.Usage, want map[string]slurmlab.Accounted, f *figures) {
	have := map[string]int{}
	for _, u := range records {
		if u.Kind != api.UsageMetal {
			continue
		}
		id := slurmlab.Run(strings.TrimPrefix(u.Batch, "slurm/"), u.Start)
		have[id]++
		w, known := want[id]
		if !known || have[id] > 1 {
			f.Doubled++
			fmt.Printf("  run %s of a job of Slurm has %d records too many\n", id, have[id])
			continue
		}
		f.Metal++
		if u.Cores != w.Cores || math.Abs(u.Wall-w.Wall) > 0.5 || math.Abs(cpuOf(u)-w.CPU) > 0.01 {
			f.Failed++
			fmt.Printf("  run %s of a job of Slurm: %+v, slurmdbd has %+v\n", id, u, w)
		}
	}
	for id := range want {
		if have[id] == 0 {
			f.Lost++
			fmt.Printf("  run %s of a job of Slurm has no record\n", id)
		}
	}
}

// missingMetal says how many jobs of Slurm have no record yet.
func missingMetal(records []api.Usage, want map[string]slurmlab.Accounted) error {
	n := len(want)
	for _, u := range records {
		if u.Kind == api.UsageMetal {
			n--
		}
	}
	if n > 0 {
		return fmt.Errorf("%d of %d jobs of Slurm have no record", n, len(want))
	}
	return nil
}
