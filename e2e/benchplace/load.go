package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// load is requests, and what became of them.
type load struct {
	*bench
	mu      sync.Mutex
	changed *sync.Cond
	asked   map[string]time.Time // VMs that have no place yet, and when their request was committed; zero: it is not yet
	times   []time.Duration      // of those that have
	placed  int
	commits map[int64]bool // revisions that placed any
	err     error
}

// watch follows the change feed until ctx ends.
func (b *bench) watch(ctx context.Context) (*load, error) {
	l := &load{bench: b, asked: map[string]time.Time{}, commits: map[int64]bool{}}
	l.changed = sync.NewCond(&l.mu)
	var at int64
	err := b.store.View(ctx, func(t *store.Tx) error { at = t.Revision(); return nil })
	if err != nil {
		return nil, err
	}
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			var changes []store.Change
			if changes, at, err = b.store.Changes(ctx, at, 10000); err == nil {
				l.see(changes, time.Now())
				_, err = b.store.Wait(ctx, at)
			}
		}
		if ctx.Err() == nil {
			l.fail(err)
		}
	}()
	return l, nil
}

// fail remembers the first error, and ends all waiting.
func (l *load) fail(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.changed.Broadcast()
}

func (l *load) see(changes []store.Change, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if asked, ok := l.asked[c.ID]; ok && c.Kind == store.KindVM && c.Host != "" {
			delete(l.asked, c.ID)
			if asked.IsZero() { // the server was faster than the answer to our commit
				asked = now
			}
			l.times = append(l.times, now.Sub(asked))
			l.placed++
			l.commits[c.Revision] = true
			l.vms = append(l.vms, c.ID)
		}
	}
	l.changed.Broadcast()
}

// until waits until no more than n VMs have no place.
func (l *load) until(n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.asked) > n && l.err == nil {
		l.changed.Wait()
	}
	return l.err
}

// turn asks for n VMs and has as many go that were placed, any of them, in one transaction.
func (l *load) turn(ctx context.Context, n int) error {
	come, gone := l.draws(n)
	return l.write(ctx, come, gone)
}

func (l *load) write(ctx context.Context, come []farm.VM, gone []string) error {
	_, err := l.store.Update(ctx, func(t *store.Tx) error {
		for _, vm := range come {
			if err := t.InsertVM(vm); err != nil {
				return err
			}
		}
		for _, id := range gone {
			if err := t.DeleteVM(id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ask for %d VMs: %w", len(come), err)
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, vm := range come {
		if _, waits := l.asked[vm.ID]; waits {
			l.asked[vm.ID] = now
		}
	}
	return nil
}

func (l *load) draws(n int) (come []farm.VM, gone []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		vm := l.vm()
		l.asked[vm.ID] = time.Time{}
		come = append(come, vm)
	}
	for range min(n, len(l.vms)) {
		i := l.rand.IntN(len(l.vms))
		gone = append(gone, l.vms[i])
		l.vms[i] = l.vms[len(l.vms)-1]
		l.vms = l.vms[:len(l.vms)-1]
	}
	return come, gone
}

// closed measures the rate with a number of VMs that always wait.
func (b *bench) closed(ctx context.Context, s settings, f *loopFigures) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := b.watch(ctx)
	if err != nil {
		return err
	}
	before := cpuTime()
	start := time.Now()
	for time.Since(start) < s.span() {
		if err := l.turn(ctx, s.refill); err != nil {
			return err
		}
		if err := l.until(s.window - s.refill); err != nil {
			return err
		}
	}
	took := time.Since(start)
	used := cpuTime() - before
	l.mu.Lock()
	f.Rate, f.PerCPU = float64(l.placed)/took.Seconds(), float64(l.placed)/used.Seconds()
	f.Busy = used.Seconds() / took.Seconds()
	f.PerCommit = float64(l.placed) / float64(max(len(l.commits), 1))
	l.mu.Unlock()
	return l.settle(f)
}

// settle counts, when those that still wait are placed or surely cannot be.
func (l *load) settle(f *loopFigures) error {
	for quiet := 0; quiet < 3; quiet++ {
		l.mu.Lock()
		before := l.placed
		l.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		l.mu.Lock()
		if l.placed != before {
			quiet = 0
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Placed, f.Commits, f.Refused = f.Placed+l.placed, f.Commits+len(l.commits), f.Refused+len(l.asked)
	return l.err
}

// sizeOf is how many VMs a request asks for: mostly one, some a few, now and then a dozen and more.
func (l *load) sizeOf() int {
	switch n := l.rand.IntN(20); {
	case n < 14:
		return 1
	case n < 19:
		return 2 + l.rand.IntN(4)
	}
	return 6 + l.rand.IntN(10)
}

// meanSize is the mean of sizeOf.
const meanSize = (14*1 + 5*3.5 + 10.5) / 20

// open measures latencies of requests that come when they come, each in a goroutine of its own, as in a server.
func (b *bench) open(ctx context.Context, s settings, f *loopFigures) (found latency, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := b.watch(ctx)
	if err != nil {
		return found, err
	}
	gap := float64(time.Second) * meanSize / f.Offered // between requests
	var requests sync.WaitGroup
	before, start := cpuTime(), time.Now()
	for due := start; due.Sub(start) < s.span(); due = due.Add(time.Duration(l.rand.ExpFloat64() * gap)) {
		time.Sleep(time.Until(due))
		come, gone := l.draws(l.sizeOf())
		requests.Go(func() { l.fail(l.write(ctx, come, gone)) })
	}
	requests.Wait()
	found.Busy = (cpuTime() - before).Seconds() / time.Since(start).Seconds()
	if err := l.settle(f); err != nil {
		return found, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.times)
	if len(l.times) == 0 {
		return found, fmt.Errorf("nothing was placed in %v", s.span())
	}
	found.P50, found.P99 = milliseconds(l.times[len(l.times)/2]), milliseconds(l.times[len(l.times)*99/100])
	return found, nil
}
