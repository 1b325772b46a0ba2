package admission

import (
	"context"
	"slices"
	"sync"
)

// SmallBody is the size of a request that others of its user need not wait for.
const SmallBody = 1 << 20

// Of requests that are being read, as many bytes may be in memory at once: of all users, and of one. In memory a
// request takes up to three times its size.
var (
	smallBodies = bounds{all: 256 << 20, each: 32 << 20}
	largeBodies = bounds{all: 384 << 20, each: 128 << 20}
)

type bounds struct{ all, each int64 }

// Read waits until a request of a user may be read, until done is called. Large ones of a user are read one by one.
func (s *Shares) Read(ctx context.Context, user uint32, size int64) (done func(), err error) {
	if size <= SmallBody {
		return s.small.hold(ctx, user, size, smallBodies)
	}
	next, err := s.Carry(ctx, user)
	if err != nil {
		return nil, err
	}
	read, err := s.bodies.hold(ctx, user, size, largeBodies)
	if err != nil {
		next()
		return nil, err
	}
	return func() { read(); next() }, nil
}

// bodies is how much of requests is in memory while they are read, of all users and of each.
type bodies struct {
	mu      sync.Mutex
	held    int64
	of      map[uint32]int64
	waiting []*body // in the order of their arrival
}

type body struct {
	user uint32
	size int64
	read chan struct{} // closed when it may be read
}

// hold waits until a body of a size may be read, until done is called.
func (b *bodies) hold(ctx context.Context, user uint32, size int64, most bounds) (done func(), err error) {
	w := &body{user, min(size, most.each), make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	b.serve(most)
	b.mu.Unlock()
	done = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.leave(w)
		b.serve(most)
	}
	select {
	case <-w.read:
		return done, nil
	case <-ctx.Done():
		done()
		return nil, ctx.Err()
	}
}

// serve lets bodies be read in the order of their arrival. One that waits for others of its user keeps nobody else
// waiting.
func (b *bodies) serve(most bounds) {
	if b.of == nil {
		b.of = map[uint32]int64{}
	}
	full := false // somebody waits for room, and those behind for their turn
	b.waiting = slices.DeleteFunc(b.waiting, func(w *body) bool {
		if full || b.of[w.user]+w.size > most.each {
			return false
		}
		if full = b.held+w.size > most.all; full {
			return false
		}
		b.held += w.size
		b.of[w.user] += w.size
		close(w.read)
		return true
	})
}

// leave takes out a body that is read, or that nobody waits for any more.
func (b *bodies) leave(w *body) {
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return
	}
	b.held -= w.size
	if b.of[w.user] -= w.size; b.of[w.user] == 0 {
		delete(b.of, w.user)
	}
}
