package app

import (
	"testing"
	"time"
)

func TestParseExpiry(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"12h": "2026-11-22T00:00:00Z", "30d": "2026-12-21T12:00:00Z", "1d12h": "2026-11-23T00:00:00Z",
		"2027-01-31T18:00:00Z": "2027-01-31T18:00:00Z",
		"":                     "", "d": "error", "0d": "error", "-1h": "error", "1x": "error", "tomorrow": "error",
	} {
		at, err := ParseExpiry(text, now)
		got := ""
		switch {
		case err != nil:
			got = "error"
		case at != nil:
			got = at.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%q is %s, not %s", text, got, want)
		}
	}
}
