package app

import (
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
)

// Age is how long ago something was, in seconds.
func Age(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }

// Dash is a text as a cell of a table: "-" where it is empty.
func Dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// TagText is tags as KEY=VALUE, sorted.
func TagText(tags map[string]string) string {
	var words []string
	for k, v := range tags {
		words = append(words, k+"="+v)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// OrNone is a text, and "none" where it is empty.
func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// CellState is the state of a cell in a word.
func CellState(v fleet.Cell) string {
	switch {
	case v.Drain != nil:
		return "draining"
	case v.Open:
		return "open"
	}
	return "closed"
}
