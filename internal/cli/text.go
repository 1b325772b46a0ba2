package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
)

func age(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func tagText(tags map[string]string) string {
	var words []string
	for k, v := range tags {
		words = append(words, k+"="+v)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func cellState(v fleet.Cell) string {
	switch {
	case v.Drain != nil:
		return "draining"
	case v.Open:
		return "open"
	}
	return "closed"
}
