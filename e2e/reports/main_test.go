package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestArchivesAreRead reads the demands of every archive.
func TestArchivesAreRead(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, path := range paths {
		if _, err := readCase(path); err != nil {
			t.Error(err)
		}
	}
}

// TestDemands compares outputs with demands that they meet, and that they do not.
func TestDemands(t *testing.T) {
	for _, c := range []struct {
		name, archive, out string
		status             int
		met                bool
	}{
		{"met, over two lines", "Run: x\nWant: a b\nNot: c$\nStatus: 4\n", "a\n   b\n", 4, true},
		{"not printed", "Run: x\nWant: a b\n", "b a", 0, false},
		{"printed", "Run: x\nNot: a\n", "a", 0, false},
		{"another status", "Run: x\nWant: a\nStatus: 1\n", "a", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "case.txtar")
			writeFile(t, path, c.archive)
			r, err := readCase(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.demand.check(c.status, c.out); (err == nil) != c.met {
				t.Errorf("met %v, want %v: %v", err == nil, c.met, err)
			}
		})
	}
}

// TestFilesAreLaidOver replaces, adds and removes files of an archive.
func TestFilesAreLaidOver(t *testing.T) {
	dir := t.TempDir()
	base, over := filepath.Join(dir, "base.txtar"), filepath.Join(dir, "over.txtar")
	writeFile(t, base, "-- a --\n1\n-- b/c --\n2\n-- b/d --\n3\n-- bd --\n4\n")
	writeFile(t, over, "Over: "+base+"\nRun: x\nWant: y\n-- a --\n9\n-- b --\n-\n-- e --\n5\n")
	c, err := readCase(over)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.tree()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got["a"] != "9\n" || got["bd"] != "4\n" || got["e"] != "5\n" {
		t.Errorf("got %q", got)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
