package sdnotify

import (
	"sync/atomic"
	"time"
)

// Loop reports whether a loop still turns.
type Loop struct{ last atomic.Pointer[time.Time] }

// Turned notes that it does.
func (l *Loop) Turned(now time.Time) { l.last.Store(&now) }

// Hangs reports whether the loop did not turn for the given time. One that has not begun does not hang.
func (l *Loop) Hangs(now time.Time, within time.Duration) bool {
	last := l.last.Load()
	return last != nil && now.Sub(*last) > within
}
