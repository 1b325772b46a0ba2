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
