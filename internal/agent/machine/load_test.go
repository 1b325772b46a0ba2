package machine

import (
	"math"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

func TestLoads(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var l loads
	if _, ok := l.now(start); ok {
		t.Error("there is a load before any report")
	}
	// one CPU that waits half of the time, and 20 pages a second that come back, each 5 s for 20 minutes
	for s := 0; s <= 1200; s += 5 {
		l.take(at(s), guest.Load{CPU: uint64(100 * s), Wait: uint64(50 * s), SwapIn: uint64(20 * s), SwapOut: 7})
		if got, ok := l.now(at(s)); !ok || s < 60 && got.Waiting != 0 || s >= 60 && got.Waiting != 0.5 {
			t.Fatalf("after %d s: %v %v", s, got, ok)
		}
	}
	if got, _ := l.now(at(1200)); got.SwappedIn != 20 || got.SwapOut != 7 || len(l.kept) > 12 {
		t.Error(got, len(l.kept))
	}
	// it waits no longer: after a window nothing is left of it
	for s := 1205; s <= 1600; s += 5 {
		l.take(at(s), guest.Load{CPU: uint64(100 * s), Wait: 50 * 1200, SwapIn: 20 * 1200})
	}
	if got, _ := l.now(at(1600)); got.Waiting != 0 || got.SwappedIn != 0 {
		t.Error(got)
	}
	if _, ok := l.now(at(1800)); ok {
		t.Error("a guest that has not spoken for minutes has a load")
	}
}

func TestLoadsOfStrangeGuests(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var l loads
	l.take(start, guest.Load{CPU: 1000, Wait: 900, SwapIn: 5})
	l.take(start.Add(2*time.Minute), guest.Load{CPU: 1001, Wait: math.MaxUint64, SwapIn: 1})
	if got, ok := l.now(start.Add(2 * time.Minute)); !ok || got.Waiting != 1 || got.SwappedIn != 0 {
		t.Error(got, ok)
	}
	l.take(start.Add(3*time.Minute), guest.Load{CPU: 3}) // a reboot
	if got, ok := l.now(start.Add(3 * time.Minute)); !ok || got.Waiting != 0 {
		t.Error(got, ok)
	}
}
