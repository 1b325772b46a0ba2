package capacity

import (
	"fmt"
)

// books are counters of CPUs, by kind of host, and what they have come to.
type books struct {
	now  []counts
	sums []Books   // CPU seconds
	free []float64 // CPU seconds, since the last look
}

// counts are CPUs, at one time.
type counts struct{ installed, reserved, mix, beside, used, drained, broken, free int }

func newBooks(o Options, s site) *books {
	b := &books{now: make([]counts, len(o.Hosts)), sums: make([]Books, len(o.Hosts)),
		free: make([]float64, len(o.Hosts))}
	for kind, h := range o.Hosts {
		of := s.fixed[kind]
		b.now[kind] = counts{installed: of.installed * h.Count, reserved: of.reserved * h.Count, mix: of.mix * h.Count,
			beside: of.beside * h.Count}
	}
	for _, p := range s.places {
		b.now[p.kind].free += p.cpus
	}
	return b
}

// pass lets time go by.
func (b *books) pass(seconds int64) {
	t := float64(seconds)
	for kind, n := range b.now {
		s := &b.sums[kind]
		s.Installed += t * float64(n.installed)
		s.Reserved += t * float64(n.reserved)
		s.Mix += t * float64(n.mix)
		s.Beside += t * float64(n.beside)
		s.Drained += t * float64(n.drained)
		s.Broken += t * float64(n.broken)
		b.free[kind] += t * float64(n.free)
	}
}

// of is the counter of free CPUs of a place.
func (n *counts) of(down *Outage) *int {
	switch {
	case down == nil:
		return &n.free
	case down.Broken:
		return &n.broken
	}
	return &n.drained
}

func (b *books) started(kind, cpus, held int, down *Outage) {
	n := &b.now[kind]
	n.used += cpus
	n.beside += held - cpus
	*n.of(down) -= held
}

func (b *books) stopped(kind, cpus, held int, down *Outage) { b.started(kind, -cpus, -held, down) }

// turned counts what is free on a place, as it is down or not; or takes it out before that changes.
func (b *books) turned(at *place, times int) { *b.now[at.kind].of(at.down) += times * at.free() }

// worked enters the CPU seconds of a job.
func (b *books) worked(kind int, seconds, loss float64) {
	b.sums[kind].Delivered += seconds * (1 - loss)
	b.sums[kind].Overhead += seconds * loss
}

func (b *books) repeated(kind int, seconds float64) { b.sums[kind].Repeated += seconds }

// look says what CPUs were free for since the last look, as they are now.
func (b *books) look(places []*place, waiting *queue) {
	shares := make([]struct{ pieces, memory, mix int }, len(b.now))
	if !waiting.empty() {
		for _, p := range places {
			if p.down != nil || p.free() == 0 {
				continue
			}
			switch s := &shares[p.kind]; p.refuses(waiting) {
			case pieces:
				s.pieces += p.free()
			case memory:
				s.memory += p.free()
			case mix:
				s.mix += p.free()
			}
		}
	}
	for kind, s := range shares {
		sum, free := &b.sums[kind], b.free[kind]
		b.free[kind] = 0
		all := float64(s.pieces + s.memory + s.mix)
		if all == 0 {
			sum.Idle += free
			continue
		}
		sum.Pieces += free * float64(s.pieces) / all
		sum.Memory += free * float64(s.memory) / all
		sum.Mix += free * float64(s.mix) / all
	}
}

// shortage is why a place takes none of the jobs that wait.
type shortage int

const (
	mix shortage = iota // fewer CPUs than any asks for
	memory
	pieces
)

// refuses says why none of those that wait is here, of the job that is the nearest to.
func (p *place) refuses(waiting *queue) (why shortage) {
	for key := range waiting.byKind {
		switch {
		case key.cpus > p.free():
		case key.memory > p.memory-p.taken:
			why = max(why, memory)
		default:
			why = pieces
		}
	}
	return why
}

// check compares the books with what the placement has: they are kept apart.
func (b *books) check(s site) error {
	free := 0
	for _, n := range b.now {
		free += n.free + n.drained + n.broken
		if sum := n.reserved + n.mix + n.beside + n.used + n.drained + n.broken + n.free; sum != n.installed {
			return fmt.Errorf("of %d CPUs the books have %d", n.installed, sum)
		}
	}
	if has := s.fleet.Sums()[cell].Free; has != free {
		return fmt.Errorf("the books have %d free CPUs, and the placement has %d", free, has)
	}
	return nil
}

// hours are the sums by kind, in CPU hours.
func (b *books) hours() []Books {
	out := make([]Books, len(b.sums))
	for i, s := range b.sums {
		const h = 3600
		out[i] = Books{s.Installed / h, s.Delivered / h, s.Overhead / h, s.Repeated / h, s.Beside / h, s.Reserved / h,
			s.Drained / h, s.Broken / h, s.Pieces / h, s.Memory / h, s.Mix / h, s.Idle / h}
	}
	return out
}
