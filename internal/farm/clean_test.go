package farm

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for text, want := range map[string][2]string{
		"plain":                    {"plain", "plain"},
		"größe ✓":                  {"größe ✓", "größe ✓"},
		"a\x1b[2J\x07b":            {"a?[2J?b", "a?[2J?b"},
		"one\ntwo\tthree\r":        {"one two three?", "one\ntwo three?"},
		"user\u202etxt.exe\u2066":  {"user?txt.exe?", "user?txt.exe?"},
		"\xff\xfe half \xe2\x82":   {"?? half ??", "?? half ??"},
		"\u0085next\u2028line\x7f": {"?next?line?", "?next?line?"},
	} {
		if got := [2]string{Clean(text, 100), CleanLines(text, 100)}; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Clean("größe", 3); got != "gr" {
		t.Errorf("%q", got)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b]0;title\x07\nb", 10)
	f.Add("\u202e\xff€", 4)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = min(max(most, 0), 1<<16)
		for i, got := range []string{Clean(text, most), CleanLines(text, most)} {
			if len(got) > most || !utf8.ValidString(got) {
				t.Errorf("%q, %d: %q", text, most, got)
			}
			if strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) && !(r == '\n' && i == 1) }) {
				t.Errorf("%q: %q", text, got)
			}
			if again := CleanLines(got, most); again != got {
				t.Errorf("%q is cleaned to %q, and that to %q", text, got, again)
			}
		}
	})
}
