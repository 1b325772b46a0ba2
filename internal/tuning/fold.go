package tuning

import (
	"strings"
	"unicode/utf8"
)

// Widths of text for people.
const (
	widthUnknown = 100
	widest       = 120 // longer lines are hard to read
	narrowest    = 40
)

// TextWidth is how wide text is written on a terminal of so many columns; 0 stands for no terminal.
func TextWidth(columns int) int {
	if columns <= 0 {
		return widthUnknown
	}
	return min(max(columns, narrowest), widest)
}

// Wrap breaks text at blanks into a first line of at most first characters and others of at most rest; a longer word
// has a line of its own. It keeps leading blanks.
func Wrap(text string, first, rest int) []string {
	const least = 10
	var lines []string
	line := text[:len(text)-len(strings.TrimLeft(text, " "))]
	width, empty := max(first, least), true
	for _, word := range strings.Fields(text) {
		switch {
		case empty:
			line += word
			empty = false
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line, width = word, max(rest, least)
		}
	}
	return append(lines, line)
}

// Fold wraps a text so that it stands beside its label, or below where there is none. Columns are those of the
// terminal.
func Fold(label, text string, columns int) string {
	width, n := TextWidth(columns), utf8.RuneCountInString(label)
	indent := max(2, n)
	return label + strings.Join(Wrap(strings.TrimLeft(text, " "), width-n, width-indent),
		"\n"+strings.Repeat(" ", indent)) + "\n"
}
