package imagesource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/rootpath"
)

// file is a regular file that this host mounts, on a shared file system for instance.
type file struct {
	name    string
	resolve func(path string) (string, error) // nil: links are followed
}

func newFile(name string) (Source, error) { return Resolved(name, nil) }

// Resolved returns the source of a file whose path is resolved each time that it is opened, to one without symbolic
// links. Where resolve is nil, links are followed. Error: CodeBadSource.
func Resolved(name string, resolve func(path string) (string, error)) (Source, error) {
	if !filepath.IsAbs(name) {
		return nil, badSource(name, "the path is not absolute")
	}
	return file{filepath.Clean(name), resolve}, nil
}

// open does not wait for the writer of a named pipe.
func (p file) open() (*os.File, fs.FileInfo, error) {
	f, err := p.openPath(os.O_RDONLY | syscall.O_NONBLOCK)
	if known := new(farm.Error); errors.As(err, &known) {
		return nil, nil, err
	} else if err != nil {
		return nil, nil, sourceError(p.name, true, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("not a regular file: %s", info.Mode().Type())
	}
	if err != nil {
		f.Close()
		return nil, nil, sourceError(p.name, true, err)
	}
	return f, info, nil
}

func (p file) openPath(flags int) (*os.File, error) {
	if p.resolve == nil {
		return os.OpenFile(p.name, flags, 0)
	}
	name, err := p.resolve(p.name)
	if err != nil {
		return nil, err
	}
	return rootpath.Open(name, flags)
}

// version changes with every write that the file system records.
func version(info fs.FileInfo) string {
	inode := uint64(0)
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = s.Ino
	}
	return fmt.Sprintf("%d-%d-%d", inode, info.Size(), info.ModTime().UnixNano())
}

func (p file) Stat(context.Context) (Info, error) {
	f, info, err := p.open()
	if err != nil {
		return Info{}, err
	}
	f.Close()
	return Info{Name: filepath.Base(p.name), Size: info.Size(), Version: version(info)}, nil
}

func (p file) Open(_ context.Context, want string, offset int64) (io.ReadCloser, error) {
	f, info, err := p.open()
	if err != nil {
		return nil, err
	}
	if version(info) != want {
		f.Close()
		return nil, ErrChanged
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		f.Close()
		return nil, sourceError(p.name, false, err)
	}
	return &steady{f, want}, nil
}

// steady reads a file that must stay as it is until its end.
type steady struct {
	*os.File
	version string
}

func (s *steady) Read(b []byte) (int, error) {
	n, err := s.File.Read(b)
	if err == io.EOF {
		if info, stat := s.Stat(); stat != nil || version(info) != s.version {
			return n, ErrChanged
		}
	}
	return n, err
}
