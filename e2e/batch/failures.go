package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// failure is told twice: where it happened, and at the end, which is all that a reader of a cut log sees.
type failure struct {
	test string // of a case; "": of the system, or of its program
	text string
}

func (p *passage) fail(test string, err error) {
	p.Failed++
	text := "it says nothing"
	if err != nil {
		text = err.Error()
	}
	if f, ok := errors.AsType[*programFailed](err); ok {
		text += "\n" + f.said
	}
	p.failures = append(p.failures, failure{test, text})
}

// retold are all failures of a system, each with its name, its case and its error.
func (p *passage) retold() string {
	var b strings.Builder
	for _, f := range p.failures {
		fmt.Fprintf(&b, "FAIL  %s\n        %s\n", strings.TrimSpace(p.name+"  "+f.test),
			strings.ReplaceAll(f.text, "\n", "\n        "))
	}
	return b.String()
}

// programFailed is the end of a program whose lines have been printed already.
type programFailed struct {
	error
	said string // the lines that tell why
}

// Unwrap is how the program ended.
func (e *programFailed) Unwrap() error { return e.error }

// retoldLines are as many of a program's lines as are told again: of each of its tests that failed, or of the program.
const retoldLines = 25

// saidByTest is the first line of what a test prints. With -test.v it comes before the verdict.
var saidByTest = regexp.MustCompile(`^\w+_test\.go:\d+: `)

// saidLines are as many of those as are told again.
const saidLines = 6

// blamed are the lines that tell why a program failed: what go's tests print of those that did, or else the last ones,
// with the very last, which is the program's error, before the others.
func blamed(lines []string) string {
	var why []string
	left := 0
	for _, line := range lines {
		switch word := strings.TrimSpace(line); {
		case strings.HasPrefix(word, "--- FAIL: "), strings.HasPrefix(word, "panic: "):
			left = retoldLines
		case strings.HasPrefix(word, "--- "), word == "FAIL", word == "PASS":
			left = 0
		case left == 0 && saidByTest.MatchString(word):
			left = saidLines
		}
		if left > 0 {
			why = append(why, line)
			left--
		}
	}
	if last := len(lines) - 1; len(why) == 0 && last >= 0 {
		why = append([]string{lines[last]}, lines[max(0, last+1-retoldLines):last]...)
	}
	return strings.Join(why, "\n")
}
