// Command reports runs the program that -grange names on small recorded hosts that were made after public problem
// reports, and compares what it prints with what each archive of testdata demands. The last line is JSON.
//
// An archive begins with a text that says what is wrong on the host, and with lines of these kinds:
//
//	Over: FILE     the archive that its files lie over, by its path in the repository; a file whose text is "-"
//	               removes that one
//	Run: ARGS      what grange is to do; "go test …" runs a test of the repository instead
//	Want: REGEXP   must match what is printed, with every run of white space one blank
//	Not: REGEXP    must not match it
//	Status: N      the exit status
//
// Without -only, it also makes up virtual machines of all properties of flavors within small bounds, and machines with
// and without memory and huge pages on their nodes, and holds plans and refusals against rules. It follows the advice
// of each finding of the audit on all recorded hosts of the repository, and audits again.
//
// It runs in the root of the repository.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/reports/generate"
)

// figures are the line at the end.
type figures struct {
	Cases int `json:"cases"`
	Wrong int `json:"wrong"` // cases of which something that is demanded was not printed
	// Generated are plans, of which BadPlans break a rule.
	Generated int `json:"generated"`
	BadPlans  int `json:"bad_plans"`
	// Followed are findings whose advice was followed; in WorseAdvice of them the audit found something worse then.
	Followed    int     `json:"followed"`
	WorseAdvice int     `json:"worse_advice"`
	Failed      int     `json:"failed"` // what could not be tried
	Seconds     float64 `json:"seconds"`
}

func main() {
	binary := flag.String("grange", "bin/grange", "the `PROGRAM`")
	only := flag.String("only", "", "only archives whose name contains this `TEXT`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began, f := time.Now(), &figures{}
	if err := f.cases(ctx, *binary, *only); err != nil {
		f.Failed++
		fmt.Fprintln(os.Stderr, "reports:", err)
	}
	if *only == "" && ctx.Err() == nil {
		f.plans(generate.Flavors(1))
		f.plans(generate.Machines(machines))
		f.advice()
	}
	f.Seconds = math.Round(time.Since(began).Seconds())
	text, _ := json.Marshal(f)
	fmt.Println(string(text))
	if f.Wrong+f.BadPlans+f.WorseAdvice+f.Failed > 0 {
		os.Exit(1)
	}
}

// machines are as many as are made up.
const machines = 10000

// maxNamed bounds how many lines of a generator are printed.
const maxNamed = 20

// plans counts what a generator of plans found.
func (f *figures) plans(r generate.Result) {
	f.Generated += r.Generated
	f.BadPlans += len(r.Bad)
	name(r.Bad)
}

// advice counts what following the advice of each finding made worse.
func (f *figures) advice() {
	r, err := generate.Advice(".")
	if err != nil {
		f.Failed++
		fmt.Fprintln(os.Stderr, "reports:", err)
	}
	f.Followed, f.WorseAdvice = r.Generated, len(r.Bad)
	name(r.Bad)
}

func name(bad []string) {
	for _, line := range bad[:min(len(bad), maxNamed)] {
		fmt.Println(line)
	}
}

const testdata = "e2e/reports/testdata"

// cases runs every archive of testdata whose name contains only.
func (f *figures) cases(ctx context.Context, binary, only string) error {
	paths, err := filepath.Glob(filepath.Join(testdata, "*"+only+"*.txtar"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("no archive of %s is called *%s*: %w", testdata, only, err)
	}
	for _, path := range paths {
		f.Cases++
		c, err := readCase(path)
		if err == nil {
			err = c.run(ctx, binary)
		}
		if err != nil {
			f.Wrong++
			fmt.Printf("%s: %v\n", strings.TrimSuffix(filepath.Base(path), ".txtar"), err)
		}
	}
	return ctx.Err()
}
