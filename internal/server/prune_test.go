package server

import (
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// However much is too old, one round of pruning leaves none of it.
func TestPruning(t *testing.T) {
	l := newLab(t)
	old := l.clock().Add(-keepEntries - time.Hour)
	l.update(func(tx *store.Tx) error {
		for range 5000 {
			if err := tx.Audit(farm.Entry{Time: old, Who: "ann"}); err != nil {
				return err
			}
		}
		return tx.Audit(farm.Entry{Time: l.clock(), Who: "ann"})
	})
	if err := l.upkeep.prune(t.Context(), l.epoch()); err != nil {
		t.Fatal(err)
	}
	l.view(func(tx *store.Tx) error {
		left, err := tx.Entries("", "", 0, 10)
		if len(left) != 1 {
			t.Errorf("%d entries are left", len(left))
		}
		return err
	})
}
