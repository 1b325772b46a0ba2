package inherited

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	open := func(path string, flags int) *os.File {
		t.Helper()
		f, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	again := func(f *os.File) *os.File {
		t.Helper()
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f = os.NewFile(uintptr(fd), f.Name())
		t.Cleanup(func() { f.Close() })
		return f
	}
	const write, add = os.O_WRONLY | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_APPEND
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	file := open(path, write)
	for name, c := range map[string]struct {
		a, b *os.File
		one  bool
	}{
		"a file twice in a process": {file, again(file), true},
		"opened twice":              {file, open(path, write), false},
		"opened twice to append":    {open(path, add), open(path, add), true},
		"one appends":               {file, open(path, add), false},
		"two files":                 {file, open(path+"2", write), false},
		"a pipe":                    {w, again(w), true},
		"a file and a pipe":         {file, w, false},
		"null":                      {open(os.DevNull, write), open(os.DevNull, write), true},
		"none":                      {nil, nil, false},
	} {
		if got := OneFile(c.a, c.b); got != c.one {
			t.Errorf("%s: %t", name, got)
		}
	}
}
