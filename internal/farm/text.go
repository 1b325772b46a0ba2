package farm

import (
	"fmt"
	"strings"
	"unicode"
)

// Printable replaces what a terminal could take for a command: names of VMs, files and hosts may hold anything.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// Count is a number with its noun: "1 step", "3 steps".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Enumerate returns a list for people, of at most ten words: "a, b", "a, b, …, j and 3 more".
func Enumerate(words []string) string {
	const most = 10
	if more := len(words) - most; more > 0 {
		return strings.Join(words[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(words, ", ")
}

// ShellWords are words as a POSIX shell reads them back, whatever is in them.
func ShellWords(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// IsID reports whether a text is the ID of a VM or job: a UUID in lower case. They come from other machines and become
// parts of paths.
func IsID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range []byte(text) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
