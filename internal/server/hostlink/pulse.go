package hostlink

import (
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// pulse is when a host was heard of. Whoever asks may be in a transaction, and a report that waits for one holds its
// link meanwhile: the pulse has a lock of its own, under which nothing waits.
type pulse struct {
	mu      sync.Mutex
	heard   time.Time // zero: never
	clock   time.Duration
	unsaved bool        // heard is newer than in the store
	refused *farm.Error // why the agent is not listened to; nil: it is
}

// beat enters that the host is there, and how far its clock is ahead.
func (p *pulse) beat(now time.Time, clock time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard, p.clock, p.unsaved = now, clock, true
}

// recall enters what the store has.
func (p *pulse) recall(seen time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = seen
}

func (p *pulse) last() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard
}

// take is when the host was heard of, if the store does not have that yet.
func (p *pulse) take() (at time.Time, clock time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, clock, ok = p.heard.UTC(), p.clock, p.unsaved
	p.unsaved = false
	return at, clock, ok
}

// refuse enters why the agent is not listened to, nil: it is, and what it was before.
func (p *pulse) refuse(why *farm.Error) (before *farm.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.refused = p.refused, why
	return before
}

func (p *pulse) unheard() *farm.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}
