package store

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestCommitFailsTogether: when a commit fails, so has what was read of it, and not written.
func TestCommitFailsTogether(t *testing.T) {
	s := inside(t)
	var seen []farm.Cell
	group := groupOf(t,
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
	s.writeGroup(group)
	if len(seen) != 1 {
		t.Fatalf("the second saw %d cells of the first", len(seen))
	}
	for n, u := range group {
		if u.err == nil {
			t.Errorf("update %d is told that it was done", n)
		}
	}
}
