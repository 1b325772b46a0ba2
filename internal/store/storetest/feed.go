package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// put writes a cell that is not like any other.
func put(name string, n int) func(*store.Tx) error {
	return func(tx *store.Tx) error { return tx.PutCell(farm.Cell{Name: name, PerHost: n}) }
}

func feed(s *suite) {
	url := s.fresh(s.T)
	db, other := s.open(url, store.Options{}), s.open(url, store.Options{})
	s.update(db, put("a", 1))
	s.update(db, func(tx *store.Tx) error { // one line an object, whatever happens to it
		if err := errors.Join(put("b", 1)(tx), put("b", 2)(tx), put("c", 1)(tx)); err != nil {
			return err
		}
		return errors.Join(tx.DeleteCell("b"), tx.DeleteCell("a"), put("a", 2)(tx))
	})
	want := []store.Change{
		{Revision: 1, Kind: store.KindCell, ID: "a"},
		{Revision: 2, Kind: store.KindCell, ID: "a"},
		{Revision: 2, Kind: store.KindCell, ID: "b", Deleted: true},
		{Revision: 2, Kind: store.KindCell, ID: "c"},
	}
	for after := range int64(3) {
		for _, reader := range []*store.Store{db, other} {
			got, upTo, err := reader.Changes(s.ctx, after, 100)
			same(s, fmt.Sprint("after ", after),
				slices.DeleteFunc(slices.Clone(want), func(c store.Change) bool { return c.Revision <= after }), err,
				got)
			same(s, "up to", 2, err, upTo)
		}
	}
}

func wholeRevisions(s *suite) {
	url := s.fresh(s.T)
	db, other := s.open(url, store.Options{}), s.open(url, store.Options{})
	for n, size := range []int{1, 3, 0, 2} {
		s.update(db, func(tx *store.Tx) error {
			for i := range size {
				if err := put(fmt.Sprint(n, i), 1)(tx); err != nil {
					return err
				}
			}
			return tx.Audit(farm.Entry{}) // a revision of which the feed does not tell
		})
	}
	for _, c := range []struct {
		after, limit, upTo int64
		changes            int
	}{{0, 1, 1, 1}, {0, 2, 1, 1}, {0, 4, 3, 4}, {0, 5, 3, 4}, {0, 6, 4, 6}, {1, 1, 2, 3}, {1, 2, 2, 3}, {2, 1, 4,
		2}, {2, 2, 4, 2}, {4, 1, 4, 0}} {
		for _, reader := range []*store.Store{db, other} {
			got, upTo, err := reader.Changes(s.ctx, c.after, int(c.limit))
			if err != nil || upTo != c.upTo || len(got) != c.changes {
				s.Errorf("after %d, at most %d: %d changes up to %d, not %d up to %d (%v)", c.after, c.limit, len(got),
					upTo, c.changes, c.upTo, err)
			}
		}
	}
}

func feedGone(s *suite) {
	db := s.open(s.fresh(s.T), store.Options{Keep: 20})
	for n := range 100 {
		s.update(db, put("a", n+1))
	}
	for _, after := range []int64{0, 70, 101, 1 << 40} {
		_, _, err := db.Changes(s.ctx, after, 1000)
		s.fails(fmt.Sprint("after ", after), err, farm.CodeFeedGone)
	}
	for _, after := range []int64{80, 99, 100} {
		got, upTo, err := db.Changes(s.ctx, after, 1000)
		if err != nil || upTo != 100 || int64(len(got)) != 100-after {
			s.Errorf("after %d: %d changes up to %d: %v", after, len(got), upTo, err)
		}
	}
}

