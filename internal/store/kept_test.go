package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// TestKeptNetworks: what is kept is what a transaction would read, also of what is not committed and may be undone, and
// whose revision is given again.
func TestKeptNetworks(t *testing.T) {
	s := inside(t)
	undo := errors.New("undo")
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 1))
		same := func(tx *Tx) error {
			got, err := tx.Networks()
			want, wrong := networks().list(tx.sqlTx, "")
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("seed %d: %s", seed, d)
			}
			if len(got) > 0 {
				got[0].Bridge = "the caller's" // the slice is
				one, other := tx.Network(want[0].Name)
				if d := cmp.Diff(want[0], one); d != "" {
					t.Fatalf("seed %d: one of them: %s", seed, d)
				}
				err = errors.Join(err, other)
			}
			return errors.Join(err, wrong)
		}
		change := func(tx *Tx) error {
			name := fmt.Sprint("n", r.IntN(4))
			err := tx.PutNetwork(farm.FleetNetwork{Name: name, Bridge: fmt.Sprint("br", r.IntN(3))})
			if r.IntN(3) == 0 {
				err = errors.Join(err, tx.DeleteNetwork(name))
			}
			if err := errors.Join(err, same(tx)); err != nil || r.IntN(3) > 0 {
				return err
			}
			return undo
		}
		for range 100 {
			for _, u := range writeTogether(t, s, change, same, change, change, same) {
				if u.err != nil && !errors.Is(u.err, undo) {
					t.Fatal(u.err)
				}
			}
			if err := s.View(t.Context(), same); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.networks.revision == 0 {
		t.Error("nothing is ever kept")
	}
}
