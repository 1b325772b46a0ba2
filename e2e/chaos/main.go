// Command chaos runs jobs while it kills the agent, libvirtd and callers at random moments, and lets hang what can
// hang: see faults.go. It checks that nothing is lost, that nothing is left, that a new agent serves at once, and that
// no caller waits in silence. The last line is JSON with what it found; it fails when anything is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/lastline"
)

// figures is the line at the end.
type figures struct {
	Kills         int            `json:"kills"` // and faults
	AgentKills    int            `json:"agent_kills"`
	LibvirtdKills int            `json:"libvirtd_kills"`
	CallerKills   int            `json:"caller_kills"`
	Faults        map[string]int `json:"faults"`
	Jobs          int            `json:"jobs"`       // that nobody killed
	Lost          int            `json:"lost"`       // of these: output not whole, or never run
	WrongExit     int            `json:"wrong_exit"` // of these: another exit status than the job's
	Leaked        int            `json:"leaked"`     // domains, processes, files, ledger entries at the end
	AgentReadyMS  int64          `json:"agent_ready_ms_max"`
	SilentMS      int64          `json:"silent_ms_max"` // the longest time in which a caller had nothing to read
	Seconds       float64        `json:"seconds"`
	Seed          uint64         `json:"seed"`
}

// What a site may rely on, whatever libvirt, the disk and the clock do.
const (
	mostReady  = 2 * time.Second
	mostSilent = 5 * time.Second
)

// options change a run.
type options struct {
	kills int
	seed  uint64
	only  string // kinds of faults
}

func main() {
	var o options
	flag.IntVar(&o.kills, "kills", 200, "how many kills and faults")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of the random numbers")
	flag.StringVar(&o.only, "faults", "",
		"only these `KINDS` of faults, as in libvirt-silent,disk-full; none: kills only")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// labConfig leaves room on the small file system of the state, and asks for no more of it.
const labConfig = "[minimum]\ndisk = \"64M\"\n"

func run(ctx context.Context, o options) error {
	began := time.Now()
	kinds, err := choose(o.only)
	if err != nil {
		return err
	}
	c, err := newClock()
	if err != nil {
		return err
	}
	defer c.close()
	fmt.Println("building, starting libvirtd and the agent, building the micro image")
	if err := c.build(ctx); err != nil {
		return err
	}
	l, err := lab.Start(ctx, lab.Options{Programs: c.programs(), Config: labConfig, Proxy: true, StateSize: "1G"})
	if err != nil {
		return err
	}
	defer l.Close()
	f := &figures{Seed: o.seed, Faults: map[string]int{}}
	s := newStream(ctx, l, o.seed)
	err = f.kill(ctx, l, s, newFaults(l, c, kinds), o)
	if err != nil {
		s.abort() // what we killed last may still be down: nobody would come to an end
	}
	s.finish()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, l.AgentLog())
	}
	f.Jobs, f.Lost, f.WrongExit = s.tally()
	f.SilentMS = s.silence().Milliseconds()
	left := l.Leaks(ctx)
	f.Leaked = len(left)
	f.Seconds = time.Since(began).Round(time.Second).Seconds()
	err = f.judge()
	if err != nil {
		fmt.Printf("left: %v\nthe agent's log:\n%s\n", left, l.AgentLog())
	}
	lastline.Print(f, lastline.Count(err != nil))
	return err
}

func (f *figures) judge() error {
	switch {
	case f.Lost+f.WrongExit+f.Leaked > 0:
		return errors.New("something was lost or left")
	case f.AgentReadyMS > mostReady.Milliseconds():
		return fmt.Errorf("an agent did not serve within %v of its start", mostReady)
	case f.SilentMS > mostSilent.Milliseconds():
		return fmt.Errorf("a caller waited for more than %v without a word", mostSilent)
	}
	return nil
}

// kill kills at random moments, and starts again what it killed, as a supervisor would. Faults come and go meanwhile,
// one at a time.
func (f *figures) kill(ctx context.Context, l *lab.Lab, s *stream, faults *faults, o options) error {
	r := rand.New(rand.NewPCG(o.seed, 1))
	for f.Kills < o.kills {
		select {
		case <-time.After(time.Duration(r.IntN(1500)) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		began, err := faults.step(ctx, r)
		switch n := r.IntN(10); {
		case err != nil:
		case began != "":
			f.Faults[began]++
		case n < 5:
			l.KillAgent()
			f.AgentKills++
			err = f.startAgent(ctx, l)
		case n < 7:
			if !faults.libvirtdSound() {
				continue
			}
			if err = l.KillLibvirtd(); err == nil {
				f.LibvirtdKills++
				err = l.StartLibvirtd(ctx)
			}
		default:
			if !s.killOne(r) {
				continue
			}
			f.CallerKills++
		}
		if err != nil {
			return errors.Join(err, faults.end(ctx))
		}
		if f.Kills++; f.Kills%20 == 0 {
			jobs, lost, wrong := s.tally()
			fmt.Printf("%d kills and faults, %d jobs done, %d lost, %d wrong exits\n", f.Kills, jobs, lost, wrong)
		}
	}
	return faults.end(ctx)
}

func (f *figures) startAgent(ctx context.Context, l *lab.Lab) error {
	began := time.Now()
	err := l.StartAgent(ctx)
	f.AgentReadyMS = max(f.AgentReadyMS, time.Since(began).Milliseconds())
	return err
}
