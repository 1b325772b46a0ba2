package gateway

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Directory is one that a guest may see: an open descriptor, and never again a path of the host. Whatever a guest,
// another task of its user or a process of the host does to names in it meanwhile, no request reaches anything outside.
type Directory struct {
	root     *os.File // O_PATH
	fd       int
	dev      uint64
	kinds    kinds
	stepwise bool // this kernel has no openat2
}

// Options are what a guest may do with a directory.
type Options struct {
	ReadOnly      bool // nothing below it changes
	SetID         bool // set-user-ID and set-group-ID bits of files, and their capabilities, may be made
	Devices       bool // device nodes may be made
	OneFileSystem bool // nothing that is mounted below it is seen
}

// bound is a directory as one guest may use it.
type bound struct {
	*Directory
	Options
}

// Open opens a directory. Symbolic links in dir are the caller's own, and are followed here for the last time. A
// directory on a file system of the kernel's own is refused with a RefusedError.
func Open(dir string) (*Directory, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.ENOTDIR) {
			return nil, fmt.Errorf("%s is not a directory", dir)
		}
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	d := &Directory{root: os.NewFile(uintptr(fd), dir), fd: fd, kinds: kinds{devices: devices()}}
	var st unix.Statx_t
	if err := stat(fd, &st); err != nil {
		d.Close()
		return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	d.dev = number(&st)
	if err := d.refused(st.Ino); err != nil {
		d.Close()
		return nil, err
	}
	if probe, err := openat2(d.fd, ".", 0, 0); err == nil {
		unix.Close(probe)
	} else {
		d.stepwise = true // ENOSYS before Linux 5.6; what confines us may say EPERM to what it does not know
	}
	return d, nil
}

// Path is where the directory lies, whatever links led there.
func (d *Directory) Path() (string, error) { return os.Readlink(procPath(d.fd)) }

// Descriptor is the directory as this process has it open, for as long as it does.
func (d *Directory) Descriptor() int { return d.fd }

// Close ends no Serve.
func (d *Directory) Close() error { return d.root.Close() }

// Serve answers file requests until stream ends; it returns io.EOF then.
func (d *Directory) Serve(stream io.ReadWriter, o Options) error {
	return serve(stream, fileSystem(&bound{d, o}))
}

// open finds what lies at a path of names in the directory, follows no symbolic link on the way there and none at its
// end, and never leaves the directory. "" is the directory itself. The descriptor is O_PATH: nothing has been opened,
// waited for or cut short by it. flags may be O_DIRECTORY.
func (b *bound) open(path string, flags int) (int, error) {
	if path == "" {
		path = "."
	}
	return b.admitted(b.resolve(b.fd, path, flags))
}

// openName is open for one name in a directory that was opened.
func (b *bound) openName(at int, name string) (int, error) {
	return b.admitted(b.resolve(at, name, 0))
}

func (b *bound) admitted(fd int, err error) (int, error) {
	if err == nil {
		err = orClose(fd, b.admit(fd))
	}
	if err != nil {
		return -1, err
	}
	return fd, nil
}

func (b *bound) resolve(at int, path string, flags int) (int, error) {
	if b.stepwise {
		return openStepwise(at, path, flags)
	}
	var scope uint64
	if b.OneFileSystem {
		scope = unix.RESOLVE_NO_XDEV
	}
	head, rest := splitLong(path)
	if rest == "" {
		return openat2(at, head, flags, scope)
	}
	next, err := openat2(at, head, unix.O_DIRECTORY, scope)
	if err != nil {
		return -1, err
	}
	defer unix.Close(next)
	return b.resolve(next, rest, flags)
}

// splitLong cuts a path of names that no call takes: a guest goes deeper by descriptors.
func splitLong(path string) (head, rest string) {
	if len(path) < unix.PathMax {
		return path, ""
	}
	cut := strings.LastIndexByte(path[:unix.PathMax], '/') // a name has at most 255 bytes
	return path[:max(cut, 0)], path[cut+1:]
}

// reopen opens the file that fd stands for, O_PATH, whatever has its name by now.
func reopen(fd, flags int) (int, error) {
	return openat(unix.AT_FDCWD, procPath(fd), flags|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

const pathOnly = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

func openat2(at int, path string, flags int, scope uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | pathOnly),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | scope}
	for {
		fd, err := unix.Openat2(at, path, &how)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// openStepwise is the same for kernels without openat2: one descriptor for each directory on the way.
func openStepwise(root int, path string, flags int) (int, error) {
	if path == "." {
		return openat(root, path, flags|pathOnly, 0)
	}
	at := root
	leave := func() {
		if at != root {
			unix.Close(at)
		}
	}
	for {
		name, rest, more := strings.Cut(path, "/")
		if !plain(name) {
			leave()
			return -1, unix.EXDEV
		}
		if !more {
			fd, err := openat(at, name, flags|pathOnly, 0)
			leave()
			return fd, err
		}
		next, err := openat(at, name, unix.O_DIRECTORY|pathOnly, 0)
		leave()
		if err != nil {
			return -1, err
		}
		at, path = next, rest
	}
}

func openat(at int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(at, name, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// procPath names what a descriptor stands for, to calls that take only paths: a link that leads to that file, whatever
// names it has by now.
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

const statMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

func stat(fd int, st *unix.Statx_t) error {
	return unix.Statx(fd, "", unix.AT_EMPTY_PATH, statMask, st)
}
