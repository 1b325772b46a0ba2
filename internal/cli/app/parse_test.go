package app

import (
	"strings"
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

func TestParseAgo(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"3h": "2026-11-21T09:00:00Z", "1d": "2026-11-20T12:00:00Z",
		"2026-11-21T13:00:00+01:00": "2026-11-21T12:00:00Z"} {
		if at, err := ParseAgo("since", text, now); err != nil || at.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s: %v, %v", text, at, err)
		}
	}
	if at, err := ParseAgo("since", "", now); at != nil || err != nil {
		t.Errorf("none: %v, %v", at, err)
	}
	if _, err := ParseAgo("since", "noon", now); err == nil || !strings.Contains(err.Error(), `invalid --since "noon"`) {
		t.Error(err)
	}
}
