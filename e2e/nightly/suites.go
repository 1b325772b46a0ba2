package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// suite is a command of the shell that ends with a line of JSON.
type suite struct {
	name    string
	length  time.Duration // on a machine that does nothing else
	command string
	every   bool // .ci/run runs it for each commit, in no slice
}

// sliceLength is how much of the long suites a run of .ci/run takes.
const sliceLength = 15 * time.Minute

//go:embed suites.txt
var suitesText string

// readSuites reads lines NAME MINUTES COMMAND; a + before the name marks suites that each commit runs.
func readSuites(text string) (suites []suite, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		every := words[0] == "+"
		if every {
			words = words[1:]
		}
		if len(words) < 3 {
			return nil, fmt.Errorf("%q: write NAME MINUTES COMMAND", line)
		}
		minutes, err := strconv.Atoi(words[1])
		if err != nil || minutes < 1 {
			return nil, fmt.Errorf("%q: %q is no number of minutes", line, words[1])
		}
		suites = append(suites, suite{words[0], time.Duration(minutes) * time.Minute, strings.Join(words[2:], " "), every})
	}
	return suites, nil
}

// inSlices are the suites of which each commit runs a slice.
func inSlices(suites []suite) []suite {
	return slices.DeleteFunc(slices.Clone(suites), func(s suite) bool { return s.every })
}

// slicesOf puts neighbours together as long as they take at most the length.
func slicesOf(suites []suite, length time.Duration) (all [][]suite) {
	var sum time.Duration
	for i, s := range suites {
		if i == 0 || sum+s.length > length {
			all, sum = append(all, nil), 0
		}
		all[len(all)-1] = append(all[len(all)-1], s)
		sum += s.length
	}
	return all
}
