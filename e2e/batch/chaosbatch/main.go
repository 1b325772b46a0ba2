// Command chaosbatch runs VM jobs under a real Slurm while it kills the agent, slurmd and slurmctld at random moments,
// and checks that every job ran once, ended once, and with the right state; that no node is down and nothing is left.
// The last line is JSON with what it found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
	"github.com/grange-project/grange/e2e/lastline"
)

// figures is the line at the end.
type figures struct {
	Jobs           int            `json:"jobs"`
	Kills          int            `json:"kills"`
	AgentKills     int            `json:"agent_kills"`
	SlurmdKills    int            `json:"slurmd_kills"`
	SlurmctldKills int            `json:"slurmctld_kills"`
	WrongState     int            `json:"wrong_state"` // another state or exit status than the script's
	NotOnce        int            `json:"not_once"`    // ran or ended another number of times than once
	OnMetal        int            `json:"on_metal"`    // saw this host's kernel
	Requeued       int            `json:"requeued"`    // its VM could not be started at first: no fault, but told
	Unsound        int            `json:"unsound"`     // nodes down, jobs that stay
	Leaked         int            `json:"leaked"`      // domains, processes, files, ledger entries at the end
	States         map[string]int `json:"states"`
	Seconds        float64        `json:"seconds"`
	Seed           uint64         `json:"seed"`
}

func main() {
	jobs := flag.Int("jobs", 100, "how many jobs")
	pause := flag.Duration("pause", 12*time.Second, "longest time between two kills")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random numbers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*jobs)*20*time.Second+5*time.Minute)
	defer cancel()
	if err := run(ctx, *jobs, *pause, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "chaos-batch:", err)
		os.Exit(1)
	}
}

// kind is a sort of job, and what must come of it.
type kind struct {
	script string // after the first line that says that it runs
	state  conform.State
	code   int
	signal int
}

var kinds = []kind{
	{script: "echo out; exit 0", state: conform.Done},
	{script: "sleep 3; exit 0", state: conform.Done},
	{script: "exit 7", state: conform.Failed, code: 7},
	{script: "sleep 1; kill -TERM $$; sleep 5", state: conform.Failed, signal: 15},
	{script: "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; exit 0", state: conform.Done},
}

// submitted is one job.
type submitted struct {
	id, mark string // mark is the file in which it notes that it runs
	kind     kind
}

func run(ctx context.Context, n int, pause time.Duration, seed uint64) error {
	fmt.Println("building, starting libvirtd, the agent and Slurm, building the micro image")
	// a job is asked for when its turn comes
	slurm, err := slurmlab.Start(ctx, slurmlab.Options{Extra: "MinJobAge=7200"})
	if err != nil {
		return err
	}
	defer slurm.Close()
	began := time.Now()
	r := rand.New(rand.NewPCG(seed, 1))
	jobs, err := submit(ctx, slurm, n, r)
	if err != nil {
		return err
	}
	f := &figures{Jobs: n, Seed: seed, States: map[string]int{}}
	done := make(chan error, 1)
	go func() { done <- f.await(ctx, slurm, jobs) }()
	err = f.kill(ctx, slurm, r, pause, done)
	f.Seconds = time.Since(began).Seconds()
	if err != nil {
		return fmt.Errorf("%w\n%s\n%s", err, slurm.Log("slurmctld"), slurm.Lab().AgentLog())
	}
	left := append(slurm.Sound(ctx), slurm.Lab().Leaks(ctx)...)
	f.Unsound, f.Leaked = len(slurm.Sound(ctx)), len(slurm.Lab().Leaks(ctx))
	bad := f.WrongState + f.NotOnce + f.OnMetal + f.Unsound + f.Leaked
	if bad > 0 {
		fmt.Printf("left: %v\n%s\n%s\n%s\n", left, slurm.Log("slurmctld"), slurm.Log("slurmd"), slurm.Lab().AgentLog())
	}
	err = lastline.Print(f, bad)
	if bad > 0 {
		err = errors.New("a job did not end as it should, or something is left")
	}
	return err
}

