package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

func TestRotate(t *testing.T) {
	dir, from := t.TempDir(), filepath.Join(t.TempDir(), "server.db")
	s, err := Open(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	// What is not ours, and what a killed backup left.
	for _, other := range []string{"grange-2026-11-22.db", "grange-20000101T000000Z.db.gz", "mine.db",
		".grange-backup-1/farm.db"} {
		path := filepath.Join(dir, other)
		os.MkdirAll(filepath.Dir(path), 0o700)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	for day := range 4 {
		_, copied, deleted, err := Rotate(t.Context(), from, dir, 2, began.AddDate(0, 0, day))
		if err != nil || copied.Rows == 0 {
			t.Fatal(copied, err)
		}
		var want []string
		if day >= 2 {
			want = []string{fmt.Sprintf("grange-202611%dT030000Z.db", 20+day)}
		}
		if !slices.Equal(deleted, want) {
			t.Errorf("day %d: %q deleted, not %q", day, deleted, want)
		}
	}
	want := []string{"grange-20000101T000000Z.db.gz", "grange-2026-11-22.db", "grange-20261124T030000Z.db",
		"grange-20261125T030000Z.db", "mine.db"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// A second one in the same second replaces nothing, and deletes nothing.
	if _, _, _, err := Rotate(t.Context(), from, dir, 1, began.AddDate(0, 0, 3)); err == nil ||
		!slices.Equal(names(t, dir), want) {
		t.Errorf("%v: %q", err, names(t, dir))
	}
}

// TestRotateAlone has another backup under way.
func TestRotateAlone(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := Rotate(t.Context(), filepath.Join(dir, "x.db"), dir, 1, time.Now()); !farm.IsKind(err,
		farm.Conflict) {
		t.Error(err)
	}
	if _, _, _, err := Rotate(t.Context(), "x.db", filepath.Join(dir, "none"), 1, time.Now()); !farm.IsCode(err,
		CodeNoStore) {
		t.Error(err)
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
