package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/store"
)

// load is requests, and what became of them.
type load struct {
	*bench
	mu      sync.Mutex
	changed *sync.Cond
	due     map[string]time.Time // VMs that have no place yet, and when their request was due
	times   []time.Duration      // of those that have
	placed  int
	commits map[int64]bool // revisions that placed any
	err     error
}

// look is how often the change feed is read at most. It is a part of the latencies.
const look = time.Millisecond

// watch follows the change feed until ctx ends.
func (b *bench) watch(ctx context.Context, due map[string]time.Time) *load {
	l := &load{bench: b, due: due, commits: map[int64]bool{}}
	l.changed = sync.NewCond(&l.mu)
	started := make(chan struct{})
	go func() {
		at, err := b.store.Wait(ctx, -1)
		close(started)
		for err == nil {
			var changes []store.Change
			if changes, at, err = b.store.Changes(ctx, at, 10000); err != nil {
				break
			}
			l.see(changes, time.Now())
			time.Sleep(look) // it is not what is measured
			_, err = b.store.Wait(ctx, at)
		}
		l.mu.Lock()
		l.err = err
		l.changed.Broadcast()
		l.mu.Unlock()
	}()
	<-started
	return l
}

func (l *load) see(changes []store.Change, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if due, ok := l.due[c.ID]; ok && c.Kind == store.KindVM && c.Host != "" {
			delete(l.due, c.ID)
			l.times = append(l.times, now.Sub(due))
			l.placed++
			l.commits[c.Revision] = true
			l.vms = append(l.vms, c.ID)
		}
	}
	l.changed.Broadcast()
}

// until waits until no more than n VMs have no place.
func (l *load) until(_ context.Context, n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.due) > n && l.err == nil {
		l.changed.Wait()
	}
	return l.err
}

// request asks for VMs, in one transaction.
func (l *load) request(ctx context.Context, n int, due time.Time) error {
	l.mu.Lock()
	vms := make([]string, 0, n)
	rows := make([]func(*store.Tx) error, 0, n)
	for range n {
		vm := l.vm()
		l.due[vm.ID] = due
		vms = append(vms, vm.ID)
		rows = append(rows, func(t *store.Tx) error { return t.InsertVM(vm) })
	}
	l.mu.Unlock()
	_, err := l.store.Update(ctx, func(t *store.Tx) error {
		for _, row := range rows {
			if err := row(t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ask for %v: %w", vms, err)
	}
	return nil
}

// end has VMs that were placed go: as many as came, any of them.
func (l *load) end(ctx context.Context, n int) error {
	l.mu.Lock()
	var ids []string
	for range min(n, len(l.vms)) {
		i := l.rand.IntN(len(l.vms))
		ids = append(ids, l.vms[i])
		l.vms[i] = l.vms[len(l.vms)-1]
		l.vms = l.vms[:len(l.vms)-1]
	}
	l.mu.Unlock()
	_, err := l.store.Update(ctx, func(t *store.Tx) error {
		for _, id := range ids {
			if err := t.DeleteVM(id); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// maxAsked is the most VMs of one request.
const maxAsked = 15

// closed measures the rate with a number of VMs that always wait.
func (b *bench) closed(ctx context.Context, window int, span time.Duration, f *figures) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := b.watch(ctx, map[string]time.Time{})
	start := time.Now()
	cpu := cpuTime()
	for time.Since(start) < span {
		n := 1 + l.rand.IntN(maxAsked)
		if err := l.request(ctx, n, time.Now()); err != nil {
			return err
		}
		if err := l.end(ctx, n); err != nil {
			return err
		}
		if err := l.until(ctx, window); err != nil {
			return err
		}
	}
	l.mu.Lock()
	f.rate, f.perCPU = float64(l.placed)/time.Since(start).Seconds(), float64(l.placed)/(cpuTime()-cpu).Seconds()
	f.perCommit = float64(l.placed) / float64(max(len(l.commits), 1))
	l.mu.Unlock()
	return l.settle(ctx, f)
}

// settle counts, when those that still wait are placed or surely cannot be.
func (l *load) settle(ctx context.Context, f *figures) error {
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
	f.placed, f.commits, f.refused = f.placed+l.placed, f.commits+len(l.commits), f.refused+len(l.due)
	return l.err
}

// open measures latencies of requests that come when they come.
func (b *bench) open(ctx context.Context, span time.Duration, f *figures) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := b.watch(ctx, map[string]time.Time{})
	gap := float64(time.Second) * (1 + maxAsked) / 2 / f.offered // between requests
	start := time.Now()
	for due := start; due.Sub(start) < span; due = due.Add(time.Duration(l.rand.ExpFloat64() * gap)) {
		time.Sleep(time.Until(due))
		n := 1 + l.rand.IntN(maxAsked)
		if err := l.request(ctx, n, due); err != nil {
			return err
		}
		if err := l.end(ctx, n); err != nil {
			return err
		}
	}
	if err := l.settle(ctx, f); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.times)
	if len(l.times) == 0 {
		return fmt.Errorf("nothing was placed in %v", span)
	}
	f.p50, f.p99 = milliseconds(l.times[len(l.times)/2]), milliseconds(l.times[len(l.times)*99/100])
	return nil
}

func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// cpuTime is what this process has taken so far.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
