package app

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// WriteFile writes a file that is there complete or not at all: what stood there before stays until then. Links are
// followed. Devices and pipes are written into. The file gets the rights of the one before it, or those of the umask.
func WriteFile(name string, write func(io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	old, err := os.Stat(name)
	switch {
	case err == nil && old.IsDir():
		return Usage("name a file in it", "%s is a directory", name)
	case err == nil && !old.Mode().IsRegular():
		return writeInto(name, write)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return CannotWrite(name, err)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".grange-*")
	if err != nil {
		return CannotWrite(name, err)
	}
	defer f.Close()
	defer os.Remove(f.Name()) // gone already when all went well
	mode := fs.FileMode(0o666 &^ umask())
	if old != nil {
		mode = old.Mode().Perm()
	}
	b := bufio.NewWriter(f)
	for _, step := range []func() error{func() error { return write(b) }, b.Flush,
		func() error { return f.Chmod(mode) }, f.Sync, func() error { return os.Rename(f.Name(), name) }} {
		if err := step(); err != nil {
			return CannotWrite(name, err)
		}
	}
	return nil
}

// umask is the process's; Linux tells it only to who sets it.
func umask() int {
	old := unix.Umask(0o077)
	unix.Umask(old)
	return old
}

func writeInto(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return CannotWrite(name, err)
	}
	defer f.Close()
	if err := write(f); err != nil {
		return CannotWrite(name, err)
	}
	return nil
}

// CannotWrite distinguishes trouble with a file from trouble with what was to be in it, which speaks for itself.
func CannotWrite(name string, err error) error {
	if own := new(farm.Error); errors.As(err, &own) {
		return err
	}
	return &farm.Error{Kind: farm.Unavailable, Code: output.CodeLostOutput,
		Message: fmt.Sprintf("%s could not be written", name), Hint: "make room there, or name another file", Err: err}
}
