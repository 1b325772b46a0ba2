package main

import (
	"regexp"
	"slices"
	"strings"
)

// calls are the command lines of a piece of shell whose program is grange, cut into words without quotes. A word that
// the page leaves open, as FILE or …, stays as it is.
func calls(shell string) [][]string {
	var found [][]string
	shell = strings.ReplaceAll(shell, "\\\n", " ")
	for line := range strings.Lines(shell) {
		for _, words := range commands(line) {
			words = withoutPrefix(words)
			// `grange tune: …` is the beginning of a message
			if len(words) > 1 && words[0] == "grange" && !strings.HasSuffix(words[1], ":") {
				found = append(found, words[1:])
			}
		}
	}
	return found
}

// before are words that another command follows.
var before = []string{"$", "#", "sudo", "exec", "env", "nohup", "time", "then", "do", "if", "!", "while", "until", "else"}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// withoutPrefix drops prompts, assignments, and programs that run another one.
func withoutPrefix(words []string) []string {
	for len(words) > 0 && (slices.Contains(before, words[0]) || assignment.MatchString(words[0])) {
		words = words[1:]
	}
	if len(words) > 0 {
		words[0] = words[0][strings.LastIndex(words[0], "/")+1:]
	}
	return words
}

// commands cuts a line at what separates commands, and these into words.
func commands(line string) [][]string {
	var all [][]string
	var words []string
	var word strings.Builder
	open, quote := false, rune(0)
	end := func(command bool) {
		if open {
			words = append(words, word.String())
		}
		word.Reset()
		open = false
		if command && len(words) > 0 {
			all = append(all, words)
			words = nil
		}
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == '#' && !open && len(words) > 0:
			end(true)
			return all
		case strings.ContainsRune(" \t\n", r):
			end(false)
		case strings.ContainsRune("|;&()", r):
			end(true)
		default:
			word.WriteRune(r)
			open = true
		}
	}
	end(true)
	return all
}
