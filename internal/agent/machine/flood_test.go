package machine

import (
	"testing"
	"time"
)

// TestFlood: a burst is none, what goes on is one, once; it ends, and another one is another one.
func TestFlood(t *testing.T) {
	notices, now := 0, time.Now()
	f := &flood{notice: func() { notices++ }}
	waitFor := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(250 * time.Millisecond) {
			f.Waited(now)
		}
	}
	shows := func(when string, on bool, want int) {
		t.Helper()
		if _, is := f.goesOn(now); is != on || notices != want {
			t.Errorf("%s: flood %v, %d notices; want %v, %d", when, is, notices, on, want)
		}
	}
	shows("at first", false, 0)
	waitFor(FloodAfter / 2)
	shows("a burst", false, 0)
	now = now.Add(floodOver + time.Second)
	waitFor(FloodAfter / 2)
	shows("another burst", false, 0)
	began := now
	waitFor(time.Minute)
	shows("a flood", true, 1)
	if since, _ := f.goesOn(now); since.After(began) {
		t.Errorf("the flood is since %v, which is after %v", since, began)
	}
	now = now.Add(floodOver + time.Second)
	shows("its end", false, 1)
	waitFor(time.Minute)
	shows("the next one", true, 2)
	if f.count() != 20+20+240+240 {
		t.Errorf("%d waits", f.count())
	}
}
