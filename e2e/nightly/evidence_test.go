package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const top = "../.."

// rowCounts are how many rows the mission has by the letter of their ID.
var rowCounts = map[string]int{"F": 153, "W": 20, "X": 21}

func rowsOf(t *testing.T) (rows []row) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, evidenceDir, "rows.txt"))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := readRows(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		rows = append(rows, p.rows...)
	}
	return rows
}

func TestRowsAreComplete(t *testing.T) {
	if err := complete(rowsOf(t)); err != nil {
		t.Error(err)
	}
	for name, rows := range map[string][]row{"doubled": {{id: "F1"}, {id: "F1"}}, "unknown": {{id: "Y1"}},
		"missing": nil} {
		if complete(rows) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// complete wants each row of the mission once.
func complete(rows []row) (err error) {
	seen := map[string]int{}
	for _, r := range rows {
		seen[r.id]++
	}
	for letter, n := range rowCounts {
		for i := range n {
			id := fmt.Sprint(letter, i+1)
			if seen[id] != 1 {
				err = errors.Join(err, fmt.Errorf("%s is there %d times", id, seen[id]))
			}
			delete(seen, id)
		}
	}
	for id := range seen {
		err = errors.Join(err, fmt.Errorf("%s is no row", id))
	}
	return err
}

// TestProofsExist looks each suite, each case and each Go test up.
func TestProofsExist(t *testing.T) {
	l := newLookup(t)
	for _, r := range rowsOf(t) {
		for _, p := range r.proofs {
			if err := l.check(p); err != nil {
				t.Errorf("%s: %v", r.id, err)
			}
		}
	}
	for _, wrong := range []string{"nothing", "test:internal/farm TestThatIsNotThere", "test:e2e/vm TestDebianImage",
		"test:e2e/metal TestCPU", "metal-tuner:e2e/metal TestCPU", "farm:no such case", "slow:e2e/vm TestExec",
		"batch:internal/farm TestCPUSet", "test:e2e/vm TestExec/no such case"} {
		if l.check(readProof(wrong)) == nil {
			t.Errorf("%s: no error", wrong)
		}
	}
}

// lookup finds the tests of suites.
type lookup struct {
	suites   map[string]suite
	makefile string
	skips    [][]string // PACKAGE TEST of tests that other suites run
}

func newLookup(t *testing.T) *lookup {
	t.Helper()
	l := &lookup{suites: map[string]suite{}}
	for _, s := range suitesOf(t) {
		l.suites[s.name] = s
	}
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	l.makefile = string(makefile)
	skips, err := os.ReadFile(filepath.Join(top, "e2e/skips.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(skips)) {
		if line[0] != '#' && strings.HasSuffix(strings.TrimSpace(line), "runs it") {
			l.skips = append(l.skips, strings.Fields(line)[:2])
		}
	}
	return l
}

func (l *lookup) check(p proof) error {
	s, ok := l.suites[p.suite]
	switch {
	case !ok:
		return fmt.Errorf("no suite has the name %q", p.suite)
	case p.pkg != "":
		return errors.Join(inPackage(p), l.runs(s, p))
	case p.name != "":
		return l.hasCase(s, p.name)
	}
	return nil
}

// inPackage wants the function of a Go test in the files of its package, and the name of its subtest in quotes.
func inPackage(p proof) error {
	files := filepath.Join(top, p.pkg, "*_test.go")
	err := inFiles(files, regexp.MustCompile(`(?m)^func `+p.name+`\(`))
	if p.sub != "" {
		err = errors.Join(err, inFiles(files, regexp.MustCompile(`"`+regexp.QuoteMeta(p.sub)+`"`)))
	}
	return err
}

func inFiles(pattern string, what *regexp.Regexp) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if what.Match(text) {
			return nil
		}
	}
	return fmt.Errorf("%s is in no file %s", what, pattern)
}

var runFlag = regexp.MustCompile(`-run '([^']+)'`)

// runs wants a suite to run a Go test: make test runs all but those that e2e/skips.txt leaves to other suites.
func (l *lookup) runs(s suite, p proof) error {
	recipe := l.recipe(s)
	if s.name == "test" {
		for _, skip := range l.skips {
			pkg, err1 := filepath.Match(skip[0], p.pkg)
			test, err2 := filepath.Match(skip[1], p.name)
			if err := errors.Join(err1, err2); err != nil || pkg && test {
				return errors.Join(err, fmt.Errorf("make test does not run %s of %s", p.name, p.pkg))
			}
		}
		return nil
	}
	if !slices.ContainsFunc(programs(recipe), func(dir string) bool { return strings.HasPrefix(p.pkg+"/", dir+"/") }) {
		return fmt.Errorf("%s runs nothing of %s", s.name, p.pkg)
	}
	for _, m := range runFlag.FindAllStringSubmatch(s.command+recipe, -1) {
		if !regexp.MustCompile(m[1]).MatchString(p.name) {
			return fmt.Errorf("%s does not run %s", s.name, p.name)
		}
	}
	return nil
}

// recipe is the commands of the suite's target.
func (l *lookup) recipe(s suite) string {
	_, text, _ := strings.Cut(l.makefile, "\n"+strings.Fields(s.command)[1]+":")
	text, _, _ = strings.Cut(text, "\n\n")
	return text
}

var program = regexp.MustCompile(`\./(e2e/[\w/]+)`)

// programs are the directories of the programs that a recipe runs.
func programs(recipe string) (dirs []string) {
	for _, m := range program.FindAllStringSubmatch(recipe, -1) {
		dirs = append(dirs, m[1])
	}
	return dirs
}

// hasCase wants the name of a case in the sources of the suite's program: in quotes, as a function, or as a file of its
// test data.
func (l *lookup) hasCase(s suite, name string) error {
	quoted := regexp.QuoteMeta(name)
	what := regexp.MustCompile(`"` + quoted + `"|(?m)^func (\(.*\) )?` + quoted + `\(`)
	var all []error
	for _, dir := range programs(l.recipe(s)) {
		if _, err := os.Stat(filepath.Join(top, dir, "testdata", name+".txtar")); err == nil {
			return nil
		}
		for _, below := range []string{"*.go", "*/*.go"} {
			err := inFiles(filepath.Join(top, dir, below), what)
			if err == nil {
				return nil
			}
			all = append(all, err)
		}
	}
	return fmt.Errorf("%s has no case %q: %w", s.name, name, errors.Join(all...))
}

// TestEvidence wants the page that rows and records make.
func TestEvidence(t *testing.T) {
	want, err := evidence(top, suitesOf(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(top, evidencePage))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("%s is not what make evidence writes (-want +got):\n%s", evidencePage, d)
	}
}

func TestReadRowsRefuses(t *testing.T) {
	for _, text := range []string{"F1 | a | test |", "## A\nF1 | a | test", "## A\nF1 | a | |",
		"## A\nF1 | a | test | perhaps", "## A\nF1 | a | | in part: b"} {
		if _, err := readRows(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// TestWriteEvidence keeps records of suites that passed on a commit, the latest of each, and shows them.
func TestWriteEvidence(t *testing.T) {
	dir, fresh := t.TempDir(), t.TempDir()
	kept := filepath.Join(dir, evidenceDir)
	if err := os.MkdirAll(kept, 0o755); err != nil {
		t.Fatal(err)
	}
	rows := "## A\nF1 | one | a:x, b | \nF2 | two | b | in part: not proven: c\nF3 | three | | not built: d\n"
	if err := os.WriteFile(filepath.Join(kept, "rows.txt"), []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	put := func(dir, suite, commit string, day int, passed, changed bool) {
		t.Helper()
		r := record{Suite: suite, Commit: commit, Passed: passed, Changed: changed,
			Attempts: []attempt{{Began: time.Date(2026, 1, day, 1, 2, 3, 0, time.UTC), Seconds: 7, Passed: passed}}}
		if err := r.keep(filepath.Join(dir, suite+".json")); err != nil {
			t.Fatal(err)
		}
	}
	put(kept, "a", "aaaaaaaaaaaa", 3, true, false)
	put(kept, "b", "bbbbbbbbbbbb", 3, true, false)
	put(kept, "c", "cccccccccccc", 3, true, false)
	put(fresh, "a", "dddddddddddd", 4, true, false)  // later
	put(fresh, "b", "eeeeeeeeeeee", 4, false, false) // failed
	put(fresh, "c", "ffffffffffff", 4, true, true)   // of no commit
	suites := []suite{{name: "a", command: "make a"}, {name: "b", command: "make b"}, {name: "c", command: "make c"},
		{name: "d", command: "make d"}}
	if err := writeEvidence(dir, fresh, suites); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, evidencePage))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Rows proven: 1. In part: 1. Not proven: 0. Not built: 1. Suites with a record: 3 of 4.",
		"| F1 | one | proven | a: x; b | a: 2026-01-04 01:02, dddddddd; b: 2026-01-03 01:02, bbbbbbbb |  |",
		"| F2 | two | in part | b | b: 2026-01-03 01:02, bbbbbbbb | not proven: c |",
		"| F3 | three | not built |  |  | d |",
		"| d | `make d` | no record | |  |",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("not in the page: %s", want)
		}
	}
	if _, err := evidence(dir, suites[:2]); err == nil {
		t.Error("a record of a suite that is not in the list is no error")
	}
	put(kept, "a", "dddddddddddd", 5, false, false)
	if _, err := evidence(dir, suites); err == nil {
		t.Error("a record of a suite that failed is no error")
	}
	records, err := readRecords(kept)
	if err != nil || !strings.HasPrefix(records["c"].Commit, "cccc") {
		t.Errorf("records %v, %v", records, err)
	}
}
