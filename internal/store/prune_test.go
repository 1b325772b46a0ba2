package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// TestPrunedBitByBit: one transaction drops no more than some thousands, and the last entry stays.
func TestPrunedBitByBit(t *testing.T) {
	s, old, most := inside(t), time.Unix(1000, 0), 2*pruneAtOnce+10
	update := func(do func(*Tx) error) {
		t.Helper()
		if _, err := s.Update(context.Background(), do); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx *Tx) error {
		for i := range most {
			if err := tx.Audit(farm.Entry{Time: old.Add(time.Duration(i)), Who: "ann"}); err != nil {
				return err
			}
		}
		for i := range pruneAtOnce {
			if err := tx.PutAnswer("ann", fmt.Sprint(i), nil, nil, old); err != nil {
				return err
			}
		}
		return tx.PutAnswer("ben", "new", nil, nil, old.Add(time.Hour))
	})
	for _, left := range []struct {
		entries, answers int
		again            bool
	}{{pruneAtOnce + 10, 1, true}, {10, 1, true}, {1, 1, false}} {
		update(func(tx *Tx) error {
			again, err := tx.Prune(old.Add(time.Minute), old.Add(time.Minute))
			if again != left.again {
				t.Errorf("%+v: again: %v", left, again)
			}
			return err
		})
		var entries, answers int
		if err := s.write.QueryRow("SELECT (SELECT COUNT(*) FROM entries), (SELECT COUNT(*) FROM answers)").Scan(
			&entries, &answers); err != nil {
			t.Fatal(err)
		}
		if entries != left.entries || answers != left.answers {
			t.Errorf("%d entries and %d answers are left, not %+v", entries, answers, left)
		}
	}
	for _, text := range []string{pruneAnswers, pruneEntries} {
		if p := s.plan(t, text); strings.Contains(p, "SCAN") {
			t.Errorf("all are read: %s", p)
		}
	}
}

// TestAnswersAreBounded: of a caller with too many answers the oldest are dropped; others' stay.
func TestAnswersAreBounded(t *testing.T) {
	s, at := inside(t), time.Unix(1000, 0)
	left := func(most int) (ann, ben, oldest int) {
		t.Helper()
		drop := func(tx *Tx) error { return tx.DropAnswers("ann", most) }
		if _, err := s.Update(context.Background(), drop); err != nil {
			t.Fatal(err)
		}
		if err := s.write.QueryRow("SELECT COUNT(*) FILTER (WHERE who = 'ann'), COUNT(*) FILTER (WHERE who = 'ben'), "+
			"MIN(CAST(key AS INTEGER)) FILTER (WHERE who = 'ann') FROM answers").Scan(&ann, &ben, &oldest); err != nil {
			t.Fatal(err)
		}
		return ann, ben, oldest
	}
	if _, err := s.Update(context.Background(), func(tx *Tx) error {
		for i := range 210 {
			for _, who := range []string{"ann", "ben"} {
				if err := tx.PutAnswer(who, fmt.Sprint(i), nil, nil, at.Add(time.Duration(i)*time.Second)); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ most, ann, oldest int }{{210, 210, 0}, {200, 190, 20}, {190, 190, 20}} {
		if ann, ben, oldest := left(c.most); ann != c.ann || ben != 210 || oldest != c.oldest {
			t.Errorf("%d at most: %d from %d on, and %d of another user", c.most, ann, oldest, ben)
		}
	}
	if p := s.plan(t, dropAnswers); strings.Contains(p, "SCAN") {
		t.Errorf("all are read: %s", p)
	}
}
