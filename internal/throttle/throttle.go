// Package throttle bounds how often something happens, by whom: failed authentications of an address, equal lines of a
// log.
package throttle

import (
	"net/netip"
	"sync"
	"time"
)

// maxKeys are remembered at once, some megabyte at most.
const maxKeys = 10_000

// Buckets counts events by key, each in a bucket that leaks. A full bucket takes no more: whatever was poured over it,
// it is empty after Size times Leak. Its memory is bounded.
type Buckets struct {
	Size int           // events that a bucket holds
	Leak time.Duration // after which there is room for one more
	Now  func() time.Time

	mu      sync.Mutex
	buckets map[string]bucket
}

type bucket struct {
	empty   time.Time // when it will be
	dropped int       // events since the last one for which there was room
}

// Add counts an event. It reports whether the bucket had room for it, and if so, how many had found none before it.
func (b *Buckets) Add(key string) (room bool, dropped int) { return b.AddMany(key, 1) }

// AddMany counts several events. There is room for all of them where there is room for one.
func (b *Buckets) AddMany(key string, events int) (room bool, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Now()
	one, known := b.buckets[key]
	if !known {
		b.makeRoom(now)
	}
	if one.empty.Before(now) {
		one.empty = now
	}
	if one.empty.Sub(now) > time.Duration(b.Size-1)*b.Leak {
		one.dropped++
		b.buckets[key] = one
		return false, 0
	}
	dropped, one.dropped = one.dropped, 0
	one.empty = one.empty.Add(time.Duration(events) * b.Leak)
	b.buckets[key] = one
	return true, dropped
}

// makeRoom forgets empty buckets when there are too many. Where most are not empty all are forgotten: to grow, or to
// search at each event, would be worse.
func (b *Buckets) makeRoom(now time.Time) {
	if b.buckets == nil {
		b.buckets = map[string]bucket{}
	}
	if len(b.buckets) < maxKeys {
		return
	}
	for key, one := range b.buckets {
		if one.empty.Before(now) {
			delete(b.buckets, key)
		}
	}
	if len(b.buckets) > maxKeys/2 {
		clear(b.buckets)
	}
}

// Party names what one party holds: an IPv4 address, or a /64 of IPv6.
func Party(a netip.Addr) string {
	a = a.Unmap()
	if !a.Is6() {
		return a.String()
	}
	p, _ := a.WithZone("").Prefix(64) // fails for other lengths alone
	return p.String()
}
