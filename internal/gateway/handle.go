package gateway

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// handle is an open file. Whatever uses its descriptor holds it: a guest that closes and reads at once must not read
// what has the descriptor's number next.
type handle struct {
	*fs.LoopbackFile
	file *os.File
	node *node
}

func (n *node) newHandle(fd int) *handle {
	f := os.NewFile(uintptr(fd), "")
	h := &handle{fs.NewLoopbackFileFromOS(f), f, n}
	if n.is(fd) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.handles = append(n.handles, h)
	}
	return h
}

// is reports whether fd is the file that the guest's kernel takes the node for: another may have come by its name.
func (n *node) is(fd int) bool {
	var st unix.Statx_t
	return stat(fd, &st) == nil && n.fileID(&st) == n.StableAttr().Ino && born(&st) == n.StableAttr().Gen
}

// again is a descriptor of the node where it is open, and otherwise -1.
func (n *node) again() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	fd := -1
	if len(n.handles) > 0 {
		n.handles[0].with(func(open int) (errno syscall.Errno) {
			fd, _ = unix.FcntlInt(uintptr(open), unix.F_DUPFD_CLOEXEC, 0)
			return 0
		})
	}
	return fd
}

// Release closes the file.
func (h *handle) Release(ctx context.Context) syscall.Errno {
	h.node.mu.Lock()
	h.node.handles = slices.DeleteFunc(h.node.handles, func(other *handle) bool { return other == h })
	h.node.mu.Unlock()
	return h.LoopbackFile.Release(ctx)
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
func (n *node) CopyFileRange(_ context.Context, in fs.FileHandle, offIn uint64, _ *fs.Inode, out fs.FileHandle, offOut,
	size, flags uint64) (count uint32, errno syscall.Errno) {
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

// passed are the flags of an open that mean something here. Where to append to, the guest's kernel knows; direct access
// wants buffers that are aligned; all others would do to the host's names what a guest has requests of its own for.
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
	p, errno := n.itself()
	if errno != 0 {
		return nil, 0, errno
	}
	defer p.close()
	fd, err := n.dir.openFile(p.fd, int(flags)&passed)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	return n.newHandle(fd), 0, 0
}

// openFile opens the regular file that fd stands for, O_PATH: a pipe or a device in its place would wait, or do who
// knows what, when it is opened.
func (b *bound) openFile(fd, flags int) (int, error) {
	if err := regular(fd); err != nil {
		return -1, err
	}
	file, err := reopen(fd, flags)
	if err == nil && flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		err = orClose(file, b.disarm(file))
	}
	return file, err
}

func orClose(fd int, err error) error {
	if err != nil {
		unix.Close(fd)
	}
	return err
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode,
	fs.FileHandle, uint32, syscall.Errno) {
	at, errno := n.directory()
	if errno != 0 {
		return nil, nil, 0, errno
	}
	defer at.close()
	fd, err := n.dir.createFile(at.fd, name, int(flags), n.dir.mode(mode&0o7777))
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	return n.opened(ctx, fd, out)
}

// createFile makes a file, or opens the one that is there as any other.
func (b *bound) createFile(at int, name string, flags int, mode uint32) (int, error) {
	for tries := 0; ; tries++ {
		fd, err := openat(at, name,
			flags&passed|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW|syscall.O_NOCTTY|syscall.O_CLOEXEC, mode)
		if err != unix.EEXIST || flags&syscall.O_EXCL != 0 {
			return fd, err
		}
		there, err := b.openName(at, name)
		if err == unix.ENOENT && tries < 10 { // it was there a moment ago
			continue
		}
		if err != nil {
			return -1, err
		}
		defer unix.Close(there)
		return b.openFile(there, flags&passed)
	}
}

// Tmpfile makes a file without a name.
func (n *node) Tmpfile(ctx context.Context, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32,
	syscall.Errno) {
	at, errno := n.directory()
	if errno != 0 {
		return nil, nil, 0, errno
	}
	defer at.close()
	fd, err := openat(at.fd, ".", int(flags)&(passed&^syscall.O_TRUNC|syscall.O_EXCL)|unix.O_TMPFILE|unix.O_CLOEXEC,
		n.dir.mode(mode&0o7777))
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	return n.opened(ctx, fd, out)
}

// opened is the answer with a new file.
func (n *node) opened(ctx context.Context, fd int, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32,
	syscall.Errno) {
	if owner := ownerOfNew(ctx); owner != nil {
		unix.Fchown(fd, int(owner.Uid), int(owner.Gid))
	}
	var st unix.Statx_t
	if err := orClose(fd, stat(fd, &st)); err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	file := n.adopt(ctx, &st, &out.Attr)
	return file, file.Operations().(*node).newHandle(fd), 0, 0
}

func (n *node) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	at, errno := n.directory()
	if errno != 0 {
		return nil, 0, errno
	}
	defer at.close()
	fd, err := openat(at.fd, ".", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	stream, errno := fs.NewLoopbackDirStreamFd(fd)
	return stream, 0, errno
}
