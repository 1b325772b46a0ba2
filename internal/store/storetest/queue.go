package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/grange-project/grange/internal/store"
)

// Hold has an Update of db run, and returns when it does. Others wait behind it until release is called.
func Hold(t *testing.T, work *sync.WaitGroup, db *store.Store, do func(*store.Tx) error) (release func()) {
	t.Helper()
	held, released := make(chan struct{}), make(chan struct{})
	var once sync.Once
	work.Go(func() {
		if _, err := db.Update(t.Context(), func(tx *store.Tx) error {
			once.Do(func() { close(held) })
			<-released
			return do(tx)
		}); err != nil {
			t.Error(err)
		}
	})
	<-held
	return func() { close(released) }
}

// together: what comes while another writes is, to each, a transaction of its own, however many are committed at once.
func together(s *suite) {
	db := s.new()
	var work sync.WaitGroup
	release := Hold(s.T, &work, db, put("first", 1))
	ended, end := context.WithCancel(s.ctx)
	end()
	undo := errors.New("undo")
	var mu sync.Mutex
	var revisions []int64
	started := sync.WaitGroup{}
	for n := range 40 {
		started.Add(1)
		work.Go(func() {
			defer func() {
				if got := recover(); (got != nil) != (n%5 == 4) {
					s.Errorf("%d: panic %v", n, got)
				}
			}()
			name, ctx := fmt.Sprintf("c%02d", n), s.ctx
			if n%5 == 3 {
				ctx = ended
			}
			started.Done()
			revision, err := db.Update(ctx, func(tx *store.Tx) error {
				if n%5 == 2 {
					return nil // reads only
				}
				if err := put(name, n+1)(tx); err != nil {
					return err
				}
				switch n % 5 {
				case 1:
					return undo
				case 4:
					panic(n)
				}
				return nil
			})
			switch n % 5 {
			case 0:
				mu.Lock()
				revisions = append(revisions, revision)
				mu.Unlock()
				if err != nil {
					s.Error(err)
				}
			case 1:
				if !errors.Is(err, undo) {
					s.Errorf("undone: %v", err)
				}
			case 2:
				if err != nil {
					s.Errorf("nothing written: %v", err)
				}
			case 3:
				if !errors.Is(err, context.Canceled) {
					s.Errorf("ended: %v", err)
				}
			}
		})
	}
	started.Wait()
	release()
	work.Wait()
	slices.Sort(revisions)
	same(s, "revisions", []int64{2, 3, 4, 5, 6, 7, 8, 9}, nil, revisions)
	s.view(db, func(tx *store.Tx) error {
		cells, err := tx.Cells()
		var names []string
		for _, c := range cells {
			names = append(names, c.Name)
		}
		same(s, "cells", []string{"c00", "c05", "c10", "c15", "c20", "c25", "c30", "c35", "first"}, err, names)
		return nil
	})
	changes, upTo, err := db.Changes(s.ctx, 1, 100)
	same(s, "up to", 9, err, upTo)
	same(s, "changes", 8, nil, len(changes))
}

// inOrder: Updates run one after the other, in the order of their revisions, and each sees what those before it wrote,
// and nothing of one that failed.
func inOrder(s *suite) {
	db, undo := s.new(), errors.New("undo")
	var mu sync.Mutex
	var ran []int64 // revisions of those that were written, in the order in which they ran
	var work sync.WaitGroup
	for n := range 60 {
		work.Go(func() {
			var mine int64
			revision, err := db.Update(s.ctx, func(tx *store.Tx) error {
				cells, err := tx.Cells()
				if mine = tx.Revision(); err != nil || int64(len(cells)) != mine-1 {
					s.Errorf("revision %d sees %d cells (%v)", mine, len(cells), err)
				}
				if err := put(fmt.Sprint("c", n), 1)(tx); err != nil || n%6 == 5 {
					return errors.Join(err, undo)
				}
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, mine)
				return nil
			})
			if failed := n%6 == 5; errors.Is(err, undo) != failed || !failed && (err != nil || revision != mine) {
				s.Errorf("%d: revision %d, not %d (%v)", n, revision, mine, err)
			}
		})
	}
	work.Wait()
	var want []int64
	for n := range int64(50) {
		want = append(want, n+1)
	}
	same(s, "order", want, nil, ran)
}

// goneInside: whoever goes away while it is written is not written, and those beside it are.
func goneInside(s *suite) {
	db := s.new()
	var work sync.WaitGroup
	release := Hold(s.T, &work, db, put("first", 1))
	for n := range 12 {
		work.Go(func() {
			ctx, end := context.WithCancel(s.ctx)
			defer end()
			goes, reads := n%3 == 2, 0
			_, err := db.Update(ctx, func(tx *store.Tx) error {
				if err := put(fmt.Sprint("c", n), 1)(tx); err != nil || !goes {
					return err
				}
				end()
				_, err := tx.Cells() // a statement of one who has gone
				reads++
				return err
			})
			if errors.Is(err, context.Canceled) != goes || err != nil && !goes || goes && reads != 1 {
				s.Errorf("%d: %v after %d reads", n, err, reads)
			}
		})
	}
	release()
	work.Wait()
	s.view(db, func(tx *store.Tx) error {
		cells, err := tx.Cells()
		same(s, "cells", 1+8, err, len(cells))
		return nil
	})
	same(s, "revision", 10, nil, s.update(db, put("last", 1)))
}

// behindAnother: who waits for another server's writer may leave.
func behindAnother(s *suite) {
	url := s.fresh(s.T)
	db, other := s.open(url, store.Options{}), s.open(url, store.Options{})
	s.update(other, func(tx *store.Tx) error {
		ctx, end := context.WithCancel(s.ctx)
		failed := make(chan error)
		go func() {
			_, err := db.Update(ctx, put("a", 1))
			failed <- err
		}()
		end()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			s.Errorf("an update of one who had gone: %v", err)
		}
		return put("b", 1)(tx)
	})
	same(s, "revision", 2, nil, s.update(db, put("c", 1)))
}