// writers: two servers write at once, and a third reads the feed. Every reader sees every revision, in order, and none
// later on.
func writers(s *suite) {
	const each = 25
	url := s.fresh(s.T)
	stores := []*store.Store{s.open(url, store.Options{}), s.open(url, store.Options{})}
	done, end := context.WithCancel(s.ctx)
	var got []store.Change
	reading, third := make(chan error, 1), s.open(url, store.Options{})
	go func() { reading <- follow(s.ctx, done, third, &got) }()
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			for n := range each {
				if _, err := stores[w%2].Update(s.ctx, func(tx *store.Tx) error {
					count, err := tx.CountVMs(store.VMFilter{}) // what was read stays true until the commit
					if err != nil {
						return err
					}
					return tx.InsertVM(farm.VM{ID: fmt.Sprint(w, "-", n), Project: "p",
						Name: fmt.Sprintf("%04d", count)})
				}); err != nil {
					s.Error(err)
				}
			}
		})
	}
	work.Wait()
	end()
	if err := <-reading; err != nil {
		s.Fatal(err)
	}
	if len(got) != 4*each {
		s.Fatalf("%d changes, not %d", len(got), 4*each)
	}
	for i, c := range got {
		if c.Revision != int64(i+1) {
			s.Fatalf("change %d is of revision %d", i, c.Revision)
		}
	}
}

// follow reads the feed until done, and then once more to its end.
func follow(ctx, done context.Context, db *store.Store, got *[]store.Change) error {
	for after := int64(0); ; {
		last := done.Err() != nil
		changes, upTo, err := db.Changes(ctx, after, 3)
		if err != nil {
			return err
		}
		*got, after = append(*got, changes...), upTo
		if last && len(changes) == 0 {
			return nil
		}
		if len(changes) == 0 {
			if _, err := db.Wait(done, after); err != nil && done.Err() == nil {
				return err
			}
		}
	}
}

func wait(s *suite) {
	db := s.new()
	s.update(db, put("a", 1))
	revision, err := db.Wait(s.ctx, 0)
	same(s, "at once", 1, err, revision)
	woken := make(chan int64)
	for range 3 {
		go func() {
			revision, err := db.Wait(s.ctx, 1)
			if err != nil {
				s.Error(err)
			}
			woken <- revision
		}()
	}
	s.update(db, put("a", 2))
	for range 3 {
		same(s, "woken", 2, nil, <-woken)
	}
	ended, end := context.WithCancel(s.ctx)
	end()
	if _, err := db.Wait(ended, 2); !errors.Is(err, context.Canceled) {
		s.Errorf("after the end: %v", err)
	}
}

func waitForOther(s *suite) {
	url := s.fresh(s.T)
	one, two := s.open(url, store.Options{}), s.open(url, store.Options{})
	for n := range 3 {
		woken := make(chan int64)
		go func() {
			revision, err := two.Wait(s.ctx, int64(n))
			if err != nil {
				s.Error(err)
			}
			woken <- revision
		}()
		s.update(one, put("a", n+1))
		same(s, "woken", int64(n+1), nil, <-woken)
	}
}

func nothingWritten(s *suite) {
	db := s.new()
	s.update(db, put("a", 1))
	same(s, "revision", 1, nil, s.update(db, func(tx *store.Tx) error { _, err := tx.Cells(); return err }))
	same(s, "the next one", 2, nil, s.update(db, put("a", 2)))
}

func rolledBack(s *suite) {
	db, mine := s.new(), errors.New("mine")
	_, err := db.Update(s.ctx, func(tx *store.Tx) error { return errors.Join(put("a", 1)(tx), mine) })
	if !errors.Is(err, mine) {
		s.Errorf("%v, not the error of the function", err)
	}
	s.view(db, func(tx *store.Tx) error {
		cells, err := tx.Cells()
		same(s, "cells", nil, err, cells)
		return nil
	})
	same(s, "revision", 1, nil, s.update(db, put("a", 2)))
}

