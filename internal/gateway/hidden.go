package gateway

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// hidden stands in a directory for what a guest is not shown: an empty directory where it is one, and otherwise an
// empty file that cannot be opened. So programs that walk a tree (find, du, tar) walk past it without an error.
type hidden struct{ fs.Inode }

var _ interface {
	fs.NodeGetattrer
	fs.NodeSetattrer
	fs.NodeOpener
} = (*hidden)(nil)

// hiddenGen makes hidden files others than all that are not: the same one may be seen at another place, where a guest
// may have it.
const hiddenGen = 1 << 63

func (n *node) hide(ctx context.Context, st *unix.Statx_t, out *fuse.Attr) *fs.Inode {
	kind := uint32(syscall.S_IFREG)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		kind = syscall.S_IFDIR
	}
	child := n.NewInode(ctx, &hidden{}, fs.StableAttr{Mode: kind, Gen: hiddenGen | born(st), Ino: n.fileID(st)})
	hiddenAttr(out, kind)
	return child
}

func hiddenAttr(out *fuse.Attr, kind uint32) {
	*out = fuse.Attr{Mode: kind, Nlink: 1}
	if kind == syscall.S_IFDIR {
		out.Mode, out.Nlink = kind|0o555, 2
	}
}

// Getattr and the others below are the requests of package fs that have the same names.
func (h *hidden) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	hiddenAttr(&out.Attr, h.Mode()&syscall.S_IFMT)
	return 0
}

func (h *hidden) Setattr(context.Context, fs.FileHandle, *fuse.SetAttrIn, *fuse.AttrOut) syscall.Errno {
	return errKernelFS
}

func (h *hidden) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, 0, errKernelFS
}
