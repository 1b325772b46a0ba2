// Command benchtrial tries changes whose effects are known, and changes that have none, on an emulated host, and says
// how often `grange trial` was right; and whether the host is as it was before, however the trials were killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/e2e/metal/metallab"
)

// figures are the last line.
type figures struct {
	PlantedFound float64 `json:"planted_found"` // share of effects that were found, and told right
	FalseFound   float64 `json:"false_found"`   // share of trials of nothing that found something
	Planted      int     `json:"planted"`
	Nothing      int     `json:"nothing"`
	Kills        int     `json:"kills"`
	HostRestored bool    `json:"host_restored"`
	Seconds      int     `json:"seconds"`
}

// shell runs a script as root on the host, and returns what it prints.
type shell func(ctx context.Context, script string) (string, error)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "benchtrial:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	nothing := flag.Int("nothing", 40, "trials of changes that do nothing")
	kills := flag.Int("kills", 6, "how often a trial is killed")
	here := flag.Bool("here", false, "on this host, with the grange that is in PATH: changes vm.swappiness for a while")
	flag.Parse()
	began := time.Now()
	host, closing := shell(local), func() error { return nil }
	if !*here {
		h, err := metallab.StartInstalled(ctx, metallab.Options{})
		if err != nil {
			return err
		}
		host, closing = h.Run, h.Close
	}
	b := bench{host: host}
	err := b.all(ctx, *nothing, *kills)
	if err := errors.Join(err, closing()); err != nil {
		return err
	}
	b.Seconds = int(time.Since(began).Seconds())
	wrong := b.PlantedFound < 1 || b.FalseFound > 0.05 || !b.HostRestored
	if err := lastline.Print(b.figures, lastline.Count(wrong)); err != nil {
		return err
	}
	if wrong {
		return errors.New("trials were wrong")
	}
	return nil
}

func local(ctx context.Context, script string) (string, error) {
	out, err := exec.CommandContext(ctx, "bash", "-euc", script).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return string(out), err
}
