package metallab

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUse: a snapshot, and the one below it, are in use for as long as a host has them.
func TestUse(t *testing.T) {
	dir := t.TempDir()
	booted, installed := filepath.Join(dir, "booted"), filepath.Join(dir, "installed")
	for _, d := range []string{booted, installed} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(installed, baseFile), []byte(booted), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := use(installed)
	if err != nil || !inUse(booted) || !inUse(installed) {
		t.Fatalf("%v; in use: %t, %t", err, inUse(booted), inUse(installed))
	}
	for _, f := range files {
		f.Close()
	}
	if inUse(booted) || inUse(installed) {
		t.Error("in use, and nobody has them")
	}
}
