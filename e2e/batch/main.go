// Command batch runs the conformance cases on batch systems of this machine, real ones and fakes, each with a host of its own, and prints
// what came of them. It needs root.
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
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/condorlab"
	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/batch/fakelab"
	"github.com/grange-project/grange/e2e/batch/gridenginelab"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
	"github.com/grange-project/grange/internal/farm"
)

// system is one that the cases can run on.
type system struct {
	name  string
	start func(context.Context) (conform.System, error)
}

// systems are all of them, in the order in which they run: slurm, slurm24, gridengine, htcondor, pbs, lsf, each one line like
// {"slurm", by(slurmlab.Start, slurmlab.Options{})}.
var systems = []system{
	{"gridengine", by(gridenginelab.Start, gridenginelab.Options{})},
	{"htcondor", by(condorlab.Start, condorlab.Options{})},
	{"slurm", by(slurmlab.Start, slurmlab.Options{Accounting: true})},
	{"slurm24", by(slurmlab.StartTrixie, slurmlab.Options{Accounting: true})},
	{"pbs", by(fakelab.Start, fakelab.Options{System: farm.PBS})},
	{"lsf", by(fakelab.Start, fakelab.Options{System: farm.LSF})},
}

// by makes a lab's own Start the one of a system.
func by[L conform.System, O any](start func(context.Context, O) (L, error), options O) func(context.Context) (conform.System, error) {
	return func(ctx context.Context) (conform.System, error) {
		l, err := start(ctx, options)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}

const (
	pagePath  = "docs/reference/batch-conformance.md"
	tableHead = "<!-- The table is written by `go run ./e2e/batch -write`. -->\n"
	startTime = 5 * time.Minute // to build the programs, the image and the system
)

func main() {
	names := flag.String("systems", "", "run these, as `slurm,gridengine` (default: all)")
	cases := flag.String("cases", "", "run cases whose name matches `REGEXP`")
	write := flag.Bool("write", false, "write the results to "+pagePath)
	times := flag.Int("times", 1, "run the cases `N` times, to find those that do not always pass; with -write the last time counts")
	keep := flag.Bool("keep", false, "leave each system running until INT, to look at it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *names, *cases, *times, *write, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "batch:", err)
		os.Exit(1)
	}
}

// summary is the last line, for programs.
type summary struct {
	Systems map[string]counts `json:"systems"`
	Failed  int               `json:"failed"`
}

type counts struct {
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	None    int     `json:"none"`
	Seconds float64 `json:"seconds"`       // of the cases
	Start   float64 `json:"start_seconds"` // of the system and its host
}

func run(ctx context.Context, names, cases string, times int, write, keep bool) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	match, err := regexp.Compile(cases)
	if err != nil {
		return err
	}
	now, results := conform.NewTable(""), map[string][]conform.Outcome{}
	total := summary{Systems: map[string]counts{}}
	for _, s := range chosen {
		c, name, outcomes, err := one(ctx, s, match, times, keep)
		if err != nil {
			// A system that does not start is a failure of all its cases, and none of the others'.
			fmt.Printf("%s: %v\n", s.name, err)
			c.Failed++
		}
		total.Systems[s.name] = c
		total.Failed += c.Failed
		if name != "" {
			now.Add(name, outcomes)
			results[name] = outcomes
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Printf("\n%s\n", now.Markdown())
	if write {
		if err := writePage(results); err != nil {
			return err
		}
	}
	line, err := json.Marshal(total)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if total.Failed > 0 {
		return fmt.Errorf("%d failed", total.Failed)
	}
	return nil
}

// writePage puts results into the page as it is now: another run may have written its own meanwhile.
func writePage(results map[string][]conform.Outcome) error {
	page, err := os.ReadFile(path())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	table := conform.NewTable(string(page))
	for name, outcomes := range results {
		table.Add(name, outcomes)
	}
	return os.WriteFile(path(), []byte(replaceTable(string(page), table.Markdown())), 0o644)
}

func choose(names string) ([]system, error) {
	if names == "" {
		return systems, nil
	}
	var chosen []system
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(systems, func(s system) bool { return s.name == name })
		if i < 0 {
			var known []string
			for _, s := range systems {
				known = append(known, s.name)
			}
			return nil, fmt.Errorf("no system %q here; there are: %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, systems[i])
	}
	return chosen, nil
}

// one runs the cases on one system, from its start to its end.
func one(ctx context.Context, s system, match *regexp.Regexp, times int, keep bool) (c counts, name string, outcomes []conform.Outcome, err error) {
	began := time.Now()
	starting, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	sys, err := s.start(starting)
	if err != nil {
		return c, "", nil, fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	c.Start = time.Since(began).Seconds()
	fmt.Printf("%s, ready after %.1f s\n", sys.Name(), c.Start)
	began = time.Now()
	tell := func(o conform.Outcome) {
		text := fmt.Sprintf("  %-4s  %-32s %5.1f s", o.Verdict, o.Case, o.Took.Seconds())
		if o.Note != "" {
			text += "  " + o.Note
		}
		fmt.Println(text)
		if o.Err != nil {
			fmt.Println("        " + strings.ReplaceAll(o.Err.Error(), "\n", "\n        "))
		}
		switch o.Verdict {
		case conform.Pass:
			c.Passed++
		case conform.Fail:
			c.Failed++
		case conform.Absent:
			c.None++
		}
	}
	for range times {
		if outcomes = conform.Run(ctx, sys, match, tell); ctx.Err() != nil {
			break
		}
	}
	c.Seconds = time.Since(began).Seconds()
	fmt.Printf("%s: %d passed, %d failed, %d not in this system, in %.1f s\n", sys.Name(), c.Passed, c.Failed, c.None, c.Seconds)
	if keep {
		fmt.Printf("kept in %s until INT\n", sys.Lab().Dir)
		<-ctx.Done()
	}
	return c, sys.Name(), outcomes, nil
}

// path is the page in the source tree, wherever we run.
func path() string {
	_, source, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(source), "..", "..", pagePath)
}

// replaceTable puts a table in the place of the page's, which is its end.
func replaceTable(page, table string) string {
	before, _, _ := strings.Cut(page, tableHead)
	return before + tableHead + "\n" + table
}
