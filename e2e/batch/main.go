// Command batch runs the conformance cases on batch systems of this machine, real ones and fakes, each with a host of
// its own, and the other tests that need them, and prints what came of them. It needs root.
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
	"sync"
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
	// what takes minutes the first time on a machine, and may be done long before start; nil: nothing
	prepare func(context.Context) error
	tests   *tests // in the place of the cases
	only    bool   // runs where it is named: it is this machine's own
}

// systems are all of them, in the order in which they run: another Debian is made while the first ones do, and the last
// ones are those that wait least when all others have ended. Behind them come tests of their own that need batch
// systems, too.
var systems = []system{
	{name: "slurm", start: by(slurmlab.Start, slurmlab.Options{Accounting: true})},
	{name: "slurm-oci", start: by(slurmlab.Start, slurmlab.Options{OCI: true})},
	{name: "gridengine", start: by(gridenginelab.Start, gridenginelab.Options{})},
	{name: "slurm24", start: by(slurmlab.StartTrixie, slurmlab.Options{Accounting: true}),
		prepare: slurmlab.PrepareTrixie},
	{name: "htcondor", start: by(condorlab.Start, condorlab.Options{}), prepare: condorlab.Prepare},
	{name: "pbs", start: by(fakelab.Start, fakelab.Options{System: farm.PBS})},
	{name: "lsf", start: by(fakelab.Start, fakelab.Options{System: farm.LSF})},
	{name: "elastic", tests: &tests{dir: "elastic", build: []string{"build"}}},
	{name: "trixie", tests: &tests{dir: "slurmlab", build: []string{"test", "-c"},
		args: []string{"-test.timeout=30m", "-test.run=^TestTrixie$"}}, prepare: slurmlab.PrepareTrixie},
	{name: "pool", tests: &tests{dir: "condorlab", build: []string{"test", "-c"}, args: []string{"-test.timeout=30m"}},
		prepare: condorlab.Prepare},
	{name: "cells", tests: &tests{dir: "cells", build: []string{"test", "-c"},
		args: []string{"-test.timeout=30m", "-test.v"}}},
	{name: "slurm-installed", start: by(slurmlab.Installed(2), slurmlab.Options{}), only: true},
	{name: "drivers", tests: &tests{dir: "drivers", build: []string{"test", "-c"},
		args: []string{"-test.timeout=30m"}}},
}

// by makes a lab's own Start the one of a system.
func by[L conform.System, O any](start func(context.Context, O) (L, error),
	options O) func(context.Context) (conform.System, error) {
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
	startTime = 15 * time.Minute // to build the programs, the image and the system
)

func main() {
	names := flag.String("systems", "", "run these, as `slurm,gridengine` (default: all)")
	cases := flag.String("cases", "", "run cases whose name matches `REGEXP`")
	write := flag.Bool("write", false, "write the results to "+pagePath)
	times := flag.Int("times", 1, "run the cases `N` times, to find those that do not always pass; with -write the "+
		"last time counts")
	keep := flag.Bool("keep", false, "leave each system running until INT, to look at it")
	flag.IntVar(&conform.Slow, "slow", 1, "limits are `N` times as long, for machines that are emulated")
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
	Seconds float64           `json:"seconds"`
}

type counts struct {
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Differs int     `json:"differs"` // of those that passed: users see another end than on the host
	None    int     `json:"none"`
	Seconds float64 `json:"seconds"`       // of the cases
	Start   float64 `json:"start_seconds"` // of the system and its host
}

