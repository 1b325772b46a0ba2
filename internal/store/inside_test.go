package store

import (
	"fmt"
	"path/filepath"
	"testing"
)

// inside is a new farm in SQLite, for tests that look into the store.
func inside(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// nearlyFull is one whose file may grow by four pages.
func nearlyFull(t *testing.T) *Store {
	t.Helper()
	s := inside(t)
	var pages int
	if err := s.write.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages+4)); err != nil {
		t.Fatal(err)
	}
	return s
}

// groupOf is updates that have come together.
func groupOf(t *testing.T, all ...func(*Tx) error) (group []*update) {
	for _, do := range all {
		group = append(group, &update{ctx: t.Context(), done: make(chan struct{}), err: errBroken, do: do})
	}
	return group
}
