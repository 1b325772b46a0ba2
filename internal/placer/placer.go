// Package placer gives cloud VMs their hosts, on the server that leads. It decides in memory, where a claim takes some
// microseconds, and commits many claims in one transaction: a group is what has come in while the one before it was
// committed. What is not committed was never claimed.
package placer

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/sleep"
	"github.com/grange-project/grange/internal/store"
)

// Options is what a mirror, and the placer that it makes, are made of.
type Options struct {
	Store *store.Store
	Log   *slog.Logger
	Now   func() time.Time
	// Silent reports whether a host is silent now that was heard of at a time, by the store.
	Silent func(host string, seen time.Time) bool
	// Reserve has a batch system give a VM its place, in a cell that it brokers. It may be told of a VM more than once.
	Reserve func(ctx context.Context, epoch int64, vm farm.VM, cell string) error
	// Placed is told of VMs that got a host, and of how long that pass of the placer took; 0: it was none. It returns
	// at once. nil: nobody wants to know.
	Placed func(n int, took time.Duration)
}

// Placer gives VMs their hosts, on the server that leads.
type Placer struct {
	*Mirror
	epoch int64 // of the lease; commits under another one fail
	queue *queue
	avoid *avoidance
}

// Bounds of the placer's work between two looks at the feed.
const (
	maxGroup = 256 // VMs that are placed in one commit
	maxTries = 128 // claims, of VMs that are refused too: a millisecond or two
)

// Pauses after a commit that failed: the database is away, or full.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// Lead returns a placer under the lease of an epoch, which has the mirror until its Run returns.
func (m *Mirror) Lead(epoch int64) *Placer {
	m.lead(true)
	return &Placer{Mirror: m, epoch: epoch, queue: newQueue(), avoid: newAvoidance()}
}

// Leading reports whether a placer has the mirror.
func (m *Mirror) Leading() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leading
}

// lead hands the mirror to a placer, or back. It is read anew then: it may have run ahead of the store.
func (m *Mirror) lead(leading bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leading, m.revision = leading, 0
}

// seen returns up to where the mirror has read.
func (m *Mirror) seen() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision
}

// Run places VMs until ctx ends, which is no error, or another server leads. A commit that failed is tried again, with
// everything read anew: what has become of it is not always known.
func (p *Placer) Run(ctx context.Context) error {
	defer p.lead(false)
	pause := firstPause
	for ctx.Err() == nil {
		busy, err := p.Step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case notLeading(err):
			return err
		case err != nil:
			p.options.Log.Warn("VMs are not placed now", "error", err, "again in", pause)
			p.startOver()
			_ = sleep.For(ctx, pause)
			pause = min(2*pause, longPause)
			continue
		}
		pause = firstPause
		if !busy {
			p.wait(ctx)
		}
	}
	return nil
}

func notLeading(err error) bool { return farm.IsCode(err, store.CodeNotLeader) }

// startOver forgets what was claimed; the next step reads everything.
func (p *Placer) startOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revision, p.queue = 0, newQueue()
}

// wait returns when the store has changed, or something is due: a look for silent hosts, another try after a refusal.
func (p *Placer) wait(ctx context.Context) {
	now := p.options.Now()
	until := p.checkDue()
	if due, ok := p.avoid.due(now); ok && due.Before(until) {
		until = due
	}
	ctx, cancel := context.WithTimeout(ctx, max(until.Sub(now), time.Millisecond))
	defer cancel()
	_, _ = p.options.Store.Wait(ctx, p.seen()) // its error is ctx's
}

// Step reads what changed, claims places, and commits them; Run calls it again and again. busy reports whether there is
// more to do at once.
func (p *Placer) Step(ctx context.Context) (busy bool, err error) {
	began := time.Now()
	g, err := p.prepare(ctx)
	if err != nil {
		return false, err
	}
	if err := p.commit(ctx, g); err != nil {
		return false, err
	}
	if p.options.Placed != nil && !g.empty() {
		p.options.Placed(len(g.placed), time.Since(began))
	}
	for _, b := range g.reserve {
		if err := p.options.Reserve(ctx, p.epoch, b.vm, b.cell); err != nil {
			return false, err
		}
	}
	return !p.queue.idle(), nil
}

