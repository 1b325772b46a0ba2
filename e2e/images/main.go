// Command images adds images from real servers to a real agent: each kind of source, hostile ones, an agent that is
// killed at each step, and many additions and removals. The last line is JSON; it fails when a case fails or anything
// is left.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// figures is the line at the end.
type figures struct {
	Failed  int     `json:"failed"`
	Passed  int     `json:"passed"`
	Leaked  int     `json:"leaked"`
	Kills   int     `json:"kills"`
	Cycles  int     `json:"cycles"`
	Seconds float64 `json:"seconds"`
}

// stateSize is that of the agent's file system: small, so that what would fill it is soon found.
const stateSize = "2G"

func main() {
	t := &trial{}
	flag.IntVar(&t.Cycles, "cycles", 500, "additions and removals")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := t.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// trial is one run.
type trial struct {
	figures
	lab   *lab.Lab
	files *files
	web   *web
}

func (t *trial) run(ctx context.Context) (err error) {
	began := time.Now()
	fmt.Println("building, starting libvirtd and the agent")
	if t.lab, err = lab.Start(ctx, lab.Options{NoImage: true, StateSize: stateSize}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.lab.Close()) }()
	if t.files, err = makeFiles(ctx, filepath.Join(t.lab.Dir, "published")); err != nil {
		return err
	}
	if t.web, err = serve(ctx, t.files.dir); err != nil {
		return err
	}
	defer t.web.close()
	t.sources(ctx)
	t.hostile(ctx)
	t.kills(ctx)
	t.cycles(ctx)
	left := append(t.left(), t.lab.Leaks(ctx)...)
	for _, l := range left {
		fmt.Println("left:", l)
	}
	t.Leaked, t.Seconds = len(left), time.Since(began).Round(time.Second/10).Seconds()
	text, err := json.Marshal(t.figures)
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.Failed+t.Leaked > 0:
		return fmt.Errorf("%d cases failed, %d things are left", t.Failed, t.Leaked)
	}
	return nil
}

// result counts a case.
func (t *trial) result(name string, err error) {
	if err == nil {
		t.Passed++
		fmt.Println("ok     ", name)
		return
	}
	t.Failed++
	fmt.Printf("FAILED  %s: %v\n", name, err)
}

// left is what lies in the image store although no image is there.
func (t *trial) left() []string {
	var left []string
	for _, dir := range []string{"blobs", "images", "tmp", "partial", "site"} {
		entries, err := os.ReadDir(filepath.Join(t.lab.Dir, "state/images", dir))
		if err != nil {
			left = append(left, err.Error())
		}
		for _, e := range entries {
			left = append(left, filepath.Join(dir, e.Name()))
		}
	}
	return left
}
