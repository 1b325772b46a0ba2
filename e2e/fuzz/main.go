// Command fuzz runs every fuzz target of the module for some time each. An input that fails is written to testdata/fuzz
// of its package, by go itself, and is a test case from then on. What was found interesting is kept below bin/fuzz for
// the next run; with -keep the smallest of it goes to testdata/fuzz, too. The last line is JSON; any target that fails
// fails the run.
package main

import (
	"bytes"
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
)

// figures are the line at the end.
type figures struct {
	Targets int      `json:"targets"`
	Inputs  int64    `json:"inputs"` // that were tried
	Kept    int      `json:"kept"`   // that went to testdata/fuzz
	Failed  []string `json:"failed"`
	Seconds float64  `json:"seconds"`
}

type options struct {
	each   time.Duration
	only   string
	cache  string
	keep   bool
	inputs int // of a target in testdata/fuzz, with -keep
}

func main() {
	var o options
	flag.DurationVar(&o.each, "time", 10*time.Second, "for each target")
	flag.StringVar(&o.only, "only", "", "only targets whose `NAME` has this, as in policy.FuzzDecide")
	flag.StringVar(&o.cache, "cache", "bin/fuzz", "`DIRECTORY` of test programs, and of inputs that were found")
	flag.BoolVar(&o.keep, "keep", false, "copy the smallest new inputs to testdata/fuzz")
	flag.IntVar(&o.inputs, "inputs", 12, "that testdata/fuzz has of a target at most, with -keep")
	list := flag.Bool("list", false, "print the targets, and run none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	targets, err := find(".", o.only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(2)
	}
	if *list {
		for _, t := range targets {
			fmt.Println(t)
		}
		return
	}
	f, err := run(ctx, targets, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
	}
	text, _ := json.Marshal(f)
	fmt.Println(string(text))
	if err != nil || len(f.Failed) > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, targets []target, o options) (f figures, err error) {
	began := time.Now()
	f.Failed = []string{}
	if o.cache, err = filepath.Abs(o.cache); err != nil {
		return f, err
	}
	built := map[string]string{} // test program by package
	for _, t := range targets {
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
		if built[t.dir] == "" {
			if built[t.dir], err = build(ctx, t.dir, o.cache); err != nil {
				return f, err
			}
		}
		inputs, err := t.run(ctx, built[t.dir], o)
		f.Targets++
		f.Inputs += inputs
		if err != nil {
			f.Failed = append(f.Failed, t.String())
			fmt.Printf("FAILED  %s\n%v\n", t, err)
			continue
		}
		fmt.Printf("ok      %-50s %9d inputs\n", t, inputs)
		if o.keep {
			n, err := t.keep(o)
			if err != nil {
				return f, err
			}
			f.Kept += n
		}
	}
	f.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	return f, nil
}

// heavy takes minutes to compile in the form that counts what an input reaches. Packages that use it are fuzzed without
// that.
const heavy = "modernc.org/sqlite"

// build compiles the tests of a package once for all its targets.
func build(ctx context.Context, dir, cache string) (string, error) {
	deps, err := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "./"+dir).Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w", dir, err)
	}
	program := filepath.Join(cache, dir, "test")
	words := []string{"test", "-c", "-o", program}
	if !slices.Contains(strings.Fields(string(deps)), heavy) {
		words = append(words, "-fuzz=.")
	}
	if out, err := exec.CommandContext(ctx, "go", append(words, "./"+dir)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", dir, err, out)
	}
	return program, nil
}

// run fuzzes one target, and returns how many inputs it tried.
func (t target) run(ctx context.Context, program string, o options) (inputs int64, err error) {
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.fuzz=^"+t.name+"$",
		"-test.fuzzcachedir="+filepath.Join(o.cache, t.dir))
	cmd.Dir = t.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	interrupt := func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Cancel = interrupt
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	// Not -test.fuzztime: where that ends while a worker is late, as on a busy machine, the target fails with "context
	// deadline exceeded" and has found nothing (go.dev/issue/75804). An interrupt is an orderly end.
	end := time.AfterFunc(o.each, func() { interrupt() })
	defer end.Stop()
	err = cmd.Wait()
	for line := range strings.Lines(out.String()) {
		if _, after, ok := strings.Cut(line, ", execs: "); ok {
			fmt.Sscan(after, &inputs)
		}
	}
	if err != nil {
		return inputs, fmt.Errorf("%w\n%s", err, &out)
	}
	if inputs == 0 {
		return 0, errors.New("no input was tried; give it a longer -time:\n" + out.String())
	}
	return inputs, nil
}
