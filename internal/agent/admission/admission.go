// Package admission gives each user a share of what an agent has few of.
package admission

import (
	"context"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"
)

// Shares are what users have of an agent, which is everybody's: its connections, memory and file descriptors are few.
// Each user has more than a host full of their jobs needs, so that nobody shuts others out. The administrator's share
// is all.
type Shares struct {
	mu   sync.Mutex
	open map[uint32]int // connections by user
	deaf time.Time      // when a connection could not be taken last

	crowd  crowd
	small  bodies
	bodies bodies // large ones
	large  turns  // of users whose large bodies are read
	asks   turns  // of users whom the name service is asked about
}

// A job has a connection for its events and one for its heartbeats, and now and then a third. Small hosts have few
// jobs, and people with many shells.
const (
	ConnectionsOfJob = 3
	LeastConnections = 256
)

// Enter counts a connection; a limit of 0 is none.
func (s *Shares) Enter(uid uint32, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit > 0 && s.open[uid] >= limit {
		return false
	}
	if s.open == nil {
		s.open = map[uint32]int{}
	}
	s.open[uid]++
	return true
}

// Leave ends what Enter counted.
func (s *Shares) Leave(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[uid]--; s.open[uid] == 0 {
		delete(s.open, uid)
	}
}

// Open returns how many connections a user has.
func (s *Shares) Open(uid uint32) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[uid]
}

// Note enters that a connection could not be taken.
func (s *Shares) Note(now time.Time) {
	s.mu.Lock()
	s.deaf = now
	s.mu.Unlock()
}

// Reachable reports whether callers could reach us for as long as they may be silent: an agent without file descriptors
// must not pause their VMs.
func (s *Shares) Reachable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	// in that second net/http tries to accept again
	return s.deaf.IsZero() || time.Since(s.deaf) > machine.HeartbeatTimeout+time.Second
}

// Carry waits until no other large body of the user is being read.
func (s *Shares) Carry(ctx context.Context, uid uint32) (done func(), err error) {
	return s.large.take(ctx, uid)
}

// Ask waits until nobody else asks the name service about the user: a user with many groups that nobody knows keeps it
// from no other user.
func (s *Shares) Ask(ctx context.Context, uid uint32) (done func(), err error) {
	return s.asks.take(ctx, uid)
}
