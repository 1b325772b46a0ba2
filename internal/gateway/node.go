package gateway

import (
	"context"
	"os"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// node is a file that the guest's kernel knows. It is found again by the names that led to it when a request comes, so
// that a guest that knows a million files costs no descriptors. Names are followed through directories only; see
// Directory.open. Attributes of a file that is open are those of what is open; see inode.
type node struct {
	fs.Inode
	dir *bound

	mu      sync.Mutex
	handles []*handle
}

// Every operation that a node has, so that one whose form changes with a later go-fuse is not lost without a word.
var _ interface {
	fs.NodeStatfser
	fs.NodeLookuper
	fs.NodeMknoder
	fs.NodeMkdirer
	fs.NodeSymlinker
	fs.NodeLinker
	fs.NodeUnlinker
	fs.NodeRmdirer
	fs.NodeRenamer
	fs.NodeReadlinker
	fs.NodeOpener
	fs.NodeCreater
	fs.NodeTmpfiler
	fs.NodeOpendirHandler
	fs.NodeAccesser
	fs.NodeGetattrer
	fs.NodeStatxer
	fs.NodeSetattrer
	fs.NodeGetxattrer
	fs.NodeSetxattrer
	fs.NodeListxattrer
	fs.NodeRemovexattrer
	fs.NodeCopyFileRanger
} = (*node)(nil)

// place is an open node, O_PATH: good for *at calls, and for asking about the node itself.
type place struct {
	fd   int
	kept bool // it is the bind's own
}

func (p place) close() {
	if !p.kept {
		unix.Close(p.fd)
	}
}

// itself opens the node by its name.
func (n *node) itself() (place, syscall.Errno) { return n.open(0) }

// inode opens the node to ask about it: what is open of it where it is, whatever has its name by now.
func (n *node) inode() (place, syscall.Errno) {
	if fd := n.again(); fd >= 0 {
		return place{fd, false}, 0
	}
	return n.open(0)
}

// directory opens the node to use names in it. What is mounted on demand is mounted by this, and not by looking at it.
func (n *node) directory() (place, syscall.Errno) { return n.open(unix.O_DIRECTORY) }

func (n *node) open(flags int) (place, syscall.Errno) {
	if n.IsRoot() {
		return place{n.dir.fd, true}, 0
	}
	fd, err := n.dir.open(n.path(), flags)
	return place{fd, false}, fs.ToErrno(err)
}

func (n *node) path() string { return n.Path(n.Root()) }

// child makes the answer that a name of the directory at has led to a file, or to one that is hidden.
func (n *node) child(ctx context.Context, at place, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	var st unix.Statx_t
	if err := unix.Statx(at.fd, name, unix.AT_SYMLINK_NOFOLLOW, statMask, &st); err != nil {
		return nil, fs.ToErrno(err)
	}
	if number(&st) == n.dir.dev && !n.dir.OneFileSystem {
		return n.adopt(ctx, &st, &out.Attr), 0
	}
	fd, err := n.dir.openName(at.fd, name)
	switch {
	case err == errKernelFS || err == errOtherFS:
		return n.hide(ctx, &st, &out.Attr), 0
	case err != nil:
		return nil, fs.ToErrno(err)
	}
	if err := orClose(fd, stat(fd, &st)); err != nil {
		return nil, fs.ToErrno(err)
	}
	unix.Close(fd)
	return n.adopt(ctx, &st, &out.Attr), 0
}

// adopt makes a file known: hard links are one node, a number that is used again is another.
func (n *node) adopt(ctx context.Context, st *unix.Statx_t, out *fuse.Attr) *fs.Inode {
	fill(out, st)
	return n.NewInode(ctx, &node{dir: n.dir}, fs.StableAttr{Mode: uint32(st.Mode), Gen: born(st), Ino: n.fileID(st)})
}

// born distinguishes a file from one that had its number before.
func born(st *unix.Statx_t) uint64 {
	if st.Mask&unix.STATX_BTIME == 0 || st.Btime.Sec < 0 {
		return 1
	}
	return max(1, uint64(st.Btime.Sec)*1e9+uint64(st.Btime.Nsec)) &^ hiddenGen
}

// fileID is the number of a file. In a bind of several file systems, that of the device tells files of the same number
// apart.
func (n *node) fileID(st *unix.Statx_t) uint64 {
	dev := number(st) ^ n.dir.dev
	return st.Ino ^ (dev<<32 | dev>>32)
}

func fill(out *fuse.Attr, st *unix.Statx_t) {
	*out = fuse.Attr{
		Ino: st.Ino, Size: st.Size, Blocks: st.Blocks, Blksize: st.Blksize, Mode: uint32(st.Mode), Nlink: st.Nlink,
		Owner: fuse.Owner{Uid: st.Uid, Gid: st.Gid}, Rdev: uint32(unix.Mkdev(st.Rdev_major, st.Rdev_minor)),
		Atime: uint64(st.Atime.Sec), Atimensec: st.Atime.Nsec, Mtime: uint64(st.Mtime.Sec), Mtimensec: st.Mtime.Nsec,
		Ctime: uint64(st.Ctime.Sec), Ctimensec: st.Ctime.Nsec,
	}
}

// Lookup and the others below are the requests of package fs that have the same names.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	at, errno := n.directory()
	if errno != 0 {
		return nil, errno
	}
	defer at.close()
	return n.child(ctx, at, name, out)
}

