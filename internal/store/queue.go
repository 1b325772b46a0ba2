package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// queue is the Updates that wait while others are written. What has come together is committed together: the database
// is asked once for all of them, and the more there are the less each costs. To each it is a transaction of its own.
type queue struct {
	mu      sync.Mutex
	ahead   []*update // these first
	waiting []*update
	busy    bool // somebody writes, and will look here again

	heard    sync.WaitGroup // callers whose updates are done, and who do not run yet
	rhythm   rhythm         // the writer's
	untidied atomic.Int64   // changes since the engine was last asked to tidy
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

func newUpdate(ctx context.Context, do func(*Tx) error) *update {
	return &update{ctx: ctx, do: do, err: errBroken, done: make(chan struct{})}
}

// rhythm is how long a group's statements may take: about as long as commits do. A slow disk is then asked for many at
// once, and behind a fast one nobody waits long for others' statements. Where other processes use all processors, a
// commit waits some 20 ms for one, and so do statements: with a bound of 2 ms, groups ended after a few updates while
// dozens waited.
type rhythm struct{ least, most, now time.Duration }

var startRhythm = rhythm{least: 500 * time.Microsecond, most: 20 * time.Millisecond, now: time.Millisecond}

func (r *rhythm) committed(took time.Duration) {
	r.now += min(min(max(took, r.least), r.most)-r.now, r.now) / 8
}

// tidyAfter is how many changes are committed between two calls of the engine's tidy, for which all who come wait: some
// 20 ms with 10,000 hosts on a common disk. A third of it was no better: each takes less, and there are more.
const tidyAfter = 300

// errBroken is what an update gets whose group ended in the middle: do has ended its goroutine.
var errBroken = errors.New("store: the transaction was broken off")

// update is Update; ahead: before those that are not.
func (s *Store) update(ctx context.Context, ahead bool, do func(*Tx) error) (revision int64, err error) {
	u := newUpdate(ctx, do)
	if s.queue.join(u, ahead) {
		go s.writeQueue()
	}
	return s.queue.wait(u)
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

// wait returns what has become of an update. It is never left while it is written: do may write to its caller's
// variables.
func (q *queue) wait(u *update) (revision int64, err error) {
	select {
	case <-u.done:
	case <-u.ctx.Done():
		if q.leave(u) {
			return 0, u.ctx.Err()
		}
		<-u.done
	}
	q.heard.Done()
	if u.panicked != nil {
		panic(u.panicked)
	}
	return u.revision, u.err
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

// next takes out the one whose turn it is; nil: nobody waits.
func (q *queue) next() *update {
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

// run runs all of an Update but the commit. A panic of do is its caller's: that is another goroutine than the one that
// writes.
func (u *update) run() (err error) {
	defer func() {
		if u.panicked = recover(); u.panicked != nil {
			err = errBroken
		}
	}()
	if err := u.do(u.tx); err != nil {
		return err
	}
	if u.tx.err != nil {
		return u.tx.err // do passed over it, and a transaction that has failed cannot be committed
	}
	if !u.tx.wrote {
		return nil
	}
	return u.tx.writeFeed()
}

// tell ends the wait of a group's callers.
func (q *queue) tell(group []*update) {
	q.heard.Add(len(group))
	for _, u := range group {
		close(u.done)
	}
}

// writeQueue writes until nobody waits. The callers of a group go on before the next one takes the processor for
// milliseconds; who is ready to write meanwhile comes along, instead of after a commit of its own.
func (s *Store) writeQueue() {
	broken := true
	defer func() {
		if broken {
			go s.writeQueue()
		}
	}()
	for {
		s.queue.heard.Wait()
		if s.queue.untidied.Load() >= tidyAfter {
			s.queue.untidied.Store(0)
			s.engine.tidy(context.Background(), s.write)
		}
		if s.queue.empty(true) {
			break
		}
		s.writeGroup()
	}
	broken = false
}
