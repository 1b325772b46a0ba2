package app

import (
	"fmt"
	"strings"
	"time"
)

// ParseTags reads KEY=VALUE words.
func ParseTags(words []string) (map[string]string, error) {
	tags := map[string]string{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, Usage("--tag KEY=VALUE", "--tag %q", word)
		}
		tags[key] = value
	}
	return tags, nil
}

// ParseExpiry reads a time or how long it is to it; days too, which time.ParseDuration has not.
func ParseExpiry(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return &at, nil
	}
	d, err := ParseAge(text)
	if err != nil {
		return nil, Usage("write 12h, 30d, or 2027-01-31T18:00:00Z", "invalid time %q", text)
	}
	at := now.Add(d).UTC().Truncate(time.Second)
	return &at, nil
}

// ParseAge is time.ParseDuration of what is above 0, with days.
func ParseAge(text string) (time.Duration, error) {
	bad := Usage("write 12h or 30d", "invalid time %q", text)
	var days time.Duration
	rest := text
	if number, after, ok := strings.Cut(text, "d"); ok {
		var n int
		if _, err := fmt.Sscanf(number+" ", "%d ", &n); err != nil || n < 0 || n > 36500 {
			return 0, bad
		}
		days, rest = time.Duration(n)*24*time.Hour, after+"0s"
	}
	d, err := time.ParseDuration(rest)
	if err != nil || days+d <= 0 {
		return 0, bad
	}
	return days + d, nil
}

// ParseAgo reads a time, or how long it is from it to now; nil: none is given.
func ParseAgo(flag, text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return &at, nil
	}
	d, err := ParseAge(text)
	if err != nil {
		return nil, Usage("write 3h, 1d, or 2027-01-31T18:00:00Z", "invalid --%s %q", flag, text)
	}
	at := now.Add(-d).UTC().Truncate(time.Second)
	return &at, nil
}

// UnknownWord is the error of a flag whose value is none of the known ones.
func UnknownWord(flag, value string, known []string) error {
	return Usage("write "+strings.Join(known, ", "), "invalid --%s %q", flag, value)
}