// passedOver: a lookup that finds nothing may be passed over, and the transaction goes on.
func passedOver(s *suite) {
	db := s.new()
	s.update(db, func(tx *store.Tx) error {
		_, err := tx.Cell("none")
		s.fails("none", err, store.CodeAbsent)
		return put("a", 1)(tx)
	})
	s.update(db, func(tx *store.Tx) error {
		if err := tx.InsertHost(aHost(1)); err != nil {
			return err
		}
		s.fails("taken", tx.InsertHost(aHost(1)), store.CodeTaken)
		return tx.InsertHost(aHost(2))
	})
	s.view(db, func(tx *store.Tx) error {
		hosts, err := tx.Hosts("")
		same(s, "hosts", 2, err, len(hosts))
		return nil
	})
}

// view: all that a View reads is of one moment, and it does not wait for a writer.
func view(s *suite) {
	db := s.new()
	s.update(db, put("a", 1))
	s.view(db, func(tx *store.Tx) error {
		s.update(db, put("b", 1))
		cells, err := tx.Cells()
		same(s, "cells", 1, err, len(cells))
		same(s, "revision", 1, nil, tx.Revision())
		return nil
	})
	if err := db.View(s.ctx, put("c", 1)); err == nil {
		s.Error("a View wrote")
	}
}

func endedContext(s *suite) {
	db := s.new()
	ctx, end := context.WithCancel(s.ctx)
	_, err := db.Update(ctx, func(tx *store.Tx) error {
		end()
		return put("a", 1)(tx)
	})
	if !errors.Is(err, context.Canceled) {
		s.Errorf("update: %v", err)
	}
	if err := db.View(ctx, func(*store.Tx) error { return nil }); !errors.Is(err, context.Canceled) {
		s.Errorf("view: %v", err)
	}
	same(s, "revision", 1, nil, s.update(db, put("a", 2)))
}

// goneAway: somebody who goes away need not wait for his turn, nothing is begun for him, and a list is not read to its
// end.
func goneAway(s *suite) {
	db := s.new()
	s.update(db, put("a", 1))
	ctx, end := context.WithCancel(s.ctx)
	begun, failed := false, make(chan error)
	s.update(db, func(tx *store.Tx) error { // the next writer waits for this one
		go func() {
			_, err := db.Update(ctx, func(*store.Tx) error {
				begun = true
				return nil
			})
			failed <- err
		}()
		end()
		if err := <-failed; begun || !errors.Is(err, context.Canceled) {
			s.Errorf("an update of one who had gone: begun: %v, %v", begun, err)
		}
		return put("b", 1)(tx)
	})
	ctx, end = context.WithCancel(s.ctx)
	err := db.View(ctx, func(tx *store.Tx) error {
		end()
		cells, err := tx.Cells()
		if err == nil {
			s.Errorf("%d cells are read for one who has gone", len(cells))
		}
		return err
	})
	if !errors.Is(err, context.Canceled) {
		s.Errorf("view: %v", err)
	}
}

// mixedWriters: what each of two knows of its own writes never hides the other's.
func mixedWriters(s *suite) {
	url := s.fresh(s.T)
	dbs := []*store.Store{s.open(url, store.Options{Keep: 30}), s.open(url, store.Options{Keep: 30})}
	at := []int64{0, 0}
	for n := range 60 {
		s.update(dbs[n*n%7%2], put(fmt.Sprint("c", n), n+1))
		if n%5 != 4 {
			continue
		}
		for i, db := range dbs {
			for at[i] < int64(n+1) {
				changes, upTo, err := db.Changes(s.ctx, at[i], 1000)
				if err != nil || upTo <= at[i] {
					s.Fatalf("after %d: up to %d (%v)", at[i], upTo, err)
				}
				for _, c := range changes {
					at[i]++
					same(s, "change", store.Change{Revision: at[i], Kind: store.KindCell, ID: fmt.Sprint("c", at[i]-1)},
						nil, c)
				}
				same(s, "up to", at[i], nil, upTo)
			}
		}
	}
}

// clock is a monotonic clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
