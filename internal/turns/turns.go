// Package turns shares a few places among parties, such as the readers of a database among users. Of those who wait
// each party gets a place in turn, however many requests it has.
package turns

import (
	"context"
	"slices"
	"sync"
)

// Turns are places that parties take in turn.
type Turns struct {
	each int // places of one party at a time

	mu      sync.Mutex
	free    int
	held    map[string]int             // places, by party
	waiting map[string][]chan struct{} // by party; each channel is closed when it has its place
	order   []string                   // parties that wait, the next one first
}

// New makes turns for some places, of which one party has at most each at a time.
func New(places, each int) *Turns {
	return &Turns{each: each, free: places, held: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// Enter waits for a place, which leave gives back; leave may be called again.
func (t *Turns) Enter(ctx context.Context, party string) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	mine := make(chan struct{})
	if len(t.waiting[party]) == 0 {
		t.order = append(t.order, party)
	}
	t.waiting[party] = append(t.waiting[party], mine)
	t.next()
	t.mu.Unlock()
	leave = sync.OnceFunc(func() { t.leave(party) })
	select {
	case <-mine:
		return leave, nil
	case <-ctx.Done():
	}
	if t.withdraw(party, mine) {
		return nil, ctx.Err()
	}
	leave() // the place came meanwhile
	return nil, ctx.Err()
}

// next gives free places to those who wait. The caller holds the lock.
func (t *Turns) next() {
	for t.free > 0 {
		i := slices.IndexFunc(t.order, func(party string) bool { return t.held[party] < t.each })
		if i < 0 {
			return
		}
		party := t.order[i]
		close(t.waiting[party][0])
		t.free--
		t.held[party]++
		t.order = slices.Delete(t.order, i, i+1)
		t.shorten(party, 0)
		if len(t.waiting[party]) > 0 {
			t.order = append(t.order, party)
		}
	}
}

// shorten takes one of those of a party that wait out of its line. The caller holds the lock.
func (t *Turns) shorten(party string, i int) {
	t.waiting[party] = slices.Delete(t.waiting[party], i, i+1)
	if len(t.waiting[party]) == 0 {
		delete(t.waiting, party)
	}
}

// withdraw takes one that waits out of its line; false: it has its place already.
func (t *Turns) withdraw(party string, mine chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[party], mine)
	if i < 0 {
		return false
	}
	t.shorten(party, i)
	if len(t.waiting[party]) == 0 {
		t.order = slices.DeleteFunc(t.order, func(p string) bool { return p == party })
	}
	return true
}

func (t *Turns) leave(party string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if t.held[party]--; t.held[party] == 0 {
		delete(t.held, party)
	}
	t.next()
}
