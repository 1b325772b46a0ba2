package store

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// inside is a new farm in SQLite, for tests that look into the store.
func inside(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	// groups are as large as the test has them, however slow the machine is
	s.queue.rhythm = rhythm{time.Hour, time.Hour, time.Hour}
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

// writeTogether writes updates that have come together.
func writeTogether(t *testing.T, s *Store, all ...func(*Tx) error) (group []*update) {
	for _, do := range all {
		u := newUpdate(t.Context(), do)
		group = append(group, u)
		s.queue.join(u, false)
	}
	writeAll(s, group)
	return group
}

// writeAll writes what has joined the queue.
func writeAll(s *Store, all []*update) {
	var callers sync.WaitGroup
	for _, u := range all {
		callers.Go(func() { _, _ = s.queue.wait(u) })
	}
	s.writeQueue()
	callers.Wait()
}
