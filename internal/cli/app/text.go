package app

import (
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
)

func Age(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }

func Dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func TagText(tags map[string]string) string {
	var words []string
	for k, v := range tags {
		words = append(words, k+"="+v)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func CellState(v fleet.Cell) string {
	switch {
	case v.Drain != nil:
		return "draining"
	case v.Open:
		return "open"
	}
	return "closed"
}