// prepare reads what changed and fills a group. Explanations wait meanwhile.
func (p *Placer) prepare(ctx context.Context) (*group, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refresh(ctx); err != nil {
		return nil, err
	}
	g := &group{}
	p.apply(g)
	for tries := 0; tries < maxTries && len(g.placed) < maxGroup; tries++ {
		waits, fresh := p.queue.first(), tries%2 == 1 // those that wait and new ones in turn
		if waits != nil && !(fresh && len(p.queue.turns) > 0) {
			p.tryAgain(waits, g)
		} else if c := p.queue.next(); c != nil {
			p.try(c, g)
		} else {
			break
		}
	}
	return g, nil
}

// apply takes up what the mirror has read.
func (p *Placer) apply(g *group) {
	now, read := p.options.Now(), p.pending
	p.pending = newPending(false)
	for _, id := range slices.Concat(read.settled, read.gone) {
		p.queue.remove(id)
	}
	for _, id := range slices.Concat(read.running, read.gone) {
		p.avoid.forget(id)
	}
	for _, vm := range read.unplaced {
		p.queue.add(vm)
	}
	for _, id := range p.avoid.over(now) {
		if c := p.queue.at[id]; c != nil {
			p.queue.add(c.vm)
		}
	}
	for _, host := range read.healthy {
		p.recovered(host)
	}
	for _, vm := range read.rejected {
		p.rejectedBy(vm, g)
	}
	for _, vm := range read.resized {
		p.resize(vm, g)
	}
	p.reopen(now)
	if read.all {
		p.queue.retryAll()
	} else if len(read.freed) > 0 {
		p.queue.retryIn(read.freed)
	}
}

// try claims a place for a VM that was not tried yet, or has it wait with those that no host takes.
func (p *Placer) try(c *candidate, g *group) {
	names, err := policy.ChooseCell(c.vm.Project, c.vm.Cell, p.cells)
	if err != nil {
		p.park(c, p.request(*c.vm, nil), g, err) // until a cell changes
		return
	}
	cells, batch := p.placeable(names)
	r := p.request(*c.vm, cells)
	r.Avoid = p.avoid.of(c.vm.ID, p.options.Now())
	b := p.queue.waitlists[placement.ClassOf(r)]
	if b != nil && batch == "" {
		p.park(c, r, g, b.why) // behind others of its class
		return
	}
	if len(cells) > 0 {
		var placed placement.Placed
		if placed, err = p.fleet.Claim(r); err == nil {
			g.place(c, placed)
			return
		}
	}
	if batch != "" {
		g.reserve = append(g.reserve, reservation{*c.vm, batch})
		return
	}
	p.park(c, r, g, err)
}

// park has a VM wait with those of its class.
func (p *Placer) park(c *candidate, r placement.Request, g *group, why error) {
	p.queue.park(c, r).why = why
	g.wait(c, why)
}

// tryAgain claims a place for the first of a waitlist. When it is refused, so are those behind it.
func (p *Placer) tryAgain(c *candidate, g *group) {
	r := p.request(*c.vm, c.waitlist.cells)
	r.Avoid = p.avoid.of(c.vm.ID, p.options.Now())
	placed, err := p.fleet.Claim(r)
	if err != nil {
		c.waitlist.why = err
		p.queue.refused()
		g.wait(c, err)
		return
	}
	p.queue.remove(c.vm.ID)
	g.place(c, placed)
}

// placeable returns the cells that grange places itself, up to the first one of a batch system, which comes after them.
func (p *Placer) placeable(names []string) (cells []string, batch string) {
	for _, name := range names {
		if p.broker(name) != farm.BrokerGrange {
			return cells, name
		}
		cells = append(cells, name)
	}
	return cells, ""
}
