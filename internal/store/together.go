package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
)

// queue is the Updates that wait while others are written. What has come together is committed together, where the engine can do that: the disk is
// asked once for all of them, and the more there are the less each costs. To each it is a transaction of its own.
type queue struct {
	mu      sync.Mutex
	waiting []*update
	busy    bool // somebody writes, and will look here again
}

// update is one that waits.
type update struct {
	ctx      context.Context
	do       func(*Tx) error
	revision int64
	err      error
	panicked any // what do panicked with
	done     chan struct{}
}

// maxTogether bounds how long the first of a group waits for the last.
const maxTogether = 64

// errBroken is what an update gets whose group ended in the middle: do has ended its goroutine.
var errBroken = errors.New("store: the transaction was broken off")

// together is updateAlone, in one commit with what else comes meanwhile.
func (s *Store) together(ctx context.Context, do func(*Tx) error) (int64, error) {
	u := &update{ctx: ctx, do: do, err: errBroken, done: make(chan struct{})}
	s.queue.mu.Lock()
	s.queue.waiting = append(s.queue.waiting, u)
	first := !s.queue.busy
	s.queue.busy = true
	s.queue.mu.Unlock()
	if first {
		go s.writeQueue()
	}
	select {
	case <-u.done:
	case <-ctx.Done():
		if s.queue.leave(u) {
			return 0, ctx.Err()
		}
		<-u.done // it is being written
	}
	if u.panicked != nil {
		panic(u.panicked)
	}
	return u.revision, u.err
}

// leave takes out one that waits no longer; false: its turn has come.
func (q *queue) leave(u *update) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := len(q.waiting)
	q.waiting = slices.DeleteFunc(q.waiting, func(o *update) bool { return o == u })
	return len(q.waiting) < before
}

// take is what is to be written next; nil when nobody waits, and the next who comes is the first.
func (q *queue) take() []*update {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), maxTogether)
	group := q.waiting[:n:n]
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	q.busy = n > 0
	return group
}

// writeQueue writes until nobody waits.
func (s *Store) writeQueue() {
	broken := true
	defer func() {
		if broken {
			go s.writeQueue()
		}
	}()
	for group := s.queue.take(); len(group) > 0; group = s.queue.take() {
		s.writeGroup(group)
	}
	broken = false
}

// writeGroup ends every update of a group. Where they cannot be written together each is tried alone.
func (s *Store) writeGroup(group []*update) {
	defer func() {
		for _, u := range group {
			close(u.done)
		}
	}()
	if len(group) > 1 && s.commitGroup(group) {
		return
	}
	for _, u := range group {
		u.revision, u.err = s.updateAlone(u.ctx, u.guarded)
	}
}

// guarded is do, whose panic is its caller's: that is another goroutine than the one that writes.
func (u *update) guarded(t *Tx) (err error) {
	defer func() {
		if u.panicked = recover(); u.panicked != nil {
			err = errBroken
		}
	}()
	return u.do(t)
}

// commitGroup writes a group in one transaction, with a savepoint for each. It returns false when none of it was done and each should be tried alone:
// the database has ended the transaction for what one of them did.
func (s *Store) commitGroup(group []*update) bool {
	ctx := context.Background()
	s.writing.prepare(ctx, s.write)
	tx, err := s.beginWrite(ctx)
	if err != nil {
		for _, u := range group {
			u.err = s.explain(u.ctx, err)
		}
		return true
	}
	ended := false
	defer func() {
		_ = tx.Rollback() // after a commit it does nothing
		for _, u := range group {
			if !ended {
				u.err = errBroken
			}
		}
	}()
	written := map[*update]*Tx{}
	prepared := map[string]*sql.Stmt{}
	for _, u := range group {
		t := &Tx{ctx: s.engine.statements(u.ctx), asked: u.ctx, store: s, tx: tx, kept: &s.writing, prepared: prepared}
		wrote, ok := s.writeOne(t, u)
		if !ok {
			ended = true
			return false
		}
		if wrote {
			written[u] = t
		}
	}
	if ended = true; len(written) > 0 {
		err = tx.Commit()
	}
	for _, u := range group {
		switch t := written[u]; {
		case err != nil && u.err == nil: // also of one that wrote nothing: what it read may be of another one
			u.err = s.explain(u.ctx, unsure{err})
		case t != nil:
			s.committed(t)
		}
	}
	return true
}

// writeOne runs one update of a group. ok is false when the transaction is gone.
func (s *Store) writeOne(t *Tx, u *update) (wrote, ok bool) {
	if u.err = u.ctx.Err(); u.err != nil {
		return false, true
	}
	if _, err := t.tx.ExecContext(t.ctx, "SAVEPOINT one"); err != nil {
		return false, false
	}
	err := s.run(t, u.guarded)
	if err == nil {
		err = u.ctx.Err()
	}
	if err != nil || !t.wrote {
		if _, gone := t.tx.ExecContext(t.ctx, "ROLLBACK TO one"); gone != nil {
			return false, false
		}
	}
	if _, gone := t.tx.ExecContext(t.ctx, "RELEASE one"); gone != nil {
		return false, false
	}
	u.err = s.explain(u.ctx, err)
	if err == nil {
		u.revision = t.written()
	}
	return err == nil && t.wrote, true
}