// create makes something in the directory, gives it to whom it is made for, and looks it up.
func (n *node) create(ctx context.Context, name string, out *fuse.EntryOut, do func(at int) error) (*fs.Inode,
	syscall.Errno) {
	at, errno := n.directory()
	if errno != 0 {
		return nil, errno
	}
	defer at.close()
	if err := do(at.fd); err != nil {
		return nil, fs.ToErrno(err)
	}
	if owner := ownerOfNew(ctx); owner != nil {
		unix.Fchownat(at.fd, name, int(owner.Uid), int(owner.Gid), unix.AT_SYMLINK_NOFOLLOW)
	}
	return n.child(ctx, at, name, out)
}

// ownerOfNew is the guest's user, where we may give files away; nil: what we make is ours.
func ownerOfNew(ctx context.Context) *fuse.Owner {
	caller, ok := fuse.FromContext(ctx)
	if !ok || os.Getuid() != 0 {
		return nil
	}
	return &caller.Owner
}

func (n *node) Mknod(ctx context.Context, name string, mode, rdev uint32, out *fuse.EntryOut) (*fs.Inode,
	syscall.Errno) {
	if device(mode) && rdev != 0 && !n.dir.Devices { // 0:0 is no device: overlayfs marks what was deleted with it
		return nil, syscall.EPERM
	}
	mode = n.dir.mode(mode)
	return n.create(ctx, name, out, func(at int) error { return unix.Mknodat(at, name, mode, int(rdev)) })
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.create(ctx, name, out, func(at int) error { return unix.Mkdirat(at, name, mode&0o7777) })
}

func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.create(ctx, name, out, func(at int) error { return unix.Symlinkat(target, at, name) })
}

// Link names the file once more. One that has no name at all has no path to link it from.
func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode,
	syscall.Errno) {
	file, ok := target.(*node)
	if !ok || file.dir != n.dir {
		return nil, syscall.EXDEV
	}
	oldName, parent := file.Parent()
	if parent == nil {
		return nil, syscall.EXDEV
	}
	from, errno := parent.Operations().(*node).directory()
	if errno != 0 {
		return nil, errno
	}
	defer from.close()
	at, errno := n.directory()
	if errno != 0 {
		return nil, errno
	}
	defer at.close()
	if err := unix.Linkat(from.fd, oldName, at.fd, name, 0); err != nil { // a link itself, not what it names
		return nil, fs.ToErrno(err)
	}
	return n.child(ctx, at, name, out)
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno { return n.remove(name, 0) }

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return n.remove(name, unix.AT_REMOVEDIR)
}

func (n *node) remove(name string, flags int) syscall.Errno {
	at, errno := n.directory()
	if errno != 0 {
		return errno
	}
	defer at.close()
	return fs.ToErrno(unix.Unlinkat(at.fd, name, flags))
}

func (n *node) Rename(_ context.Context, name string, newParent fs.InodeEmbedder, newName string,
	flags uint32) syscall.Errno {
	to, ok := newParent.(*node)
	if !ok || to.dir != n.dir {
		return syscall.EXDEV
	}
	from, errno := n.directory()
	if errno != 0 {
		return errno
	}
	defer from.close()
	if to == n {
		return fs.ToErrno(unix.Renameat2(from.fd, name, from.fd, newName, uint(flags)))
	}
	at, errno := to.directory()
	if errno != 0 {
		return errno
	}
	defer at.close()
	return fs.ToErrno(unix.Renameat2(from.fd, name, at.fd, newName, uint(flags)))
}

func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	p, errno := n.itself()
	if errno != 0 {
		return nil, errno
	}
	defer p.close()
	target := make([]byte, unix.PathMax)
	size, err := unix.Readlinkat(p.fd, "", target)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	return target[:size], 0
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	p, errno := n.itself()
	if errno != 0 {
		return errno
	}
	defer p.close()
	var s syscall.Statfs_t
	if err := syscall.Fstatfs(p.fd, &s); err != nil {
		return fs.ToErrno(err)
	}
	out.FromStatfsT(&s)
	return 0
}
