package server

import (
	"context"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/store"
)

// queue commits small writes of many callers in one transaction: a commit waits for the disk, and thousands of hosts
// may have something to write at once. Whoever comes while a commit is under way goes with the next one.
type queue struct {
	mu      sync.Mutex
	waiting []*write
	busy    bool
}

// write is what one caller writes.
type write struct {
	do   func(*store.Tx) error
	done chan error
}

const (
	// atOnce bounds the writes of one commit, for other writers wait meanwhile.
	atOnce = 256
	// commitTime bounds one commit.
	commitTime = time.Minute
)

// commit runs do in a transaction, with those of others. do may be run several times. Its error is do's own: what fails
// takes nobody else's writes with it.
func (s *Server) commit(ctx context.Context, do func(*store.Tx) error) error {
	w := &write{do: do, done: make(chan error, 1)}
	t := &s.queue
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	lead := !t.busy
	t.busy = true
	t.mu.Unlock()
	if lead {
		go s.commits(context.WithoutCancel(ctx))
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done(): // it may be written all the same
		return ctx.Err()
	}
}

// commits works until nobody waits.
func (s *Server) commits(ctx context.Context) {
	for {
		some := s.queue.next()
		if len(some) == 0 {
			return
		}
		if s.commitAll(ctx, some) == nil || len(some) == 1 {
			continue
		}
		for _, w := range some {
			s.commitAll(ctx, []*write{w})
		}
	}
}

func (t *queue) next() []*write {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.waiting), atOnce)
	some := t.waiting[:n:n]
	t.waiting = t.waiting[n:]
	t.busy = n > 0
	return some
}

// commitAll tells all of them how it went, unless one of several failed: then nothing is written, and each is to be
// tried alone.
func (s *Server) commitAll(ctx context.Context, some []*write) error {
	ctx, cancel := context.WithTimeout(ctx, commitTime)
	defer cancel()
	_, err := s.store.Update(ctx, func(tx *store.Tx) error {
		for _, w := range some {
			if err := w.do(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil || len(some) == 1 {
		for _, w := range some {
			w.done <- err
		}
	}
	return err
}
