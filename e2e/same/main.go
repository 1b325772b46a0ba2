// Command same starts a small program with generated arguments, environments, directories, limits, signals and files,
// on the host and in a VM, by each system that starts jobs, and compares everything that the program can see of its
// start. A difference is listed in docs/reference/batch-conformance.md with its reason, or fails. The last line is
// JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// figures is the line at the end.
type figures struct {
	mu        sync.Mutex
	Failed    int            `json:"failed"`               // runs that did not start the program, or lost its report
	Unlisted  int            `json:"unlisted_differences"` // properties, counted once a run
	Listed    map[string]int `json:"listed_differences"`   // runs with a difference, by its row in the list
	Systems   int            `json:"systems"`
	Runs      int            `json:"runs"` // comparisons: a start on the host and one in a VM
	PerSystem map[string]int `json:"runs_by_system"`
	Seed      uint64         `json:"seed"`
	Seconds   float64        `json:"seconds"`
}

// options are the flags.
type options struct {
	runs   int
	only   string
	atOnce int
	seed   uint64
	first  int
}

func main() {
	var o options
	flag.IntVar(&o.runs, "runs", 40, "comparisons of all systems together")
	flag.StringVar(&o.only, "only", "", "systems to compare, with commas: "+strings.Join(names(), ",")+"; \"\": all")
	flag.IntVar(&o.atOnce, "at-once", 3, "comparisons of a system at the same time")
	flag.Uint64Var(&o.seed, "seed", 1, "of the generated inputs")
	flag.IntVar(&o.first, "first", 0, "number of the first input, to repeat one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	f := &figures{Listed: map[string]int{}, PerSystem: map[string]int{}, Seed: o.seed}
	if err := f.run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "same:", err)
		os.Exit(1)
	}
}

// site is what all systems share: a directory that host and VMs see under one path, and the two programs in it.
type site struct {
	top           string
	launch, probe string
	say           func(format string, args ...any)
}

func newSite(ctx context.Context) (*site, error) {
	top, err := os.MkdirTemp("/var/lib", "same") // HTCondor gives jobs a /tmp and a /var/tmp of their own
	if err != nil {
		return nil, err
	}
	s := &site{top: top, launch: filepath.Join(top, "launch"), probe: filepath.Join(top, "probe"),
		say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	if err := os.Chmod(top, 0o755); err != nil {
		return nil, err
	}
	for _, program := range []string{s.launch, s.probe} {
		source := filepath.Join(lab.Source(), "e2e", "same", "program", filepath.Base(program)+".c")
		out, err := exec.CommandContext(ctx, "gcc", "-static", "-O1", "-Wall", "-o", program, source).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("gcc %s: %w\n%s", source, err, out)
		}
	}
	return s, nil
}

func (f *figures) run(ctx context.Context, o options) (err error) {
	began := time.Now()
	listed, err := readListed(filepath.Join(lab.Source(), "docs", "reference", "batch-conformance.md"))
	if err != nil {
		return err
	}
	s, err := newSite(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(s.top)
	chosen := slices.DeleteFunc(slices.Clone(openers), func(c opener) bool {
		return o.only != "" && !slices.Contains(strings.Split(o.only, ","), c.name)
	})
	if err := f.systems(ctx, s, chosen, listed, o); err != nil {
		return err
	}
	f.Seconds = time.Since(began).Seconds()
	text, err := json.Marshal(f)
	fmt.Println(string(text))
	if f.Failed+f.Unlisted > 0 {
		err = errors.Join(err, fmt.Errorf("%d runs failed, %d differences that are not listed", f.Failed, f.Unlisted))
	}
	return err
}

// systems compares all of them, some at the same time: a queue waits more than it works.
func (f *figures) systems(ctx context.Context, s *site, chosen []opener, listed []row, o options) error {
	const atOnce = 2
	places := make(chan struct{}, atOnce)
	errs := make([]error, len(chosen))
	var working sync.WaitGroup
	for i, c := range chosen {
		share := o.runs*(i+1)/len(chosen) - o.runs*i/len(chosen)
		places <- struct{}{}
		working.Go(func() {
			defer func() { <-places }()
			if err := f.system(ctx, s, c, listed, o, share); err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.name, err)
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// system compares one system.
func (f *figures) system(ctx context.Context, s *site, c opener, listed []row, o options, runs int) (err error) {
	s.say("%s: %d inputs", c.name, runs)
	sys, err := c.open(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	f.mu.Lock()
	f.Systems++
	f.mu.Unlock()
	var working sync.WaitGroup
	numbers := make(chan int)
	for range o.atOnce {
		working.Go(func() {
			for n := range numbers {
				found, err := s.compare(ctx, sys, generate(o.seed, n), listed)
				f.count(s, c.name, n, found, err)
			}
		})
	}
	for n := range runs {
		numbers <- o.first + n
	}
	close(numbers)
	working.Wait()
	return ctx.Err()
}

// count adds one comparison, and says what is wrong with it.
func (f *figures) count(s *site, system string, n int, found []difference, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Runs++
	f.PerSystem[system]++
	if err != nil {
		f.Failed++
		s.say("%s input %d: %v", system, n, err)
	}
	rows := map[string]bool{}
	for _, d := range found {
		if d.listed != "" {
			rows[d.listed] = true
			continue
		}
		f.Unlisted++
		s.say("%s input %d: %s: host %q, VM %q", system, n, d.property, d.host, d.vm)
	}
	for name := range maps.Keys(rows) {
		f.Listed[name]++
	}
}
