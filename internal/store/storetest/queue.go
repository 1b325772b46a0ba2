package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/grange-project/grange/internal/store"
)

// together: what comes while another writes is, to each, a transaction of its own, however many are committed at once.
func together(s *suite) {
	db := s.new()
	held, release := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		if _, err := db.Update(s.ctx, func(tx *store.Tx) error {
			select {
			case <-held:
			default:
				close(held)
			}
			<-release
			return put("first", 1)(tx)
		}); err != nil {
			s.Error(err)
		}
	})
	<-held
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
	close(release)
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
