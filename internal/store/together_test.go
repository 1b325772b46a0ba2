package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestCommitFailsTogether: when a commit fails, so has what was read of it, and not written.
func TestCommitFailsTogether(t *testing.T) {
	s := inside(t)
	var seen []farm.Cell
	group := writeTogether(t, s,
		func(tx *Tx) error {
			for _, text := range []string{"CREATE TABLE child (parent TEXT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)", "CREATE TABLE parent (id TEXT PRIMARY KEY)",
				"INSERT INTO child VALUES ('none')"} { // the commit finds that there is none
				if _, err := tx.exec(text); err != nil {
					return err
				}
			}
			return tx.PutCell(farm.Cell{Name: "a"})
		},
		func(tx *Tx) (err error) {
			seen, err = tx.Cells()
			return err
		})
	if len(seen) != 1 {
		t.Fatalf("the second saw %d cells of the first", len(seen))
	}
	for n, u := range group {
		if u.err == nil {
			t.Errorf("update %d is told that it was done", n)
		}
	}
}

// TestAhead: who is ahead goes before all that wait, and behind those that are ahead too.
func TestAhead(t *testing.T) {
	s := inside(t)
	var order []string
	for _, name := range []string{"a", "b", "c ahead", "d", "e ahead"} {
		u := &update{ctx: t.Context(), done: make(chan struct{}), do: func(tx *Tx) error {
			order = append(order, name)
			return tx.PutCell(farm.Cell{Name: name[:1]})
		}}
		s.queue.join(u, strings.HasSuffix(name, "ahead"))
	}
	s.writeQueue()
	if want := []string{"c ahead", "e ahead", "a", "b", "d"}; !slices.Equal(order, want) {
		t.Errorf("in the order %q, not %q", order, want)
	}
}

// TestGroupEnds: a group that has taken its time leaves the others for the next one, which has a commit of its own.
func TestGroupEnds(t *testing.T) {
	s := inside(t)
	s.queue.time = 0
	var puts []func(*Tx) error
	for n := range 4 {
		puts = append(puts, func(tx *Tx) error {
			var before []farm.Cell
			err := s.View(t.Context(), func(other *Tx) (err error) {
				before, err = other.Cells()
				return err
			})
			if err != nil || len(before) != n {
				t.Errorf("update %d: %d before it were committed (%v)", n, len(before), err)
			}
			return tx.PutCell(farm.Cell{Name: fmt.Sprint("c", n)})
		})
	}
	for n, u := range writeTogether(t, s, puts...) {
		if u.err != nil || u.revision != int64(n+1) {
			t.Errorf("update %d: revision %d, %v", n, u.revision, u.err)
		}
	}
}
