// Command benchoci measures what a container image adds to the start of a job beside the micro image. The last line is
// JSON; it fails when the cached start of one takes more than a quarter longer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/grange-project/grange/e2e/benchoci/ocistart"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/lastline"
)

func main() {
	rounds := flag.Int("rounds", 12, "rounds of starts, each of every kind of image")
	most := flag.Float64("most", 1.25, "the most that a start may take, as a `RATIO` of the micro image's")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds, *most); err != nil {
		fmt.Fprintln(os.Stderr, "benchoci:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, most float64) error {
	fmt.Println("building, starting libvirtd and the agent, building the micro image")
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer l.Close()
	f, err := ocistart.Measure(ctx, l, rounds)
	if err != nil {
		return err
	}
	if left := l.Leaks(ctx); len(left) > 0 {
		err = fmt.Errorf("left on the host: %v", left)
	} else if ratio := max(f.OCIRatio, f.SIFRatio, f.DirRatio); ratio > most {
		err = fmt.Errorf("a start takes %.3f of the micro image's, more than %.3f", ratio, most)
	}
	return errors.Join(err, lastline.Print(f, lastline.Count(err != nil)))
}
