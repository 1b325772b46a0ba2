package admission

import (
	"context"
	"sync"
)

// turns lets each user do one thing at a time.
type turns struct {
	mu sync.Mutex
	of map[uint32]*turn
}

type turn struct {
	held  chan struct{}
	users int // that have it or wait for it
}

// take waits for the turn of a user.
func (t *turns) take(ctx context.Context, uid uint32) (done func(), err error) {
	mine := t.enter(uid)
	select {
	case mine.held <- struct{}{}:
		return func() { <-mine.held; t.leave(uid) }, nil
	case <-ctx.Done():
		t.leave(uid)
		return nil, ctx.Err()
	}
}

func (t *turns) enter(uid uint32) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[uint32]*turn{}
	}
	if t.of[uid] == nil {
		t.of[uid] = &turn{held: make(chan struct{}, 1)}
	}
	t.of[uid].users++
	return t.of[uid]
}

func (t *turns) leave(uid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[uid].users--; t.of[uid].users == 0 {
		delete(t.of, uid)
	}
}