func run(ctx context.Context, names, cases string, times int, write, keep bool) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	if names == "" && cases != "" { // those of every system, and nothing else
		chosen = slices.DeleteFunc(chosen, func(s system) bool { return s.tests != nil })
	}
	match, err := regexp.Compile(cases)
	if err != nil {
		return err
	}
	began := time.Now()
	runs := make([]*passage, len(chosen))
	var all sync.WaitGroup
	go func() {
		for _, s := range chosen {
			if s.prepare != nil {
				s.prepare(ctx) // what goes wrong start finds, too, and says
			}
		}
	}()
	for i, s := range chosen {
		runs[i] = &passage{system: s, match: match, times: times, keep: keep, started: make(chan struct{}),
			quiet: make(chan struct{})}
		if i > 0 {
			runs[i].before = runs[i-1]
		}
		all.Go(func() { runs[i].run(ctx) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now, results := conform.NewTable(""), map[string][]conform.Outcome{}
	total := summary{Systems: map[string]counts{}, Seconds: time.Since(began).Seconds()}
	for _, p := range runs {
		total.Systems[p.name] = p.counts
		total.Failed += p.Failed
		if p.title != "" {
			now.Add(p.title, p.outcomes)
			results[p.title] = p.outcomes
		}
	}
	fmt.Printf("\n%s\n", now.Markdown())
	for _, p := range runs {
		fmt.Print(p.retold())
	}
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
		return slices.DeleteFunc(slices.Clone(systems), func(s system) bool { return s.only }), nil
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

// passage is one system from its start to its end. Systems are started one after the other, each while the cases of the
// one before keep the machine busy. Its own cases begin when that one has only those left that want their system for
// themselves: those wait, mostly.
type passage struct {
	system
	counts
	match   *regexp.Regexp
	times   int
	keep    bool
	before  *passage      // nil for the first
	started chan struct{} // closed when it has come up, or has not
	quiet   chan struct{} // closed when it leaves the machine to the next

	title    string // "": it did not start
	outcomes []conform.Outcome
	failures []failure
}

func (p *passage) run(ctx context.Context) {
	started, quiet := sync.OnceFunc(func() { close(p.started) }), sync.OnceFunc(func() { close(p.quiet) })
	defer quiet()
	defer started()
	if p.before != nil {
		<-p.before.started
		if p.before.before != nil {
			<-p.before.before.quiet
		}
	}
	if ctx.Err() != nil {
		return
	}
	run := func() error { return p.cases(ctx, started, quiet) }
	if p.tests != nil {
		if p.before != nil {
			<-p.before.quiet
		}
		started()
		quiet() // they wait, mostly
		run = func() error { return p.program(ctx, *p.tests) }
	}
	if err := run(); err != nil {
		// A system that does not start is a failure of all its cases, and none of the others'.
		p.say("%v", err)
		p.fail("", err)
	}
}

func (p *passage) cases(ctx context.Context, started, quiet func()) (err error) {
	began := time.Now()
	starting, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	sys, err := p.start(starting)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	p.title, p.Start = sys.Name(), time.Since(began).Seconds()
	p.say("%s, ready after %.1f s", sys.Name(), p.Start)
	started()
	if p.before != nil {
		<-p.before.quiet
	}
	began = time.Now()
	for i := range p.times {
		then := func() {}
		if i == p.times-1 {
			then = quiet
		}
		if p.outcomes = conform.Run(ctx, sys, p.match, p.tell, then); ctx.Err() != nil {
			break
		}
	}
	p.Seconds = time.Since(began).Seconds()
	p.say("%s: %d passed, %d failed, %d not in this system, in %.1f s", sys.Name(), p.Passed, p.Failed,
		p.None, p.Seconds)
	if p.keep {
		p.say("kept in %s until INT", sys.Lab().Dir)
		<-ctx.Done()
	}
	return nil
}

// tell is called for one case at a time.
func (p *passage) tell(o conform.Outcome) {
	text := fmt.Sprintf("%-4s  %-32s %5.1f s", o.Verdict, o.Case, o.Took.Seconds())
	if o.Note != "" {
		text += "  " + o.Note
	}
	if o.Err != nil {
		text += "\n        " + strings.ReplaceAll(o.Err.Error(), "\n", "\n        ")
	}
	p.say("%s", text)
	switch o.Verdict {
	case conform.Pass:
		p.Passed++
	case conform.Differs:
		p.Passed++
		p.Differs++
	case conform.Fail:
		p.fail(o.Case, o.Err)
	case conform.Absent:
		p.None++
	}
}

// say prints a line with the system's name before it: others' come between.
func (p *passage) say(format string, args ...any) {
	fmt.Printf("%-10s  "+format+"\n", append([]any{p.name}, args...)...)
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
