package gateway

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// handle is an open file. Whatever uses its descriptor holds it: a guest that closes and reads at once must not read what has the descriptor's
// number next.
type handle struct {
	*fs.LoopbackFile
	file *os.File
}

func newHandle(fd int) *handle {
	f := os.NewFile(uintptr(fd), "")
	return &handle{fs.NewLoopbackFileFromOS(f), f}
}

func (h *handle) with(do func(fd int) syscall.Errno) (errno syscall.Errno) {
	errno = syscall.EBADF
	if raw, err := h.file.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { errno = do(int(fd)) })
	}
	return errno
}

// Read reads at once: go-fuse's own answers with a number of a descriptor that is read later.
func (h *handle) Read(_ context.Context, buf []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if off < 0 {
		return nil, syscall.EINVAL
	}
	n, err := h.file.ReadAt(buf, off)
	if err != nil && n == 0 && !errors.Is(err, io.EOF) {
		if errors.Is(err, os.ErrClosed) {
			return nil, syscall.EBADF
		}
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(buf[:n]), 0
}

// CopyFileRange copies between two files of the bind.
func (n *node) CopyFileRange(_ context.Context, in fs.FileHandle, offIn uint64, _ *fs.Inode, out fs.FileHandle, offOut, size, flags uint64) (count uint32, errno syscall.Errno) {
	from, ok := in.(*handle)
	to, ok2 := out.(*handle)
	if !ok || !ok2 {
		return 0, syscall.ENOTSUP
	}
	readAt, writeAt := int64(offIn), int64(offOut)
	errno = from.with(func(r int) syscall.Errno {
		return to.with(func(w int) syscall.Errno {
			n, err := unix.CopyFileRange(r, &readAt, w, &writeAt, int(min(size, 1<<30)), int(flags))
			count = uint32(max(n, 0))
			return fs.ToErrno(err)
		})
	})
	return count, errno
}

// passed are the flags of an open that mean something here. Where to append to, the guest's kernel knows; direct access wants buffers that are
// aligned; all others would do to the host's names what a guest has requests of its own for.
const passed = syscall.O_ACCMODE | syscall.O_TRUNC | syscall.O_SYNC | syscall.O_DSYNC | syscall.O_NOATIME

// Open opens regular files: see regular.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	switch n.Mode() & syscall.S_IFMT {
	case syscall.S_IFREG:
	case syscall.S_IFLNK:
		return nil, 0, syscall.ELOOP
	default:
		return nil, 0, syscall.ENXIO
	}
	fd, err := n.dir.open(n.path(), int(flags)&passed|syscall.O_NOCTTY, 0)
	if err == nil {
		err = orClose(fd, regular(fd))
	}
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	return newHandle(fd), 0, 0
}

func orClose(fd int, err error) error {
	if err != nil {
		unix.Close(fd)
	}
	return err
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	at, errno := n.directory()
	if errno != 0 {
		return nil, nil, 0, errno
	}
	defer at.close()
	fd, err := openat(at.fd, name, int(flags)&(passed|syscall.O_EXCL)|syscall.O_CREAT|syscall.O_NOFOLLOW|syscall.O_NOCTTY|syscall.O_CLOEXEC, mode&0o7777)
	if err == nil {
		err = orClose(fd, regular(fd))
	}
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	return n.opened(ctx, fd, out)
}

// Tmpfile makes a file without a name.
func (n *node) Tmpfile(ctx context.Context, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	fd, err := n.dir.open(n.path(), int(flags)&(passed&^syscall.O_TRUNC|syscall.O_EXCL)|unix.O_TMPFILE, mode&0o7777)
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	return n.opened(ctx, fd, out)
}

// opened is the answer with a new file.
func (n *node) opened(ctx context.Context, fd int, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if owner := ownerOfNew(ctx); owner != nil {
		unix.Fchown(fd, int(owner.Uid), int(owner.Gid))
	}
	var st unix.Statx_t
	if err := orClose(fd, stat(fd, &st)); err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	return n.adopt(ctx, &st, &out.Attr), newHandle(fd), 0, 0
}

func (n *node) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fd, err := n.dir.open(n.path(), syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	stream, errno := fs.NewLoopbackDirStreamFd(fd)
	return stream, 0, errno
}
