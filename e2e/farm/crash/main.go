// Command crash makes and deletes VMs on a farm of several servers, PostgreSQL and hosts, while all of these are killed
// at random moments and started again as a supervisor would. Every VM must be on one host at most, every one that is
// wanted must run in the end, nothing may be left of those that are not, and every state must be explained. The last
// line is JSON; it fails when anything is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/e2e/lastline"
)

const farmFile = `
[cells.all]
broker = "grange"
default = true
packing = "spread"

[projects.chaos]

[shapes.tiny]
cpus = 1
memory = "192M"
` + farmlab.Network

// figures is the line at the end.
type figures struct {
	VMs         int     `json:"vms"`         // made in all
	Deleted     int     `json:"deleted"`     // of these, by their user
	Kept        int     `json:"kept"`        // of these: that run at the end
	Lost        int     `json:"lost"`        // asked for, not deleted, and not running in the end
	Duplicated  int     `json:"duplicated"`  // seen on two hosts at a time, or made twice by one request
	Leaked      int     `json:"leaked"`      // processes, domains, files, ledger entries, leases, rows
	Unexplained int     `json:"unexplained"` // states failed, unknown or lost without a reason
	Kills       int     `json:"kills"`
	ServerKills int     `json:"server_kills"`
	StoreKills  int     `json:"store_kills"`
	AgentKills  int     `json:"agent_kills"`
	Retries     int     `json:"retries"` // of requests that met a dead server
	Seconds     float64 `json:"seconds"`
	Seed        uint64  `json:"seed"`
}

func main() {
	vms := flag.Int("vms", 200, "how many VMs are made in all")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random numbers")
	pause := flag.Duration("pause", 3*time.Second, "the longest time between two kills")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f := &figures{Seed: *seed}
	err := run(ctx, f, *vms, *pause)
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
	}
	failed := lastline.Count(err != nil) + f.Lost + f.Duplicated + f.Leaked + f.Unexplained
	lastline.Print(f, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, f *figures, vms int, pause time.Duration) (err error) {
	farm, err := farmlab.Start(ctx, farmlab.Options{Cells: []string{"all", "all", "all"}, Farm: farmFile, Servers: 2,
		Postgres: true, Out: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, farm.Close()) }()
	began := time.Now()
	w, err := newWorkload(farm, f, vms)
	if err != nil {
		return err
	}
	killing, stop := context.WithCancel(ctx)
	var side sync.WaitGroup
	side.Go(func() { w.watchTwins(killing) })
	var killed error
	side.Go(func() { killed = f.kill(killing, farm, pause) })
	err = w.run(ctx)
	stop()
	side.Wait()
	if err = errors.Join(err, killed); err == nil {
		err = w.settle(ctx)
	}
	f.Seconds = time.Since(began).Seconds()
	if err != nil || f.Lost+f.Duplicated+f.Leaked+f.Unexplained > 0 {
		fmt.Fprintln(os.Stderr, farm.Logs())
	}
	return err
}

// kill kills at random moments, and starts again what it killed, until ctx ends. At the end everything runs.
func (f *figures) kill(ctx context.Context, farm *farmlab.Farm, pause time.Duration) error {
	r := rand.New(rand.NewPCG(f.Seed, 1))
	for {
		select {
		case <-time.After(time.Duration(r.Int64N(int64(pause)))):
		case <-ctx.Done():
			return nil
		}
		down := time.Duration(r.Int64N(int64(time.Second)))
		var again func(context.Context) error
		switch n := r.IntN(10); {
		case n < 4:
			s := farm.Servers[r.IntN(len(farm.Servers))]
			s.Kill()
			f.ServerKills++
			again = s.Start
		case n < 8:
			h := farm.Hosts[r.IntN(len(farm.Hosts))]
			h.KillAgent()
			f.AgentKills++
			again = h.StartAgent
		default:
			if err := farm.KillDatabase(); err != nil {
				return err
			}
			f.StoreKills++
			again = farm.StartDatabase
		}
		f.Kills++
		time.Sleep(down)
		if err := again(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
}
