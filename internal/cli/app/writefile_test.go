package app

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/cli/output"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	for _, step := range []error{os.WriteFile(file, []byte("old"), 0o640), os.Symlink("file", link)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	want := func(content string) {
		t.Helper()
		got, err := os.ReadFile(file)
		if err != nil || string(got) != content {
			t.Errorf("the file holds %q, want %q; %v", got, content, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".grange-*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	broken := errors.New("broken")
	if err := WriteFile(file, func(w io.Writer) error { text("half")(w); return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	want("old")
	if err := WriteFile(link, text("new")); err != nil {
		t.Error(err)
	}
	want("new")
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is %v, %v", info, err)
	}

	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	go func() { b, _ := os.ReadFile(pipe); got <- string(b) }()
	if err := WriteFile(pipe, text("through")); err != nil || <-got != "through" {
		t.Error(err)
	}
	if err := WriteFile(dir, text("x")); err == nil {
		t.Error("a directory was written")
	}
}

func TestLostOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	o := &output.Stream{To: full}
	if o.Lost() != nil {
		t.Error("lost before anything was written")
	}
	io.WriteString(o, "x")
	if !errors.Is(o.Lost(), unix.ENOSPC) {
		t.Error(o.Lost())
	}
}
