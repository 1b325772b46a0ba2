// Command gotest runs `go test` and prints what matters: failures with their output, skipped tests, one line a package,
// what runs where nothing else is printed for long, and how many there were, in words and as JSON. It fails when a test
// fails, and when one is skipped that e2e/skips.txt does not list.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

// long is when a test is a part of the wait: one that passed is printed, too, with what it took.
const long = 20 * time.Second

// silence is after how long without a word the tests that run are named.
const silence = time.Minute

const module = "github.com/grange-project/grange/"

func main() {
	run := flag.String("run", "", "only tests that match this expression")
	timeout := flag.Duration("timeout", 20*time.Minute, "of one package")
	list := flag.String("skips", "e2e/skips.txt", "tests that may be skipped")
	flag.Parse()
	allowed, err := readSkips(*list)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(2)
	}
	// No cached results: what the tests see of the machine is no input that go knows.
	args := append([]string{"test", "-json", "-count=1", "-timeout", timeout.String(), "-run", *run}, flag.Args()...)
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(2)
	}
	r := newReport(os.Stdout, allowed)
	r.follow(out, time.Tick(silence))
	failed := cmd.Wait() != nil
	if !r.finish() || failed {
		os.Exit(1)
	}
}

// event is a line of `go test -json`; see `go doc test2json`, and `go help buildjson` for builds.
type event struct {
	Time                                      time.Time
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// skip is a line of the list: PACKAGE TEST REASON. Both names may be patterns of path.Match; a test is listed with its
// subtests.
type skip struct{ pkg, test string }

func readSkips(name string) ([]skip, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var skips []skip
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s: %q: write PACKAGE TEST REASON", name, line)
		}
		skips = append(skips, skip{fields[0], fields[1]})
	}
	return skips, nil
}

// report counts tests and prints as they end.
type report struct {
	out                     io.Writer
	allowed                 []skip
	output                  map[string]*bytes.Buffer // by package and test, until it has ended
	running                 map[string]time.Time     // by package and test; those that wait for their turn are not
	wrote                   bool                     // since the last tick
	proc                    fs.FS                    // /proc
	stuck                   map[string]string        // at the last tick that named what runs
	passed, failed, skipped int
	unlisted, broken        []string
}

func newReport(out io.Writer, allowed []skip) *report {
	return &report{out: out, allowed: allowed, output: map[string]*bytes.Buffer{},
		running: map[string]time.Time{}, proc: os.DirFS("/proc")}
}

// follow takes the lines of `go test` as they come. At each tick without a word since the last one it names what runs.
func (r *report) follow(from io.Reader, ticks <-chan time.Time) {
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(from)
		scanner.Buffer(nil, 16<<20)
		for scanner.Scan() {
			lines <- bytes.Clone(scanner.Bytes())
		}
	}()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			r.line(line)
		case now := <-ticks:
			if !r.wrote && len(r.running) > 0 {
				fmt.Fprintf(r.out, "running: %s\n", r.runs(now))
				r.sayStuck()
			}
			r.wrote = false
		}
	}
}

// sayStuck names the processes that have been stuck for the whole of a silence.
func (r *report) sayStuck() {
	now := stuck(r.proc)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if _, before := r.stuck[name]; before {
			fmt.Fprintf(r.out, "in the kernel, where no signal reaches it: %s: %s\n", name, now[name])
		}
	}
	r.stuck = now
}

func (r *report) line(text []byte) {
	var e event
	if json.Unmarshal(text, &e) != nil {
		fmt.Fprintf(r.out, "%s\n", text) // go itself, before it knew what to test
		return
	}
	r.take(e)
}

// runs names the innermost tests that run, the longest first, each with its time.
func (r *report) runs(now time.Time) string {
	names := slices.SortedFunc(maps.Keys(r.running), func(a, b string) int {
		return cmp.Or(r.running[a].Compare(r.running[b]), strings.Compare(a, b))
	})
	var all []string
	for _, name := range names {
		inner := slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
		if !inner {
			all = append(all, fmt.Sprintf("%s %.0fs", name, now.Sub(r.running[name]).Seconds()))
		}
	}
	const most = 6
	if n := len(all) - most; n > 0 {
		all = append(all[:most], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(all, ", ")
}

func (r *report) take(e event) {
	e.Package = strings.TrimPrefix(e.Package, module)
	key := e.Package + " " + e.Test
	switch e.Action {
	case "run", "cont":
		r.running[key] = e.Time
	case "pause":
		delete(r.running, key)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if r.output[key] == nil {
			r.output[key] = &bytes.Buffer{}
		}
		r.output[key].WriteString(e.Output)
	case "pass", "fail", "skip":
		text := r.output[key]
		delete(r.output, key)
		delete(r.running, key)
		if e.Test == "" {
			r.packageEnded(e, text)
			return
		}
		r.testEnded(e, text)
	}
}

func (r *report) testEnded(e event, text *bytes.Buffer) {
	name := e.Package + " " + e.Test
	switch e.Action {
	case "pass":
		r.passed++
		if e.Elapsed >= long.Seconds() {
			fmt.Fprintf(r.out, "passed: %s\t%.0fs\n", name, e.Elapsed)
			r.wrote = true
		}
	case "fail":
		r.failed++
		r.broken = append(r.broken, name)
		fmt.Fprintf(r.out, "\n%s", text)
	case "skip":
		r.skipped++
		mark := "skipped, as listed:"
		if !r.listed(e) {
			mark = "SKIPPED, not listed:"
			r.unlisted = append(r.unlisted, name)
		}
		fmt.Fprintf(r.out, "%s %s: %s\n", mark, name, reason(text))
	}
}

func (r *report) listed(e event) bool {
	top, _, _ := strings.Cut(e.Test, "/")
	return slices.ContainsFunc(r.allowed, func(s skip) bool {
		pkg, _ := path.Match(s.pkg, e.Package)
		test, _ := path.Match(s.test, top)
		return pkg && test
	})
}

// reason is what the test said last: "file.go:12: why".
func reason(text *bytes.Buffer) string {
	why := "no reason given"
	for line := range strings.Lines(text.String()) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") &&
			!strings.HasPrefix(line, "===") {
			why = line
		}
	}
	return why
}

// packageEnded prints go's own line for the package, and everything when it failed outside of a test.
func (r *report) packageEnded(e event, text *bytes.Buffer) {
	if text == nil {
		text = &bytes.Buffer{}
	}
	if e.Action == "fail" {
		r.broken = append(r.broken, e.Package)
		// A test that was running when the package ended (a panic, a time limit) has no end of its own.
		for key, unfinished := range r.output {
			if strings.HasPrefix(key, e.Package+" ") {
				fmt.Fprintf(r.out, "\n%s", unfinished)
				delete(r.output, key)
			}
		}
		fmt.Fprint(r.out, text)
		return
	}
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "ok ") {
			fmt.Fprint(r.out, strings.Replace(line, module, "", 1))
		}
	}
}

// finish prints the sums and reports whether all is well.
func (r *report) finish() bool {
	for _, name := range r.unlisted {
		fmt.Fprintf(r.out, "skipped, and not in the list of skips: %s\n", name)
	}
	for _, name := range r.broken {
		fmt.Fprintf(r.out, "failed: %s\n", name)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	// A package may fail without a test that does, as one that does not compile.
	wrong := len(r.broken) + len(r.unlisted)
	fmt.Fprintf(r.out, `{"passed":%d,"failed":%d,"skipped":%d}`+"\n", r.passed, wrong, r.skipped)
	return len(r.broken) == 0 && len(r.unlisted) == 0
}
