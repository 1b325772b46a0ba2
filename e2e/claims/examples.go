package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/grange-project/grange/internal/cli"
	"github.com/grange-project/grange/internal/cli/app"
)

// recorded is what a command line reads that prints the same on every machine.
var recorded = regexp.MustCompile(`--from (internal|e2e)/\S*testdata/`)

// checkExamples runs the commands of a page that look at recorded hosts, and compares what they print.
func checkExamples(root string, p page) (n int, problems []problem, err error) {
	for _, b := range p.fence {
		set := map[string]string{}
		for _, m := range variable.FindAllStringSubmatch(b.text, -1) {
			set[m[1]] = m[2]
		}
		for line, command := range joined(b.text) {
			typed, isTyped := strings.CutPrefix(command, "$ ")
			typed = os.Expand(typed, func(name string) string { return set[name] })
			if !isTyped || strings.Contains(command, "$(") || !recorded.MatchString(typed) {
				continue
			}
			for _, words := range calls(typed) {
				n++
				printed, err := run(root, words)
				if err != nil {
					return n, nil, err
				}
				if text := differs(shown(b.text, line), printed); text != "" {
					problems = append(problems, problem{p.name, b.line + line, text})
				}
			}
		}
	}
	return n, problems, nil
}

var variable = regexp.MustCompile(`(?m)^\$ ([A-Z]+)=(\S+)$`)

// run runs a command, and gives what it prints. Findings are no error.
func run(root string, words []string) (string, error) {
	for i, w := range words {
		if _, err := os.Stat(filepath.Join(root, w)); err == nil && strings.Contains(w, "/testdata/") {
			words[i] = filepath.Join(root, w)
		}
	}
	var out bytes.Buffer
	c := cli.New(&out)
	c.SetArgs(words)
	if err := c.Execute(); err != nil && !errors.As(err, new(app.ExitError)) {
		return "", fmt.Errorf("grange %s: %w", strings.Join(words, " "), err)
	}
	return strings.ReplaceAll(out.String(), root+"/", ""), nil
}

// shown is what a block has behind the command of a line, up to the next one.
func shown(text string, line int) []string {
	var lines []string
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for ; strings.HasSuffix(all[line], "\\"); line++ {
	}
	for _, l := range all[line+1:] {
		if strings.HasPrefix(l, "$ ") {
			break
		}
		lines = append(lines, l)
	}
	return lines
}

// differs looks for the lines of an example in what was printed, in their order. A line of … or ... stands for any,
// and … in a line for any text.
func differs(example []string, printed string) string {
	rest := "\n" + printed
	for _, line := range example {
		if line == "…" || line == "..." || strings.TrimSpace(line) == "" {
			continue
		}
		var pattern strings.Builder
		for i, part := range strings.Split(line, "…") {
			if i > 0 {
				pattern.WriteString(".*")
			}
			pattern.WriteString(regexp.QuoteMeta(part))
		}
		at := regexp.MustCompile("\n" + pattern.String() + "(\n|$)").FindStringIndex(rest)
		if at == nil {
			return "the example has a line that is not printed there: " + line
		}
		rest = "\n" + rest[at[1]:]
	}
	return ""
}
