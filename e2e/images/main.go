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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/images/imagelab"
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
	only := flag.String("only", "", "`PARTS` to run, with commas: disks, containers, kills, cycles (default: all)")
	flag.Parse()
	if *only != "" {
		t.only = strings.Split(*only, ",")
	}
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
	only  []string // nil: all parts
}

// runs reports whether a part is to be run.
func (t *trial) runs(part string) bool { return t.only == nil || slices.Contains(t.only, part) }

func (t *trial) run(ctx context.Context) (err error) {
	began := time.Now()
	own, err := os.MkdirTemp("", "grange-images")
	if err != nil {
		return err
	}
	defer os.RemoveAll(own)
	certificate, err := imagelab.NewCertificate(own)
	if err != nil {
		return err
	}
	os.Setenv("SSL_CERT_FILE", certificate.File) // the agent trusts it
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
	defer t.web.end()
	fmt.Println("publishing container images")
	c, err := t.publish(ctx, filepath.Join(t.lab.Dir, "containers"), certificate)
	if err != nil {
		return err
	}
	defer c.close()
	if err := t.parts(ctx, c); err != nil {
		return err
	}
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

// parts runs all parts that are wanted.
func (t *trial) parts(ctx context.Context, c *containers) error {
	if t.runs("disks") {
		t.sources(ctx)
		t.hostile(ctx)
	}
	if t.runs("containers") {
		if _, err := t.lab.Client.MakeImage(ctx, api.ImageRequest{Name: "micro"}, func(string) {}); err != nil {
			return err
		}
		c.sources(ctx)
		if err := t.remove(ctx, "micro"); err != nil {
			return err
		}
		c.hostile(ctx)
	}
	if t.runs("kills") {
		t.kills(ctx)
		c.kills(ctx)
	}
	if !t.runs("cycles") {
		t.Cycles = 0
		return nil
	}
	if err := c.small(ctx); err != nil {
		return err
	}
	t.cycles(ctx, c.forms()...)
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
