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

// Directory is one that a guest may see: an open descriptor, and never again a path of the host. Whatever a guest, another task of its user or
// a process of the host does to names in it meanwhile, no request reaches anything outside.
type Directory struct {
	root     *os.File // O_PATH
	fd       int
	dev      uint64
	stepwise bool // this kernel has no openat2
}

// Open opens a directory. Symbolic links in dir are the caller's own, and are followed here for the last time.
func Open(dir string) (*Directory, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.ENOTDIR) {
			return nil, fmt.Errorf("%s is not a directory", dir)
		}
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	d := &Directory{root: os.NewFile(uintptr(fd), dir), fd: fd}
	var st unix.Statx_t
	if err := stat(fd, &st); err != nil {
		d.Close()
		return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	d.dev = unix.Mkdev(st.Dev_major, st.Dev_minor)
	if probe, err := d.open("", unix.O_PATH, 0); err == nil {
		unix.Close(probe)
	} else {
		d.stepwise = true // ENOSYS before Linux 5.6; what confines us may say EPERM to what it does not know
	}
	return d, nil
}

// Path is where the directory lies, whatever links led there.
func (d *Directory) Path() (string, error) { return os.Readlink(procPath(d.fd)) }

// Close ends no Serve.
func (d *Directory) Close() error { return d.root.Close() }

// Serve answers file requests until stream ends; it returns io.EOF then. With readOnly, nothing below the directory changes.
func (d *Directory) Serve(stream io.ReadWriter, readOnly bool) error {
	return serve(stream, fileSystem(d, readOnly))
}

// open opens what lies at a path of names in the directory, follows no symbolic link on the way there and none at its end, and never leaves
// the directory. "" is the directory itself.
func (d *Directory) open(path string, flags int, mode uint32) (int, error) {
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	if path == "" {
		path = "."
	}
	if d.stepwise {
		return d.openStepwise(path, flags, mode)
	}
	how := unix.OpenHow{Flags: uint64(flags), Mode: uint64(mode), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(d.fd, path, &how)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// openStepwise is the same for kernels without openat2: one descriptor for each directory on the way.
func (d *Directory) openStepwise(path string, flags int, mode uint32) (int, error) {
	at := d.fd
	leave := func() {
		if at != d.fd {
			unix.Close(at)
		}
	}
	for {
		name, rest, more := strings.Cut(path, "/")
		if name == "" || name == ".." {
			leave()
			return -1, unix.EXDEV
		}
		if !more {
			fd, err := openat(at, name, flags, mode)
			leave()
			return fd, err
		}
		next, err := openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
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

// procPath names what a descriptor stands for, to calls that take only paths: a link that leads to that file, whatever names it has by now.
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

const statMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

func stat(fd int, st *unix.Statx_t) error {
	return unix.Statx(fd, "", unix.AT_EMPTY_PATH, statMask, st)
}
