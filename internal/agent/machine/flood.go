package machine

import (
	"sync"
	"time"
)

// flood knows whether a guest goes on sending more than is read of it. A burst is no flood: a guest may have much to
// report at once.
type flood struct {
	notice func() // is called when a flood goes on, once for each; nil: nobody wants to know

	mu    sync.Mutex
	since time.Time // the guest has had to wait
	last  time.Time // it had to
	waits int       // altogether
	told  bool      // of this flood
}

const (
	FloodAfter = 10 * time.Second // of waiting again and again it is a flood
	floodOver  = 10 * time.Second // after its last wait a flood has ended
)

// Waited counts that the guest has to wait.
func (f *flood) Waited(now time.Time) {
	f.mu.Lock()
	if now.Sub(f.last) > floodOver {
		f.since, f.told = now, false
	}
	f.last = now
	f.waits++
	tell := !f.told && now.Sub(f.since) >= FloodAfter
	f.told = f.told || tell
	f.mu.Unlock()
	if tell && f.notice != nil {
		f.notice()
	}
}

// goesOn reports whether there is a flood now, and since when.
func (f *flood) goesOn(now time.Time) (since time.Time, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.since, f.told && now.Sub(f.last) <= floodOver
}

// count is how often the guest had to wait.
func (f *flood) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waits
}

const floodNotice = "the guest goes on sending more to the agent than is read of it"
