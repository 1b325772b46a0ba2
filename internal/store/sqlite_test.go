package store

import (
	"fmt"
	"os"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestLogBeginsAnew: the log of a SQLite file does not grow with all that is ever written, though its writer never
// pauses.
func TestLogBeginsAnew(t *testing.T) {
	s := inside(t)
	log := s.engine.(sqliteEngine).path + "-wal"
	size := func() int64 {
		info, err := os.Stat(log)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	n := 0
	write := func(changes int) {
		for end := n + changes; n < end; {
			if _, err := s.Update(t.Context(), func(tx *Tx) error {
				for range 50 {
					n++
					if err := tx.PutProject(farm.Project{Name: fmt.Sprintf("p%06d", n)}); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(tidyAfter)
	first := size()
	write(10 * tidyAfter)
	if now := size(); now > 3*first {
		t.Errorf("the log has %d bytes after %d changes, and had %d after %d", now, n, first, tidyAfter)
	}
}
