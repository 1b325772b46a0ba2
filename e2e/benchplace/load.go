package main

import (
	"context"
	"fmt"
	"maps"
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
	asked   map[string]asked // VMs that have no place yet
	times   []time.Duration  // of those that have, from when their request came
	taken   []time.Duration  // and from when the server began with it
	placed  int
	later   int             // changes of VMs whose request was committed before they had a place
	refused map[string]bool // VMs that no host takes now, until they are withdrawn
	commits map[int64]bool  // revisions that placed any
	err     error
}

// asked is when a VM's request came, and when the server began with it.
type asked struct{ came, begun time.Time }

// watch follows the change feed until ctx ends.
func (b *bench) watch(ctx context.Context) (*load, error) {
	l := &load{bench: b, asked: map[string]asked{}, refused: map[string]bool{}, commits: map[int64]bool{}}
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
				err = l.seeRefused(ctx, changes)
			}
			if err == nil {
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
		vm, ok := l.asked[c.ID]
		switch {
		case !ok || c.Kind != store.KindVM:
		case c.Host == "":
			l.later++
		default:
			l.times, l.taken = append(l.times, now.Sub(vm.came)), append(l.taken, now.Sub(vm.begun))
			delete(l.asked, c.ID)
			l.placed++
			l.commits[c.Revision] = true
			l.vms = append(l.vms, c.ID)
		}
	}
	l.changed.Broadcast()
}

// seeRefused notes which of the VMs that changed wait for room: the placer has tried them, and wrote why.
func (l *load) seeRefused(ctx context.Context, changes []store.Change) error {
	var tried []string
	for _, c := range changes {
		if c.Kind == store.KindVM && c.Host == "" && !c.Deleted {
			tried = append(tried, c.ID)
		}
	}
	if len(tried) == 0 {
		return nil
	}
	return l.store.View(ctx, func(t *store.Tx) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, id := range tried {
			vm, err := t.VM(id)
			if farm.IsKind(err, farm.NotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if _, waits := l.asked[id]; waits && vm.Host == "" && vm.Waiting != "" {
				delete(l.asked, id)
				l.refused[id] = true
			}
		}
		l.changed.Broadcast()
		return nil
	})
}

// until waits until no more than n VMs have neither a place nor a refusal.
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
	come, gone := l.draws(n, time.Now())
	return l.write(ctx, come, gone)
}

func (l *load) write(ctx context.Context, come []farm.VM, gone []string) error {
	_, err := l.store.Update(ctx, func(t *store.Tx) error {
		l.begin(come)
		for _, vm := range come {
			l.farm.PlaceNew(t, &vm)
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
		return fmt.Errorf("ask for %d VMs, and end %d: %w", len(come), len(gone), err)
	}
	return nil
}

// begin notes when the server begins with a request.
func (l *load) begin(come []farm.VM) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, vm := range come {
		l.asked[vm.ID] = asked{l.asked[vm.ID].came, now}
	}
}

// draws are a request for n VMs that comes at a time, and as many that go.
func (l *load) draws(n int, at time.Time) (come []farm.VM, gone []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range n {
		vm := l.vm()
		if i > 0 { // a request is of one project and shape
			vm.Project, vm.Shape = come[0].Project, come[0].Shape
		}
		l.asked[vm.ID] = asked{came: at}
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
	for time.Since(start) < s.span() || l.nothing() {
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
	return l.settle(ctx, f)
}

// nothing reports that no VM has its place yet. Loops go on until one has: how long that takes is the machine's affair.
func (l *load) nothing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.placed == 0
}

// settle counts when each VM has a place or a refusal, and withdraws the refused: they would take the room of those
// that go, and never go themselves.
func (l *load) settle(ctx context.Context, f *loopFigures) error {
	if err := l.until(0); err != nil {
		return err
	}
	l.mu.Lock()
	refused := slices.Collect(maps.Keys(l.refused))
	f.Placed, f.Later, f.Commits, f.Refused = f.Placed+l.placed, f.Later+l.later, f.Commits+len(l.commits),
		f.Refused+len(refused)
	l.mu.Unlock()
	return l.write(ctx, nil, refused)
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

// rounds is how many open loops one figure is from.
const rounds = 7

// open measures latencies in rounds. The figures are the medians of theirs: a disk that is somebody else's, too, stands
// still now and then.
func (b *bench) open(ctx context.Context, s settings, f *loopFigures) (found latency, err error) {
	all := make([]latency, 0, rounds)
	for range rounds {
		one, err := b.round(ctx, s, f)
		if err != nil {
			return found, err
		}
		all = append(all, one)
	}
	sorted := func(of func(latency) float64) []float64 {
		values := make([]float64, 0, rounds)
		for _, l := range all {
			values = append(values, of(l))
		}
		slices.Sort(values)
		return values
	}
	late := sorted(func(l latency) float64 { return l.P99 })
	found.P99, found.Worst = late[rounds/2], late[rounds-1]
	found.P50 = sorted(func(l latency) float64 { return l.P50 })[rounds/2]
	found.Request50 = sorted(func(l latency) float64 { return l.Request50 })[rounds/2]
	found.Request99 = sorted(func(l latency) float64 { return l.Request99 })[rounds/2]
	found.Busy = sorted(func(l latency) float64 { return l.Busy })[rounds/2]
	return found, nil
}

// middleAndLate are the median and the 99th percentile, in ms.
func middleAndLate(times []time.Duration) (p50, p99 float64) {
	slices.Sort(times)
	return milliseconds(times[len(times)/2]), milliseconds(times[len(times)*99/100])
}

// round is an open loop: requests come when they come, each in a goroutine of its own, as in a server.
func (b *bench) round(ctx context.Context, s settings, f *loopFigures) (found latency, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := b.watch(ctx)
	if err != nil {
		return found, err
	}
	gap := float64(time.Second) * meanSize / f.Offered // between requests
	var requests sync.WaitGroup
	before, start := cpuTime(), time.Now()
	next := func(due time.Time) time.Time { return due.Add(time.Duration(l.rand.ExpFloat64() * gap)) }
	for due := start; due.Sub(start) < s.span() || l.nothing(); due = next(due) {
		time.Sleep(time.Until(due))
		come, gone := l.draws(l.sizeOf(), time.Now())
		requests.Go(func() { l.fail(l.write(ctx, come, nil)) })
		requests.Go(func() { l.fail(l.write(ctx, nil, gone)) })
	}
	requests.Wait()
	found.Busy = (cpuTime() - before).Seconds() / time.Since(start).Seconds()
	if err := l.settle(ctx, f); err != nil {
		return found, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	found.P50, found.P99 = middleAndLate(l.taken)
	found.Request50, found.Request99 = middleAndLate(l.times)
	return found, nil
}
