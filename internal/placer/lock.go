package placer

import "time"

// lock is a sync.Mutex for which one need not wait longer than one likes.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) Lock() { l <- struct{}{} }

func (l lock) Unlock() { <-l }

// LockWithin reports whether it was locked in time.
func (l lock) LockWithin(d time.Duration) bool {
	select {
	case l <- struct{}{}:
		return true
	default:
	}
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case l <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}
