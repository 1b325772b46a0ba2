package allotment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host is this host's root directory, as Of wants it.
func Host() fs.FS { return hostFS{os.DirFS("/").(dirFS)} }

type dirFS interface {
	fs.ReadFileFS
	fs.StatFS
	fs.ReadLinkFS
}

type hostFS struct{ dirFS }

// openPlain opens what may be anything by now: a user whose directory it is in may put a pipe there, and whoever opens
// that waits for ever.
func (hostFS) openPlain(name string) (fs.File, error) {
	fd, err := unix.Open("/"+name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// plainOpener is a root directory that really is one; recorded trees have no pipes.
type plainOpener interface {
	openPlain(name string) (fs.File, error)
}

var errNotPlain = errors.New("not an ordinary file with one name")

// readForeign reads a file in a directory that a user can write. The file itself must be one that they cannot: by whom
// it may be made is for the caller to say, of its owner. They can still remove it, or put another of the same owner in
// its place.
func readForeign(files fs.FS, name string, trusted func(owner uint32) bool) ([]byte, fs.FileInfo, error) {
	var file fs.File
	var err error
	if o, ok := files.(plainOpener); ok {
		file, err = o.openPlain(name)
	} else {
		file, err = files.Open(name)
	}
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular() || owner.Nlink > 1:
		return nil, nil, fmt.Errorf("%s: %w", path.Base(name), errNotPlain)
	case !trusted(owner.Uid):
		return nil, nil, fmt.Errorf("%s belongs to user %d, who is not the batch system's", path.Base(name), owner.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return nil, nil, fmt.Errorf("others can write %s", path.Base(name))
	}
	const most = 4 << 20
	text, err := io.ReadAll(io.LimitReader(file, most))
	return text, info, err
}

// userID finds an account in a passwd file.
func userID(passwd []byte, name string) (uint32, bool) {
	for line := range strings.Lines(string(passwd)) {
		if f := strings.Split(line, ":"); len(f) > 3 && f[0] == name {
			id := number(f[2])
			return id, id != 1<<32-1
		}
	}
	return 0, false
}
