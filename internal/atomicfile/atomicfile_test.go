package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWrite: a file is replaced whole, with the mode that was asked for; nothing else is left in its directory.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	for _, c := range []struct {
		text string
		mode os.FileMode
	}{{"first, and long", 0o600}, {"second", 0o644}, {"", 0o755}} {
		if err := Write(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || string(text) != c.text || info.Mode().Perm() != c.mode {
			t.Errorf("%q, %v, %v %v", text, info.Mode(), err, statErr)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestWriteFails: what was there stays, and nothing is left beside it.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o755); err != nil { // no file can take the place of that
		t.Fatal(err)
	}
	if err := Write(path, []byte("text"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if err := Write(filepath.Join(dir, "none", "a"), nil, 0o600); err == nil {
		t.Error("a file was written where there is no directory")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
