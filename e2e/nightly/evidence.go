package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Files of the evidence, from the root of the source.
const (
	evidenceDir  = "docs/internals/evidence" // rows.txt, and a record of each suite that passed
	evidencePage = "docs/internals/evidence.md"
)

// row is a feature of the mission, with the tests that prove it.
type row struct {
	id, title string
	proofs    []proof
	note      string // "STATE: TEXT"; "" for a row that is proven
}

// proof is a test of a suite.
type proof struct {
	suite string
	pkg   string // of a Go test
	name  string // the test, or the case; "" is the whole suite
	sub   string // of a Go test: its subtest; "" is all
}

// part is a heading of rows.txt with its rows.
type part struct {
	title string
	rows  []row
}

// states are how a note may begin.
var states = []string{"in part", "not proven", "not built"}

// readRows reads "## PART" and lines ID | TITLE | PROOFS | NOTE. PROOFS are separated by commas: SUITE, SUITE:CASE or
// SUITE:PACKAGE TestNAME/SUBTEST.
func readRows(text string) (parts []part, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		title, heading := strings.CutPrefix(line, "## ")
		switch {
		case heading:
			parts = append(parts, part{title: title})
		case line == "" || line[0] == '#':
		case len(parts) == 0:
			return nil, fmt.Errorf("%q is below no heading", line)
		default:
			r, err := readRow(line)
			if err != nil {
				return nil, err
			}
			parts[len(parts)-1].rows = append(parts[len(parts)-1].rows, r)
		}
	}
	return parts, nil
}

func readRow(line string) (r row, err error) {
	fields := strings.Split(line, "|")
	if len(fields) != 4 {
		return r, fmt.Errorf("%q: write ID | TITLE | PROOFS | NOTE", line)
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	r = row{id: fields[0], title: fields[1], note: fields[3]}
	for text := range strings.SplitSeq(fields[2], ",") {
		if text = strings.TrimSpace(text); text != "" {
			r.proofs = append(r.proofs, readProof(text))
		}
	}
	switch state := r.state(); {
	case state == "proven" || state == "in part":
		if len(r.proofs) == 0 {
			return r, fmt.Errorf("%s is %s by no test: say why", r.id, state)
		}
	case !slices.Contains(states, state):
		return r, fmt.Errorf("%s: a note begins with one of %q", r.id, states)
	}
	return r, nil
}

var goTest = regexp.MustCompile(`^(\S+) ((?:Test|Fuzz)\w+)(?:/(.+))?$`)

func readProof(text string) proof {
	suite, name, _ := strings.Cut(text, ":")
	if m := goTest.FindStringSubmatch(name); m != nil {
		return proof{suite: suite, pkg: m[1], name: m[2], sub: m[3]}
	}
	return proof{suite: suite, name: name}
}

// state is how far the row is proven.
func (r row) state() string {
	if r.note == "" {
		return "proven"
	}
	state, _, _ := strings.Cut(r.note, ": ")
	return state
}

// reason is the note without the state.
func (r row) reason() string {
	_, reason, _ := strings.Cut(r.note, ": ")
	return reason
}

// readRecords reads the records of a directory by the names of their suites; none where there is no directory.
func readRecords(dir string) (map[string]record, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	records := map[string]record{}
	for _, file := range files {
		var r record
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if r.Suite+".json" != filepath.Base(file) || len(r.Attempts) == 0 {
			return nil, fmt.Errorf("%s is no record of a suite of its name", file)
		}
		records[r.Suite] = r
	}
	return records, nil
}

// last is the attempt that counts.
func (r record) last() attempt { return r.Attempts[len(r.Attempts)-1] }

// keepNewer writes records of suites that passed on a commit to a directory, unless that has a later one.
func keepNewer(records map[string]record, dir string) error {
	kept, err := readRecords(dir)
	if err != nil {
		return err
	}
	for name, r := range records {
		k, have := kept[name]
		if !r.Passed || r.Changed || have && !r.last().Began.After(k.last().Began) {
			continue
		}
		if err := r.keep(filepath.Join(dir, name+".json")); err != nil {
			return err
		}
	}
	return nil
}

// writeEvidence keeps what is new in the directory of nightly's records, and writes the page.
func writeEvidence(top, dir string, suites []suite) error {
	fresh, err := readRecords(dir)
	if err != nil {
		return err
	}
	if err := keepNewer(fresh, filepath.Join(top, evidenceDir)); err != nil {
		return err
	}
	page, err := evidence(top, suites)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(top, evidencePage), []byte(page), 0o644)
}

// evidence is the page that the rows and the records of the tree make.
func evidence(top string, suites []suite) (string, error) {
	text, err := os.ReadFile(filepath.Join(top, evidenceDir, "rows.txt"))
	if err != nil {
		return "", err
	}
	parts, err := readRows(string(text))
	if err != nil {
		return "", err
	}
	records, err := readRecords(filepath.Join(top, evidenceDir))
	if err != nil {
		return "", err
	}
	for name, r := range records {
		if !slices.ContainsFunc(suites, func(s suite) bool { return s.name == name }) {
			return "", fmt.Errorf("%s/%s.json is a record of a suite that is not in the list", evidenceDir, name)
		}
		if !r.Passed || r.Changed {
			return "", fmt.Errorf("%s/%s.json is no record of a suite that passed on a commit", evidenceDir, name)
		}
	}
	return page(parts, suites, records), nil
}
