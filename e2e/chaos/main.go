// Command chaos runs jobs while it kills the agent, libvirtd and callers at random moments, and checks that nothing is lost
// and nothing is left. The last line is JSON with what it found; it fails when anything is wrong.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// figures is the line at the end.
type figures struct {
	Kills         int    `json:"kills"`
	AgentKills    int    `json:"agent_kills"`
	LibvirtdKills int    `json:"libvirtd_kills"`
	CallerKills   int    `json:"caller_kills"`
	Jobs          int    `json:"jobs"`       // that nobody killed
	Lost          int    `json:"lost"`       // of these: output not whole, or never run
	WrongExit     int    `json:"wrong_exit"` // of these: another exit status than the job's
	Leaked        int    `json:"leaked"`     // domains, processes, files, ledger entries at the end
	Seed          uint64 `json:"seed"`
}

func main() {
	kills := flag.Int("kills", 200, "how many kills")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random numbers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *kills, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kills int, seed uint64) error {
	fmt.Println("building, starting libvirtd and the agent, building the micro image")
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer l.Close()
	f := &figures{Seed: seed}
	s := newStream(ctx, l, seed)
	err = f.kill(ctx, l, s, kills, rand.New(rand.NewPCG(seed, 1)))
	if err != nil {
		s.abort() // what we killed last may still be down: nobody would come to an end
	}
	s.finish()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, l.AgentLog())
	}
	f.Jobs, f.Lost, f.WrongExit = s.tally()
	left := l.Leaks(ctx)
	f.Leaked = len(left)
	bad := f.Lost+f.WrongExit+f.Leaked > 0
	if bad {
		fmt.Printf("left: %v\nthe agent's log:\n%s\n", left, l.AgentLog())
	}
	text, err := json.Marshal(f)
	fmt.Println(string(text))
	if bad {
		err = errors.New("something was lost or left")
	}
	return err
}

// kill kills at random moments, and starts again what it killed, as a supervisor would.
func (f *figures) kill(ctx context.Context, l *lab.Lab, s *stream, kills int, r *rand.Rand) error {
	for f.Kills < kills {
		select {
		case <-time.After(time.Duration(r.IntN(1500)) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		switch n := r.IntN(10); {
		case n < 5:
			l.KillAgent()
			f.AgentKills++
			err = l.StartAgent(ctx)
		case n < 7:
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
			return err
		}
		f.Kills++
		if f.Kills%20 == 0 {
			jobs, lost, wrong := s.tally()
			fmt.Printf("%d kills, %d jobs done, %d lost, %d wrong exits\n", f.Kills, jobs, lost, wrong)
		}
	}
	return nil
}
