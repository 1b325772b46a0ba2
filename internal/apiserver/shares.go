package apiserver

import (
	"context"
	"fmt"
	"sync"

	"github.com/grange-project/grange/internal/farm"
)

// Bounds of what one user can have this server do at once.
const (
	maxWatches = 128 // each looks at every change
	maxWalks   = 4   // requests that read all hosts, of all users; one of each
)

// shares count what users have the server do. Root's are not counted: it could stop the server as well.
type shares struct {
	all chan struct{} // walks

	mu      sync.Mutex
	watches map[string]int           // by user
	walks   map[string]chan struct{} // by user, while anybody waits or walks
	waiting map[string]int
}

func newShares() *shares {
	return &shares{all: make(chan struct{}, maxWalks), watches: map[string]int{}, walks: map[string]chan struct{}{},
		waiting: map[string]int{}}
}

// watch counts a watch until leave is called.
func (s *shares) watch(who farm.Identity) (leave func(), err error) {
	if who.Root {
		return func() {}, nil
	}
	user := who.User
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[user] >= maxWatches {
		return nil, tooMany(fmt.Sprintf("you have %d watches on this server", maxWatches))
	}
	s.watches[user]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.watches[user]--; s.watches[user] == 0 {
			delete(s.watches, user)
		}
	}), nil
}

// walk waits until the user may read all hosts: one request of a user at a time, a few of all.
func (s *shares) walk(ctx context.Context, user string) (leave func(), err error) {
	s.mu.Lock()
	own := s.walks[user]
	if own == nil {
		own = make(chan struct{}, 1)
		s.walks[user] = own
	}
	s.waiting[user]++
	s.mu.Unlock()
	forget := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting[user]--; s.waiting[user] == 0 {
			delete(s.waiting, user)
			delete(s.walks, user)
		}
	}
	for i, c := range []chan struct{}{own, s.all} {
		select {
		case c <- struct{}{}:
		case <-ctx.Done():
			if i == 1 {
				<-own
			}
			forget()
			return nil, ctx.Err()
		}
	}
	return func() { <-s.all; <-own; forget() }, nil
}
