package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// figures are the line at the end of the tests.
type figures struct {
	Failed  int `json:"failed"`
	Passed  int `json:"passed"`
	Skipped int `json:"skipped"`
	facts
	Repeated int `json:"repeated"` // tests that the emulator cut, and that ran again
	Seconds  int `json:"seconds"`
}

// facts are what the tests found out of the hosts that they ran on. They write them for the figures.
type facts struct {
	KVM     bool     `json:"kvm"`
	Nodes   int      `json:"nodes"`
	SMT     bool     `json:"smt"`
	Reboots int      `json:"reboots"`
	Cut     []string `json:"cut,omitempty"` // tests whose host was ended by a fault of the emulator
}

// Environment of the tests: where packages lie, whether only the quick ones are wanted, and where their facts go.
const (
	packagesVariable = "GRANGE_METAL_PACKAGES"
	quickVariable    = "GRANGE_METAL_QUICK"
	factsVariable    = "GRANGE_METAL_FACTS"
)

// repeats is how often a test may be cut: what cuts it is rare, see metallab.Host.Cut.
const repeats = 2

func test(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("test", flag.ExitOnError)
	quick := flags.Bool("quick", false, "only the quick tests, on one release of Debian")
	only := flags.String("run", "", "only tests that match this `REGEXP`")
	packages := flags.String("packages", "", "`DIR` with deb packages; those of this tree are built otherwise")
	flags.Parse(args)
	began := time.Now()
	work, err := os.MkdirTemp("", "grange-metal-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	dist, err := metallab.Packages(ctx, *packages)
	if err != nil {
		return err
	}
	environment := append(os.Environ(), packagesVariable+"="+dist)
	if *quick {
		environment = append(environment, quickVariable+"=1")
	}
	sum, pattern := result{}, *only
	for again := range repeats + 1 {
		r, err := runTests(ctx, pattern, filepath.Join(work, strconv.Itoa(again)), environment)
		if err != nil {
			return err
		}
		sum.add(r)
		cut := r.cutTests()
		if len(cut) == 0 || again == repeats || ctx.Err() != nil {
			break
		}
		fmt.Printf("again, for the emulator panicked their hosts: %s\n", strings.Join(cut, " "))
		sum.forget(cut)
		pattern = "^(" + strings.Join(cut, "|") + ")$"
	}
	sum.Seconds = int(time.Since(began).Seconds())
	sum.Cut = nil
	if err := json.NewEncoder(os.Stdout).Encode(sum.figures); err != nil {
		return err
	}
	switch {
	case sum.Failed > 0 || sum.other:
		return errors.New("tests failed")
	case sum.Passed == 0:
		return fmt.Errorf("no test matches %q", *only)
	case sum.Skipped > 0 && !*quick:
		return fmt.Errorf("%d tests were skipped", sum.Skipped)
	}
	return nil
}

// result is how tests ended.
type result struct {
	figures
	broken map[string]int // top tests that failed, with how many failures each is of them
	other  bool           // something besides tests failed
}

func runTests(ctx context.Context, pattern, factsFile string, environment []string) (r result, err error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./e2e/gotest", "-timeout", "150m", "-run", pattern, "--",
		"-parallel="+strconv.Itoa(max(2, runtime.NumCPU())), "./e2e/metal")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(slices.Clip(environment), factsVariable+"="+factsFile)
	seen := &tail{}
	cmd.Stdout, cmd.Stderr = seen, os.Stderr
	failed := cmd.Run()
	if r, err = parse(seen.last); err != nil {
		return r, cmp.Or(ctx.Err(), err)
	}
	r.other = failed != nil && len(r.broken) == 0
	text, err := os.ReadFile(factsFile)
	if err != nil {
		r.other = true // the tests died: they write it last
		return r, nil
	}
	return r, json.Unmarshal(text, &r.facts)
}

var (
	sums   = regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed, (\d+) skipped\n\{.*\}\s*\z`)
	broken = regexp.MustCompile(`(?m)^failed: e2e/metal (\w+)`)
)

// parse reads the last lines of e2e/gotest.
func parse(text []byte) (r result, err error) {
	found := sums.FindSubmatch(text)
	if found == nil {
		return r, errors.New("the tests came to no end")
	}
	for i, to := range []*int{&r.Passed, &r.Failed, &r.Skipped} {
		if *to, err = strconv.Atoi(string(found[i+1])); err != nil {
			return r, err
		}
	}
	r.broken = map[string]int{}
	for _, line := range broken.FindAllSubmatch(text, -1) {
		r.broken[string(line[1])]++
	}
	return r, nil
}

// cutTests are those that failed for nothing but the emulator.
func (r result) cutTests() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.broken)), func(name string) bool {
		return !slices.Contains(r.Cut, name)
	})
}

func (r *result) add(o result) {
	r.Passed, r.Failed, r.Skipped = r.Passed+o.Passed, r.Failed+o.Failed, r.Skipped+o.Skipped
	r.KVM, r.SMT, r.Nodes = r.KVM || o.KVM, r.SMT || o.SMT, max(r.Nodes, o.Nodes)
	r.Reboots += o.Reboots
	r.other = r.other || o.other
	r.broken = o.broken
}

// forget takes back the failures of tests that run again.
func (r *result) forget(cut []string) {
	for _, name := range cut {
		r.Failed -= r.broken[name]
	}
	r.Repeated += len(cut)
}

// tail passes output on and keeps its end.
type tail struct{ last []byte }

func (t *tail) Write(text []byte) (int, error) {
	t.last = append(t.last, text...)
	t.last = t.last[max(0, len(t.last)-64<<10):]
	return os.Stdout.Write(text)
}
