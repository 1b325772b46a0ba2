package gateway

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// reader lets nothing through that changes a file. The guest mounts read-only as well; this one does not trust the
// guest.
type reader struct{ fuse.RawFileSystem }

const errReadOnly = fuse.Status(syscall.EROFS)

func (reader) SetAttr(<-chan struct{}, *fuse.SetAttrIn, *fuse.AttrOut) fuse.Status {
	return errReadOnly
}
func (reader) Mknod(<-chan struct{}, *fuse.MknodIn, string, *fuse.EntryOut) fuse.Status {
	return errReadOnly
}
func (reader) Mkdir(<-chan struct{}, *fuse.MkdirIn, string, *fuse.EntryOut) fuse.Status {
	return errReadOnly
}
func (reader) Unlink(<-chan struct{}, *fuse.InHeader, string) fuse.Status { return errReadOnly }
func (reader) Rmdir(<-chan struct{}, *fuse.InHeader, string) fuse.Status  { return errReadOnly }
func (reader) Rename(<-chan struct{}, *fuse.RenameIn, string, string) fuse.Status {
	return errReadOnly
}
func (reader) Link(<-chan struct{}, *fuse.LinkIn, string, *fuse.EntryOut) fuse.Status {
	return errReadOnly
}
func (reader) Symlink(<-chan struct{}, *fuse.InHeader, string, string, *fuse.EntryOut) fuse.Status {
	return errReadOnly
}
func (reader) SetXAttr(<-chan struct{}, *fuse.SetXAttrIn, string, []byte) fuse.Status {
	return errReadOnly
}
func (reader) RemoveXAttr(<-chan struct{}, *fuse.InHeader, string) fuse.Status { return errReadOnly }
func (reader) Create(<-chan struct{}, *fuse.CreateIn, string, *fuse.CreateOut) fuse.Status {
	return errReadOnly
}
func (reader) Write(<-chan struct{}, *fuse.WriteIn, []byte) (uint32, fuse.Status) {
	return 0, errReadOnly
}
func (reader) CopyFileRange(<-chan struct{}, *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	return 0, errReadOnly
}
func (reader) Fallocate(<-chan struct{}, *fuse.FallocateIn) fuse.Status { return errReadOnly }

// Open refuses to open for writing, and to cut a file short by opening it.
func (r reader) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.Flags&syscall.O_ACCMODE != syscall.O_RDONLY || in.Flags&syscall.O_TRUNC != 0 {
		return errReadOnly
	}
	return r.RawFileSystem.Open(cancel, in, out)
}

// Tmpfile, Writev and Ioctl change files too; reader_test.go names every method that may pass.
func (reader) Tmpfile(<-chan struct{}, *fuse.CreateIn, *fuse.CreateOut) fuse.Status {
	return errReadOnly
}
func (reader) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, errReadOnly
}
func (reader) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return errReadOnly
}
