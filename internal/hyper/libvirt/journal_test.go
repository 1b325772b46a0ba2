package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNoteWithoutSpace: an entry that finds no space leaves no part of itself, and the entry before it stays.
func TestNoteWithoutSpace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8k"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(dir, 0)
	j := &journal{dir: dir}
	old := entry{ID: "b4c0f1de-0000-4000-8000-000000000001", Name: "old"}
	if err := j.note(old); err != nil {
		t.Fatal(err)
	}
	if err := j.note(entry{ID: old.ID, Name: strings.Repeat("x", 64<<10)}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Join(dir, journalDir))
	if err != nil || len(files) != 1 {
		t.Errorf("left: %v, %v", files, err)
	}
	if e, err := j.read(old.ID); err != nil || e.Name != old.Name {
		t.Errorf("%+v, %v", e, err)
	}
}
