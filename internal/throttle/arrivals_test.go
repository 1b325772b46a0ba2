package throttle

import (
	"testing"
	"time"
)

// TestArrivals: a user that connects without end is served as often as another may be, and is logged once a minute.
func TestArrivals(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a := NewArrivals(1000, func() time.Time { return now })
	served, lines, counted := 0, 0, 0
	for range 120_000 { // two minutes
		if now = now.Add(time.Millisecond); a.Admit(1001) {
			served++
		} else if n := a.Dropped(1001); n > 0 {
			lines++
			counted += n
		}
	}
	if most := 1000 + 120*perSecond; served > most || served < most-perSecond {
		t.Errorf("%d connections were served, not %d", served, most)
	}
	if lines != 2 || counted < 1 {
		t.Errorf("%d lines with %d connections", lines, counted)
	}
	if !a.Admit(1002) {
		t.Error("another user is not served")
	}
}

// TestArrivalsOfManyUsers: a flood of many users writes few lines.
func TestArrivalsOfManyUsers(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a := NewArrivals(1, func() time.Time { return now })
	lines := 0
	for uid := range uint32(5000) {
		if a.Dropped(uid) > 0 {
			lines++
		}
	}
	if lines != 10 {
		t.Errorf("%d lines at once", lines)
	}
}
