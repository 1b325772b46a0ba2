package app

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// TestFullFileSystem: a command that cannot write says which file system is full, and what to try.
func TestFullFileSystem(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		var out strings.Builder
		PrintError(&out, &fs.PathError{Op: "write", Path: "/run/grange/agent.lock", Err: cause})
		got := out.String()
		if !strings.HasPrefix(got, "grange: the file system of /run/grange is full: ") ||
			!strings.Contains(got, " [disk-full]\n  try: ") {
			t.Errorf("%q", got)
		}
	}
}
