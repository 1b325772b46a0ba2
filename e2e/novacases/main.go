// Command novacases judges what `grange host fit --cases FILE --json` says to recorded placement cases: the verdicts by
// the record, the pins by the rules and never by equality. Cases whose record an independent matching contradicts are
// counted apart. It runs the program that -grange names.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/e2e/novacases/judge"
	"github.com/grange-project/grange/internal/flavor"
)

func main() {
	grange := flag.String("grange", "bin/grange", "the program")
	file := flag.String("cases", "internal/flavor/testdata/nova-cases.json", "the cases")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	right, err := run(ctx, *grange, *file)
	if err != nil {
		fmt.Fprintln(os.Stderr, "novacases:", err)
	}
	if err != nil || !right {
		os.Exit(1)
	}
}

// run prints what is wrong, and then the numbers. It reports whether nothing is.
func run(ctx context.Context, grange, file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	cases, err := flavor.Read(f)
	if err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, grange, "host", "fit", "--cases", file, "--json")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return false, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	answers, err := readAnswers(out)
	if err != nil {
		return false, err
	}
	var n tally
	for _, text := range cases {
		c, err := flavor.Parse(text)
		if err != nil {
			return false, err
		}
		a, ok := answers[c.ID]
		if problem := n.count(c, a, ok); problem != "" {
			fmt.Printf("%s (%s): %s\n", c.ID, c.Source, problem)
		}
	}
	failed := n.Cases - n.Right - n.Contested
	return failed == 0, lastline.Print(n, failed)
}

func readAnswers(out []byte) (map[string]flavor.Answer, error) {
	answers := map[string]flavor.Answer{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var a flavor.Answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, fmt.Errorf("answer %q: %w", lines.Text(), err)
		}
		answers[a.ID] = a
	}
	return answers, lines.Err()
}

// tally counts cases by how they were answered.
type tally struct {
	Cases     int `json:"cases"`
	Right     int `json:"right"`
	Wrong     int `json:"wrong"`
	Invalid   int `json:"invalid_pins"`
	Missing   int `json:"missing"`
	Contested int `json:"contested"` // not judged
}

func (n *tally) count(c flavor.Case, a flavor.Answer, answered bool) (problem string) {
	n.Cases++
	err := judge.Valid(c, a)
	switch {
	case !answered:
		n.Missing++
		return "no answer"
	case err != nil:
		n.Invalid++
		return err.Error()
	case c.Contested || c.Expect == nil:
		n.Contested++
		return fmt.Sprintf("not judged: its verdict is contested; the answer is %v", a.Fits)
	case a.Fits != *c.Expect:
		n.Wrong++
		return fmt.Sprintf("fits %v, want %v: %s", a.Fits, *c.Expect, a.Reason)
	}
	n.Right++
	return ""
}
