package farm

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean is text of another machine or of another user as one line that a terminal shows as it is: what moves the
// cursor, ends the line or reorders text becomes a question mark, a tab or a line's end a space, and no more than most
// bytes stay.
func Clean(text string, most int) string { return clean(text, most, false) }

// CleanLines is Clean for text of several lines.
func CleanLines(text string, most int) string { return clean(text, most, true) }

func clean(text string, most int, lines bool) string {
	text = cut(text, most)
	if isClean(text, lines) {
		return text
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' && lines:
			return r
		case r == '\n' || r == '\t':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text)
	return cut(text, most)
}

// isClean reports whether text is of what most texts are made of.
func isClean(text string, lines bool) bool {
	for i := range len(text) {
		if c := text[i]; (c < ' ' || c >= 0x7f) && !(c == '\n' && lines) {
			return false
		}
	}
	return true
}

// cut is the first most bytes of text, less where that would split a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
