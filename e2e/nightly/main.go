// Command nightly runs the suites of suites.txt, one after the other, and keeps a JSON file of each: its commit, its
// machine, its time and its figures. A suite that fails runs once more. Stopped by ctrl-C or killed, the next call goes
// on with the suites that have no record of this source. The last line is JSON.
//
//	nightly                        every suite
//	nightly -only metal,images     those whose names begin so
//	nightly -slice 17 -left 20m    the slice of the 17th commit, as .ci/run does, unless 20 minutes are too few
//	nightly -evidence              copy records that are newer to docs/internals/evidence, and write evidence.md
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/lastline"
)

type options struct {
	only  string
	slice int
	left  time.Duration
	dir   string
	again bool
	list  bool
	write bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "suites whose `NAMES` begin so, with commas")
	flag.IntVar(&o.slice, "slice", -1, "run the slice of the commit of this `NUMBER` alone")
	flag.DurationVar(&o.left, "left", 0, "`TIME` that is left; suites that need more are dropped")
	flag.StringVar(&o.dir, "dir", "dist/nightly", "`DIRECTORY` of the records")
	flag.BoolVar(&o.again, "again", false, "run suites that passed on this source, too")
	flag.BoolVar(&o.list, "list", false, "print the slices and run nothing")
	flag.BoolVar(&o.write, "evidence", false, "write "+evidencePage+" from the records; run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "nightly:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	suites, err := readSuites(suitesText)
	if err != nil {
		return err
	}
	if o.write {
		return writeEvidence(".", o.dir, suites)
	}
	suites = chosen(suites, o)
	if o.list {
		for _, s := range suites {
			if s.every {
				fmt.Printf(" +  %-22s %5s  %s\n", s.name, s.length, s.command)
			}
		}
		for i, slice := range slicesOf(inSlices(suites), sliceLength) {
			for _, s := range slice {
				fmt.Printf("%2d  %-22s %5s  %s\n", i, s.name, s.length, s.command)
			}
		}
		return nil
	}
	n := &night{dir: o.dir, machine: thisMachine(), again: o.again || o.slice >= 0,
		figures: figures{Repeated: []string{}, Dropped: []string{}, Kept: []string{}}}
	if n.commit, n.changed, err = commit(ctx); err != nil {
		return err
	}
	if o.left > 0 {
		n.end = time.Now().Add(o.left)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, n.end, errNoTime)
		defer cancel()
	}
	return n.run(ctx, suites)
}

var errNoTime = errors.New("no time is left")

// chosen are the suites that the options name.
func chosen(suites []suite, o options) []suite {
	if o.only != "" {
		suites = slices.DeleteFunc(suites, func(s suite) bool {
			return !slices.ContainsFunc(strings.Split(o.only, ","), func(name string) bool {
				return strings.HasPrefix(s.name, name)
			})
		})
	}
	if o.slice >= 0 {
		all := slicesOf(inSlices(suites), sliceLength)
		suites = all[o.slice%len(all)]
	}
	return suites
}

// commit is the present one, and whether something in the tree differs from it.
func commit(ctx context.Context) (hash string, changed bool, err error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "", false, fmt.Errorf("git rev-parse: %w", err)
	}
	err = exec.CommandContext(ctx, "git", "diff", "--quiet", "HEAD").Run()
	return strings.TrimSpace(string(out)), err != nil, nil
}

// figures are the last line.
type figures struct {
	Passed   int      `json:"passed"`
	Repeated []string `json:"repeated"` // failed first
	Dropped  []string `json:"dropped"`  // for want of time
	Kept     []string `json:"kept"`     // passed on this source before
	Seconds  int      `json:"seconds"`
}

// night is one call.
type night struct {
	dir     string
	commit  string
	changed bool
	machine machine
	again   bool
	end     time.Time // zero: no limit
	figures figures
	failed  int // twice
}

func (n *night) run(ctx context.Context, suites []suite) error {
	began := time.Now()
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	for _, s := range suites {
		if err := n.suite(ctx, s); err != nil {
			return err
		}
	}
	n.figures.Seconds = int(time.Since(began).Seconds())
	return errors.Join(n.verdict(ctx), lastline.Print(n.figures, n.failed))
}

func (n *night) verdict(ctx context.Context) error {
	if n.failed > 0 {
		return fmt.Errorf("%d suites failed twice", n.failed)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errNoTime) {
		return errors.New("interrupted; the same command goes on")
	}
	return nil
}

// suite runs one suite, twice if it fails, and keeps its record.
func (n *night) suite(ctx context.Context, s suite) error {
	file := filepath.Join(n.dir, s.name+".json")
	switch {
	case !n.again && n.passedBefore(ctx, file):
		n.figures.Kept = append(n.figures.Kept, s.name)
		return nil
	case ctx.Err() != nil || !n.end.IsZero() && time.Until(n.end) < s.length:
		n.drop(s)
		return nil
	}
	r := record{Suite: s.name, Command: s.command, Commit: n.commit, Changed: n.changed, Machine: n.machine}
	for len(r.Attempts) < 2 && !r.Passed {
		fmt.Printf("\n== %s: %s\n", s.name, s.command)
		a := s.run(ctx, os.Stdout)
		if a.Cut {
			break
		}
		r.Attempts, r.Passed = append(r.Attempts, a), a.Passed
		fmt.Printf("== %s: %s after %d s\n", s.name, cmp.Or(a.Error, "passed"), a.Seconds)
	}
	switch {
	case r.Passed:
		n.figures.Passed++
	case len(r.Attempts) == 2:
		n.failed++
	default:
		n.drop(s)
	}
	if len(r.Attempts) == 2 {
		n.figures.Repeated = append(n.figures.Repeated, s.name)
	}
	if len(r.Attempts) == 0 {
		return nil
	}
	return r.keep(file)
}

func (n *night) drop(s suite) {
	fmt.Printf("== %s is left out: the time that is left is less than its %s\n", s.name, s.length)
	n.figures.Dropped = append(n.figures.Dropped, s.name)
}

// passedBefore reports whether the suite has passed on this source: on this commit, or on one that differs from it in
// documents alone.
func (n *night) passedBefore(ctx context.Context, file string) bool {
	var r record
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &r) != nil || !r.Passed || r.Changed || n.changed {
		return false
	}
	source := []string{"--", ".", ":!docs", ":!*.md"}
	diff := append([]string{"diff", "--quiet", r.Commit, n.commit}, source...)
	return exec.CommandContext(ctx, "git", diff...).Run() == nil
}
