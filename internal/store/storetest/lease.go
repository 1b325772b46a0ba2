package storetest

import (
	"time"

	"github.com/grange-project/grange/internal/store"
)

const ttl = 10 * time.Second

// contender is a server that wants to lead, with a clock of its own.
type contender struct {
	s    *suite
	name string
	db   *store.Store
	clock
}

func (s *suite) contenders(names ...string) (all []*contender) {
	url := s.fresh(s.T)
	for _, name := range names {
		r := &contender{s: s, name: name, clock: clock{now: noon}}
		r.db = s.open(url, store.Options{Now: r.Now})
		all = append(all, r)
	}
	return all
}

// leads asks for the lease, and checks the answer.
func (r *contender) leads(want bool, epoch int64) {
	r.s.Helper()
	got, ok, err := r.db.Lead(r.s.ctx, r.name, ttl)
	if err != nil || ok != want || got != epoch {
		r.s.Errorf("%s leads: %v in epoch %d (%v), not %v in %d", r.name, ok, got, err, want, epoch)
	}
}

func lease(s *suite) {
	rs := s.contenders("a", "b")
	a, b := rs[0], rs[1]
	for range 10 {
		a.leads(true, 1)
		b.leads(false, 1)
		a.pass(ttl / 2)
		b.pass(ttl) // its clock runs fast: it still sees another heartbeat each time
	}
	b.pass(1000 * time.Hour) // and jumps
	a.leads(true, 1)
	b.leads(false, 1)
	a.pass(-1000 * time.Hour)
	a.leads(true, 1)
}

func deadLeader(s *suite) {
	rs := s.contenders("a", "b", "c")
	a, b, c := rs[0], rs[1], rs[2]
	a.leads(true, 1)
	b.leads(false, 1)
	b.pass(ttl - 1)
	b.leads(false, 1)
	c.leads(false, 1)
	b.pass(1)
	b.leads(true, 2)
	c.pass(ttl)
	c.leads(false, 2) // it saw another heartbeat
	a.leads(false, 2)
	a.pass(ttl)
	b.leads(true, 2)
	a.leads(false, 2)
}

func resigned(s *suite) {
	rs := s.contenders("a", "b")
	a, b := rs[0], rs[1]
	a.leads(true, 1)
	if err := b.db.Resign(s.ctx, "b"); err != nil { // not its own
		s.Fatal(err)
	}
	b.leads(false, 1)
	if err := a.db.Resign(s.ctx, "a"); err != nil {
		s.Fatal(err)
	}
	b.leads(true, 2)
	again := &contender{s: s, name: "b", db: rs[0].db, clock: clock{now: noon}}
	again.leads(true, 3) // a new process with the name of the old one
}

func fence(s *suite) {
	rs := s.contenders("a", "b")
	a, b := rs[0], rs[1]
	a.leads(true, 1)
	fenced := func(epoch int64) func(*store.Tx) error {
		return func(tx *store.Tx) error {
			if err := put("x", int(epoch))(tx); err != nil {
				return err
			}
			return tx.Fence(epoch)
		}
	}
	s.update(a.db, fenced(1))
	b.leads(false, 1)
	b.pass(ttl)
	b.leads(true, 2)
	s.fails("the old leader", s.in(a.db, fenced(1)), store.CodeNotLeader)
	s.update(b.db, fenced(2))
}
