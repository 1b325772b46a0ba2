package gateway

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Getattr asks an open file where there is one: it may have no name any more.
func (n *node) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if h, ok := f.(*handle); ok {
		return h.Getattr(ctx, out)
	}
	p, errno := n.inode()
	if errno != 0 {
		return errno
	}
	defer p.close()
	return getattr(p.fd, out)
}

func getattr(fd int, out *fuse.AttrOut) syscall.Errno {
	var st unix.Statx_t
	if err := stat(fd, &st); err != nil {
		return fs.ToErrno(err)
	}
	fill(&out.Attr, &st)
	return 0
}

func (n *node) Statx(_ context.Context, f fs.FileHandle, flags, mask uint32, out *fuse.StatxOut) syscall.Errno {
	flags = flags&(unix.AT_STATX_FORCE_SYNC|unix.AT_STATX_DONT_SYNC) | unix.AT_EMPTY_PATH
	ask := func(fd int) syscall.Errno {
		var st unix.Statx_t
		if err := unix.Statx(fd, "", int(flags), int(mask), &st); err != nil {
			return fs.ToErrno(err)
		}
		out.FromStatx(&st)
		return 0
	}
	if h, ok := f.(*handle); ok {
		return h.with(ask)
	}
	p, errno := n.inode()
	if errno != 0 {
		return errno
	}
	defer p.close()
	return ask(p.fd)
}

// Access says what an open would: whoever asks in the guest, files are opened as us.
func (n *node) Access(_ context.Context, mask uint32) syscall.Errno {
	if mask&unix.W_OK != 0 && n.dir.ReadOnly {
		return syscall.EROFS
	}
	p, errno := n.itself()
	if errno != 0 {
		return errno
	}
	defer p.close()
	return fs.ToErrno(unix.Faccessat(unix.AT_FDCWD, procPath(p.fd), mask&7, 0))
}

// Setattr changes an open file where the request names one.
func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if h, ok := f.(*handle); ok {
		return h.Setattr(ctx, in, out)
	}
	find := n.inode
	if in.Valid&fuse.FATTR_SIZE != 0 { // truncate(2): that of a descriptor names its file
		find = n.itself
	}
	p, errno := find()
	if errno != 0 {
		return errno
	}
	defer p.close()
	if err := n.dir.setattr(p.fd, in); err != nil {
		return fs.ToErrno(err)
	}
	return getattr(p.fd, out)
}

func (b *bound) setattr(fd int, in *fuse.SetAttrIn) error {
	if in.Valid&(fuse.FATTR_MODE|fuse.FATTR_UID|fuse.FATTR_GID) != 0 {
		if err := b.mayGive(fd); err != nil {
			return err
		}
	}
	if mode, ok := in.GetMode(); ok {
		if err := b.chmod(fd, mode&0o7777); err != nil {
			return err
		}
	}
	uid, setUID := in.GetUID()
	gid, setGID := in.GetGID()
	if setUID || setGID {
		owner := func(id uint32, set bool) int {
			if set {
				return int(id)
			}
			return -1
		}
		if err := unix.Fchownat(fd, "", owner(uid, setUID), owner(gid, setGID), unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if size, ok := in.GetSize(); ok { // before the times, which it changes
		if err := b.truncate(fd, size); err != nil {
			return err
		}
	}
	times := []unix.Timespec{newTime(in, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, in.Atime, in.Atimensec),
		newTime(in, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, in.Mtime, in.Mtimensec)}
	if times[0].Nsec == unix.UTIME_OMIT && times[1].Nsec == unix.UTIME_OMIT {
		return nil
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, procPath(fd), times, 0)
}

// newTime is a time of a request as utimensat takes it: the time of now may be set by all who may write the file, every
// other by its owner.
func newTime(in *fuse.SetAttrIn, set, now uint32, sec uint64, nsec uint32) unix.Timespec {
	switch {
	case in.Valid&set == 0:
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	case in.Valid&now != 0:
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	}
	return unix.Timespec{Sec: int64(sec), Nsec: int64(nsec)}
}

// truncate cuts exactly the file that fd is.
func (b *bound) truncate(fd int, size uint64) error {
	file, err := b.openFile(fd, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	return unix.Ftruncate(file, int64(size))
}

// regular refuses what is no file with content. A guest's kernel opens pipes, sockets and devices itself and never asks
// for them.
func regular(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return unix.EISDIR
	case unix.S_IFLNK:
		return unix.ELOOP
	}
	return unix.ENXIO
}

// xattr does something to a file's extended attributes. Those of a link are its own: procPath leads to the link, and
// ends there.
func (n *node) xattr(do func(path string) (int, error)) (uint32, syscall.Errno) {
	p, errno := n.inode()
	if errno != 0 {
		return 0, errno
	}
	defer p.close()
	size, err := do(procPath(p.fd))
	return uint32(max(size, 0)), fs.ToErrno(err)
}

func (n *node) Getxattr(_ context.Context, attr string, dest []byte) (uint32, syscall.Errno) {
	return n.xattr(func(path string) (int, error) { return unix.Getxattr(path, attr, dest) })
}

func (n *node) Listxattr(_ context.Context, dest []byte) (uint32, syscall.Errno) {
	return n.xattr(func(path string) (int, error) { return unix.Listxattr(path, dest) })
}

func (n *node) Setxattr(_ context.Context, attr string, data []byte, flags uint32) syscall.Errno {
	if n.dir.privileged(attr) {
		return syscall.EPERM
	}
	_, errno := n.xattr(func(path string) (int, error) { return 0, unix.Setxattr(path, attr, data, int(flags)) })
	return errno
}

func (n *node) Removexattr(_ context.Context, attr string) syscall.Errno {
	if n.dir.privileged(attr) {
		return syscall.EPERM
	}
	_, errno := n.xattr(func(path string) (int, error) { return 0, unix.Removexattr(path, attr) })
	return errno
}
