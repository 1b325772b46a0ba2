package apiserver

import (
	"context"
	"fmt"
	"sync"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/turns"
)

// Bounds of what one user can have this server do at once.
const (
	maxWatches = 128 // each looks at every change
	// requests that read what has no pages, and web pages, of all users; one of each. They are fewer than the readers
	// that users have of a SQLite file, so that one reader is left for short requests.
	maxWalks = 2
)

// shares count what users have the server do. Root's are not counted: it could stop the server as well.
type shares struct {
	walks *turns.Turns

	mu      sync.Mutex
	watches map[string]int // by user
}

func newShares() *shares {
	return &shares{walks: turns.New(maxWalks, 1), watches: map[string]int{}}
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

// walk waits until the user may read what is not read page by page: one request of a user at a time, a few of all, in
// turn.
func (s *shares) walk(ctx context.Context, who farm.Identity) (leave func(), err error) {
	if who.Root {
		return func() {}, nil
	}
	return s.walks.Enter(ctx, who.User)
}