// submit queues all jobs. Each notes in a file of the host that it runs, and on which kernel.
func submit(ctx context.Context, slurm *slurmlab.Lab, n int, r *rand.Rand) ([]submitted, error) {
	var jobs []submitted
	for i := range n {
		k := kinds[r.IntN(len(kinds))]
		mark := filepath.Join(slurm.Home(), fmt.Sprintf("mark-%d", i))
		script := fmt.Sprintf("#!/bin/sh\ncat /proc/sys/kernel/random/boot_id >>%s\n%s\n", mark, k.script)
		id, err := slurm.Submit(ctx, conform.Job{Script: script})
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, submitted{id, mark, k})
	}
	return jobs, nil
}

// kill kills at random moments, and starts again what it killed, as a supervisor would, until done tells that all jobs
// have ended.
func (f *figures) kill(ctx context.Context, slurm *slurmlab.Lab, r *rand.Rand, pause time.Duration,
	done <-chan error) error {
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(time.Duration(r.Int64N(int64(pause)))):
		}
		var err error
		switch r.IntN(3) {
		case 0:
			slurm.Lab().KillAgent()
			f.AgentKills++
			err = slurm.Lab().StartAgent(ctx)
		case 1:
			f.SlurmdKills++
			if err = slurm.KillDaemon("slurmd"); err == nil {
				err = slurm.StartSlurmd(ctx)
			}
		default:
			if !settled(ctx, slurm) {
				continue
			}
			f.SlurmctldKills++
			if err = slurm.KillDaemon("slurmctld"); err == nil {
				err = slurm.StartSlurmctld(ctx)
			}
		}
		if err != nil {
			return err
		}
		if f.Kills++; f.Kills%10 == 0 {
			fmt.Printf("%d kills\n", f.Kills)
		}
	}
}

// settled waits for a moment at which slurmctld has saved what it knows. It saves within 5 s (SAVE_MAX_WAIT in its
// state_save.c); killed before, it forgets that a job ended and runs it again, one on the host too, and no word of ours
// could keep it from that.
func settled(ctx context.Context, slurm *slurmlab.Lab) bool {
	// Slurm hears of a job's end a moment before or after its VM goes
	const timeout, margin = 20 * time.Second, time.Second
	running, changed := "", time.Now()
	for began := time.Now(); time.Since(began) < timeout && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		vms, err := slurm.Lab().Client.VMs(ctx)
		if err != nil {
			return false
		}
		now := ""
		for _, v := range vms {
			now += v.ID + " "
		}
		if now != running {
			running, changed = now, time.Now()
		}
		info, err := os.Stat(filepath.Join(slurm.Dir(), "state", "job_state"))
		if err == nil && info.ModTime().After(changed.Add(margin)) {
			return true
		}
	}
	return false
}

// await judges each job when it has ended. A slurmctld that is down answers later.
func (f *figures) await(ctx context.Context, slurm *slurmlab.Lab, jobs []submitted) error {
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	for i, j := range jobs {
		result, err := slurm.Wait(ctx, j.id)
		for ; err != nil; result, err = slurm.Wait(ctx, j.id) {
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(200 * time.Millisecond):
			}
		}
		f.judge(j, result, string(host))
		if (i+1)%10 == 0 {
			fmt.Printf("%d jobs\n", i+1)
		}
	}
	return nil
}

func (f *figures) judge(j submitted, result conform.Result, host string) {
	f.States[string(result.State)]++
	if result.Runs > 1 {
		f.Requeued++
	}
	if result.State != j.kind.state || result.Code != j.kind.code || result.Signal != j.kind.signal {
		f.WrongState++
		fmt.Printf("job %s: %s, %d:%d (%s), wanted %s, %d:%d\n%s\n", j.id, result.State, result.Code, result.Signal,
			result.Reason, j.kind.state, j.kind.code, j.kind.signal, result.Stderr)
	}
	text, _ := os.ReadFile(j.mark)
	kernels := strings.Fields(string(text))
	if len(kernels) != 1 {
		f.NotOnce++
		fmt.Printf("job %s ran %d times\n", j.id, len(kernels))
	}
	if slices.Contains(kernels, strings.TrimSpace(host)) {
		f.OnMetal++
	}
}
