package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestDiskFull: nothing of a transaction for which there is no room is written, and the next one that fits is.
func TestDiskFull(t *testing.T) {
	s := nearlyFull(t)
	_, err := s.Update(t.Context(), func(tx *Tx) error {
		if err := tx.PutCell(farm.Cell{Name: "small"}); err != nil {
			return err
		}
		return tx.PutCell(farm.Cell{Name: "large", Reason: strings.Repeat("x", 1<<20)})
	})
	if e, ok := errors.AsType[*farm.Error](err); !ok || e.Code != CodeStoreFull || e.Kind != farm.NoCapacity {
		t.Errorf("a full disk: %v", err)
	}
	if revision, err := s.Update(t.Context(),
		func(tx *Tx) error { return tx.PutCell(farm.Cell{Name: "small"}) }); err != nil || revision != 1 {
		t.Errorf("what fits: revision %d, %v", revision, err)
	}
}

// TestDiskFullTogether: one of a group that has no room takes nothing from the others.
func TestDiskFullTogether(t *testing.T) {
	s := nearlyFull(t)
	var puts []func(*Tx) error
	for n, size := range []int{1, 1 << 20, 1} {
		puts = append(puts, func(tx *Tx) error {
			return tx.PutCell(farm.Cell{Name: fmt.Sprint("cell", n), Reason: strings.Repeat("x", size)})
		})
	}
	group := writeTogether(t, s, puts...)
	for n, u := range group {
		if full := farm.IsCode(u.err, CodeStoreFull); full != (n == 1) || u.err != nil && !full {
			t.Errorf("update %d: %v", n, u.err)
		}
	}
	if group[0].revision != 1 || group[2].revision != 2 {
		t.Errorf("revisions %d and %d", group[0].revision, group[2].revision)
	}
}
