package store

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// queue is the Updates that wait while others are written. What has come together is committed together, where the
// engine can do that: the disk is asked once for all of them, and the more there are the less each costs. To each it is
// a transaction of its own.
type queue struct {
	mu      sync.Mutex
	ahead   []*update // these first
	waiting []*update
	busy    bool // somebody writes, and will look here again

	rhythm   rhythm       // the writer's
	untidied atomic.Int64 // changes since the engine was last asked to tidy
}

// update is one that waits.
type update struct {
	ctx      context.Context
	do       func(*Tx) error
	revision int64
	tx       *Tx // nil: not begun
	wrote    bool
	err      error
	panicked any // what do panicked with
	done     chan struct{}
}

// maxTogether bounds a group: how long its first waits for its last, and the next one for its turn.
const maxTogether = 64

// rhythm is how long a group's statements may take: about as long as commits do. A slow disk is then asked for many at
// once, and behind a fast one nobody waits long for others' statements.
type rhythm struct{ least, most, now time.Duration }

var startRhythm = rhythm{least: 500 * time.Microsecond, most: 2 * time.Millisecond, now: time.Millisecond}

func (r *rhythm) committed(took time.Duration) {
	r.now += (min(max(took, r.least), r.most) - r.now) / 8
}

// tidyAfter is how many changes are committed between two calls of the engine's tidy, for which all who come wait: some
// 20 ms with 10,000 hosts on a common disk. A third of it was no better: each takes less, and there are more.
const tidyAfter = 300

// errBroken is what an update gets whose group ended in the middle: do has ended its goroutine.
var errBroken = errors.New("store: the transaction was broken off")

// together is updateAlone, in one commit with what else comes meanwhile.
func (s *Store) together(ctx context.Context, ahead bool, do func(*Tx) error) (int64, error) {
	u := &update{ctx: ctx, do: do, err: errBroken, done: make(chan struct{})}
	if s.queue.join(u, ahead) {
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

// join has one wait; first: nobody writes, and somebody must.
func (q *queue) join(u *update, ahead bool) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ahead {
		q.ahead = append(q.ahead, u)
	} else {
		q.waiting = append(q.waiting, u)
	}
	first, q.busy = !q.busy, true
	return first
}

// leave takes out one that waits no longer; false: its turn has come.
func (q *queue) leave(u *update) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := len(q.ahead) + len(q.waiting)
	is := func(o *update) bool { return o == u }
	q.ahead, q.waiting = slices.DeleteFunc(q.ahead, is), slices.DeleteFunc(q.waiting, is)
	return len(q.ahead)+len(q.waiting) < before
}

// next takes the one whose turn it is into a group; nil: nobody waits.
func (q *queue) next(group *[]*update) *update {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := &q.ahead
	if len(*from) == 0 {
		from = &q.waiting
	}
	if len(*from) == 0 {
		return nil
	}
	u := (*from)[0]
	(*from)[0] = nil
	if *from = (*from)[1:]; len(*from) == 0 {
		*from = nil
	}
	*group = append(*group, u)
	return u
}

// empty reports that nobody waits; rest: whoever comes next is the first.
func (q *queue) empty(rest bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	empty := len(q.ahead)+len(q.waiting) == 0
	if empty && rest {
		q.busy = false
	}
	return empty
}

// writeQueue writes until nobody waits.
func (s *Store) writeQueue() {
	broken := true
	defer func() {
		if broken {
			go s.writeQueue()
		}
	}()
	for {
		letOthersRun()
		if s.queue.untidied.Load() >= tidyAfter {
			s.queue.untidied.Store(0)
			s.engine.tidy(context.Background(), s.write)
			letOthersRun()
		}
		if s.queue.empty(true) {
			break
		}
		s.writeGroup()
	}
	broken = false
}

// letOthersRun lets those go on that were told of the last commit, before the next takes their core for milliseconds;
// and who is ready to write comes along, instead of after a commit of its own. Go's scheduler comes back too soon each
// 61st time that it chooses, so that once is not enough.
func letOthersRun() {
	for range 3 {
		runtime.Gosched()
	}
}

// writeGroup writes the next update, with those behind it. Where they cannot be written together each is tried alone.
func (s *Store) writeGroup() {
	var group []*update
	defer func() {
		for _, u := range group {
			close(u.done)
		}
	}()
	if s.queue.next(&group) == nil {
		return // it has left
	}
	if !s.queue.empty(false) && s.commitGroup(&group) {
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

// commitGroup writes the first of a group and those that come to it in one transaction, with a savepoint for each. It
// returns false when none of it was done and each should be tried alone: the database has ended the transaction for
// what one of them did.
func (s *Store) commitGroup(group *[]*update) bool {
	ctx := context.Background()
	s.writing.prepare(ctx, s.write)
	tx, err := s.beginWrite(ctx)
	if err != nil { // the database is away, which each of them would find out after some seconds
		for len(*group) < maxTogether && s.queue.next(group) != nil {
		}
		for _, u := range *group {
			u.err = s.explain(u.ctx, err)
		}
		return true
	}
	defer tx.Rollback() // after a commit it does nothing
	common, ended := &shared{}, false
	defer func() {
		for _, u := range *group {
			if u.tx != nil {
				u.tx.ended(errBroken) // where that was not told better before
			}
			if !ended {
				u.err = errBroken
			}
		}
	}()
	for u, begun := (*group)[0], time.Now(); u != nil; u = s.queue.next(group) {
		u.tx = &Tx{ctx: s.engine.statements(u.ctx), asked: u.ctx, store: s, tx: tx, kept: &s.writing, shared: common}
		if !s.writeOne(u) {
			ended = true
			return false
		}
		if u.wrote {
			common.written = append(common.written, u.tx)
		}
		if len(*group) == maxTogether || time.Since(begun) > s.queue.rhythm.now {
			break
		}
	}
	ended = true
	if !common.writeRevision() || writeUsed(common.written) != nil {
		return false
	}
	if len(common.written) > 0 {
		asked := time.Now()
		err = tx.Commit()
		s.queue.rhythm.committed(time.Since(asked))
	}
	for _, u := range *group {
		switch {
		case err != nil && u.err == nil: // also of one that wrote nothing: what it read may be of another one
			u.err = s.explain(u.ctx, unsure{err})
			u.tx.ended(u.err)
		case u.wrote:
			s.committed(u.tx)
		}
	}
	return true
}

// writeRevision writes the last revision: only the first Tx of a group did, its own. It returns false when the
// transaction is gone.
func (c *shared) writeRevision() bool {
	if len(c.written) < 2 {
		return true
	}
	last := c.written[len(c.written)-1]
	_, err := last.execute("UPDATE farm SET revision = $1 WHERE id = 1", []any{last.revision})
	return err == nil
}

// writeOne runs one update of a group. It returns false when the transaction is gone.
func (s *Store) writeOne(u *update) bool {
	t := u.tx
	if u.err = u.ctx.Err(); u.err != nil {
		return true
	}
	if _, err := t.execute("SAVEPOINT one", nil); err != nil {
		return false
	}
	err := s.run(t, u.guarded)
	if err == nil {
		err = u.ctx.Err()
	}
	if err != nil || !t.wrote {
		if _, gone := t.execute("ROLLBACK TO one", nil); gone != nil {
			return false
		}
	}
	if _, gone := t.execute("RELEASE one", nil); gone != nil {
		return false
	}
	if u.err = s.explain(u.ctx, err); err == nil {
		u.revision, u.wrote = t.written(), t.wrote
	}
	return true
}
