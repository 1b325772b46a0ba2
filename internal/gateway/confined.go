package gateway

import (
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// confined lets only names of one path element through: the kernel of an honest guest sends no others, and those of the
// nodes are all that paths on the host are made of. It lets no ioctl through: they are made for pointers and
// descriptors of a process, which is ours.
type confined struct{ fuse.RawFileSystem }

const errName = fuse.Status(syscall.EINVAL)

func plain(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.Contains(name, "/")
}

// Ioctl returns what a file system without any says.
func (confined) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return fuse.Status(syscall.ENOTTY)
}

// Lookup and the others below are the requests that carry names.
func (c confined) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if !plain(name) {
		return errName
	}
	return c.RawFileSystem.Lookup(cancel, h, name, out)
}

func (c confined) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	if !plain(name) {
		return errName
	}
	return c.RawFileSystem.Mknod(cancel, in, name, out)
}

func (c confined) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	if !plain(name) {
		return errName
	}
	return c.RawFileSystem.Mkdir(cancel, in, name, out)
}

func (c confined) Unlink(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	if !plain(name) {
		return errName
	}
	return c.RawFileSystem.Unlink(cancel, h, name)
}

func (c confined) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	if !plain(name) {
		return errName
	}
	return c.RawFileSystem.Rmdir(cancel, h, name)
}

func (c confined) Rename(cancel <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	if !plain(from) || !plain(to) {
		return errName
	}
	return c.RawFileSystem.Rename(cancel, in, from, to)
}

func (c confined) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	if !plain(name) {
		return errName
	}
	return c.RawFileSystem.Link(cancel, in, name, out)
}

func (c confined) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string,
	out *fuse.EntryOut) fuse.Status {
	if !plain(name) {
		return errName
	}
	return c.RawFileSystem.Symlink(cancel, h, target, name, out)
}

func (c confined) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if !plain(name) {
		return errName
	}
	return c.RawFileSystem.Create(cancel, in, name, out)
}
