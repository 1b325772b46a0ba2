package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func suitesOf(t *testing.T) []suite {
	t.Helper()
	suites, err := readSuites(suitesText)
	if err != nil {
		t.Fatal(err)
	}
	return suites
}

// TestSuites holds the list to what .ci/run can take: each suite fits in a slice, and its target exists.
func TestSuites(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range suitesOf(t) {
		if s.length > sliceLength && !s.every {
			t.Errorf("%s takes %s, and a slice has %s: split it", s.name, s.length, sliceLength)
		}
		if names[s.name] {
			t.Errorf("two suites have the name %s", s.name)
		}
		names[s.name] = true
		words := strings.Fields(s.command)
		if words[0] != "make" || !bytes.Contains(makefile, []byte("\n"+words[1]+":")) {
			t.Errorf("%s: %q is no target of the Makefile", s.name, s.command)
		}
	}
}

// TestEveryCommit compares the suites with a + to the lines of .ci/run.
func TestEveryCommit(t *testing.T) {
	script, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	var runs, marked []string
	for _, m := range regexp.MustCompile(`(?m)^(?:PATH=\S+ )?run (\S+)(.*)$`).FindAllSubmatch(script, -1) {
		if !slices.Contains([]string{"build", "lint", "vulncheck", "sbom", "nightly"}, string(m[1])) {
			runs = append(runs, "make "+string(m[1])+string(m[2]))
		}
	}
	for _, s := range suitesOf(t) {
		if s.every {
			marked = append(marked, s.command)
		}
	}
	if !slices.Equal(runs, marked) {
		t.Errorf(".ci/run runs\n%s\nand the list has\n%s", strings.Join(runs, "\n"), strings.Join(marked, "\n"))
	}
}

// TestMetalOnce wants each test of the emulated hosts in exactly one suite.
func TestMetalOnce(t *testing.T) {
	files, err := filepath.Glob("../metal/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	pattern := regexp.MustCompile(`-run '([^']+)'`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(text, -1) {
			name, in := string(m[1]), []string{}
			for _, s := range suitesOf(t) {
				if p := pattern.FindStringSubmatch(s.command); p != nil && strings.HasPrefix(s.name, "metal-") &&
					regexp.MustCompile(p[1]).MatchString(name) {
					in = append(in, s.name)
				}
			}
			if len(in) != 1 && name != "TestParse" { // a unit test
				t.Errorf("%s is in the suites %v, not in one", name, in)
			}
		}
	}
}

func TestSlices(t *testing.T) {
	minutes := func(all ...int) (suites []suite) {
		for _, m := range all {
			suites = append(suites, suite{length: time.Duration(m) * time.Minute})
		}
		return suites
	}
	var got []int
	for _, slice := range slicesOf(minutes(14, 5, 10, 1, 15), 15*time.Minute) {
		got = append(got, len(slice))
	}
	if want := []int{1, 2, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("suites in the slices: %v, want %v", got, want)
	}
	// Neighbouring commits walk through all of them.
	seen, all := map[string]bool{}, inSlices(suitesOf(t))
	for n := range len(slicesOf(all, sliceLength)) {
		for _, s := range chosen(all, options{slice: 1000 + n}) {
			seen[s.name] = true
		}
	}
	if len(seen) != len(all) {
		t.Errorf("%d of %d suites have their turn", len(seen), len(all))
	}
}

func TestFigures(t *testing.T) {
	ended := errors.New("exit status 1")
	for _, c := range []struct {
		line   string
		ended  error
		passed bool
	}{
		{`{"failed":0}`, nil, true},
		{`{"failed":[]}`, nil, true},
		{`{"failed":false}`, nil, true},
		{`{"failed":2}`, nil, false},
		{`{"failed":["a"]}`, nil, false},
		{`{"failed":true}`, nil, false},
		{`{"failed":0}`, ended, false},
		{`{"passed":7}`, nil, false},
		{`{"failed":"no"}`, nil, false},
		{`ok`, nil, false},
		{``, ended, false},
	} {
		if _, err := figuresOf([]byte(c.line), c.ended); (err == nil) != c.passed {
			t.Errorf("%q, %v: %v", c.line, c.ended, err)
		}
	}
}

// TestNight runs suites that pass, fail once, fail always, and would take too long.
func TestNight(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	t.Chdir(dir)
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "first")
	pass := `echo '{"failed":0,"n":1}'`
	suites := []suite{
		{name: "passes", command: "echo ran >>passes; " + pass},
		{name: "once", command: "test -e once || { touch once; echo '{\"failed\":1}'; exit 1; }; " + pass},
		{name: "never", command: "exit 3"},
		{name: "long", length: time.Hour, command: "touch long; " + pass},
	}
	night := func(left time.Duration) *night {
		n := &night{dir: "records", end: time.Now().Add(left)}
		var err error
		if n.commit, n.changed, err = commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := night(time.Minute)
	if err := first.run(t.Context(), suites); err == nil {
		t.Error("a suite that failed twice fails nothing")
	}
	want := figures{Passed: 2, Repeated: []string{"once", "never"}, Dropped: []string{"long"}}
	if got := first.figures; first.failed != 1 || got.Passed != want.Passed ||
		!slices.Equal(got.Repeated, want.Repeated) || !slices.Equal(got.Dropped, want.Dropped) {
		t.Errorf("figures %+v, want %+v", got, want)
	}
	// The next call goes on: what passed on this source does not run again.
	second := night(2 * time.Hour)
	second.run(t.Context(), suites)
	if got := second.figures.Kept; !slices.Equal(got, []string{"passes", "once"}) {
		t.Errorf("kept %v", got)
	}
	if text, _ := os.ReadFile("passes"); string(text) != "ran\n" {
		t.Errorf("the suite that passed ran again: %q", text)
	}
	git("commit", "-q", "--allow-empty", "-m", "second")
	os.WriteFile("source.go", nil, 0o644)
	git("add", "source.go")
	git("commit", "-q", "-m", "third")
	third := night(time.Minute)
	third.run(t.Context(), suites[:1])
	if third.figures.Passed != 1 {
		t.Error("a suite did not run again on another source")
	}
}

// TestCut ends a suite with all its processes when no time is left. That is no failure.
func TestCut(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &starts{then: cancel}
	// dash loses an interrupt that comes while it forks.
	a := suite{command: "sh -c 'echo begun; exec sleep 600'; true"}.run(ctx, out)
	if !a.Cut || a.Passed {
		t.Errorf("%+v", a)
	}
}

type starts struct{ then func() }

func (s *starts) Write(text []byte) (int, error) {
	s.then()
	return len(text), nil
}

// TestBelowMake: a suite does not get the arguments of the make that runs this program, and ends with its figures.
func TestBelowMake(t *testing.T) {
	t.Chdir(t.TempDir())
	makefile := "suite:\n\t@echo '{\"failed\":0,\"args\":\"$(ARGS)\"}'\nnightly:\n\t@env >environment\n"
	if err := os.WriteFile("Makefile", []byte(makefile), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("make", "nightly", "ARGS=-slice 17").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	environment, err := os.ReadFile("environment")
	if err != nil || !bytes.Contains(environment, []byte("-slice")) {
		t.Fatalf("%v\n%s", err, environment)
	}
	for line := range strings.Lines(string(environment)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && ofMake(line) {
			t.Setenv(name, value)
		}
	}
	if a := (suite{command: "make suite"}).run(t.Context(), io.Discard); string(a.Figures) != `{"failed":0,"args":""}` {
		t.Errorf("%+v: %s", a, a.Figures)
	}
}
