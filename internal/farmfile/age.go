package farmfile

import (
	"fmt"
	"strings"
	"time"
)

const day = 24 * time.Hour

// parseAge reads a duration that may be in days: "30d".
func parseAge(text string) (time.Duration, error) {
	const most = 100 * 365
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		if _, err := fmt.Sscanf(days, "%d", &n); err != nil || fmt.Sprint(n) != days || n < 0 || n > most {
			return 0, fmt.Errorf("invalid number of days %q", text)
		}
		return time.Duration(n) * day, nil
	}
	return time.ParseDuration(text)
}

// age returns a duration as farm files have it, whole days as days: "30d"; "" where it is zero.
func age(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}
