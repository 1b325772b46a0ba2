package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/grange-project/grange/api/fleet"
)

// tally counts which hosts were brought a list of a kind.
type tally struct {
	mu    sync.Mutex
	hosts int
	all   int
	now   *round
}

// round waits for one list for each host.
type round struct {
	t    *tally
	is   func(fleet.WantedList) bool
	seen []bool
	left int
	last time.Time
	done chan struct{}
}

func newTally(hosts int) *tally {
	t := &tally{hosts: hosts}
	t.expect(func(fleet.WantedList) bool { return true })
	return t
}

// expect begins a round.
func (t *tally) expect(is func(fleet.WantedList) bool) *round {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = &round{t: t, is: is, seen: make([]bool, t.hosts), left: t.hosts, done: make(chan struct{})}
	return t.now
}

// first is the round that was begun with the tally.
func (t *tally) first() *round {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

func (t *tally) told(host int, list fleet.WantedList) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all++
	r := t.now
	if r.left == 0 || r.seen[host] || !r.is(list) {
		return
	}
	r.seen[host] = true
	if r.left--; r.left == 0 {
		r.last = time.Now()
		close(r.done)
	}
}

func (t *tally) lists() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// wait returns when the last host was told.
func (r *round) wait(ctx context.Context, limit time.Duration) (time.Time, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.done:
		return r.last, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	return time.Time{}, fmt.Errorf("%d of %d hosts were not reached in %v", r.left, r.t.hosts, limit)
}
