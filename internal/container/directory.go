package container

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/erofs"
	"github.com/grange-project/grange/internal/rootpath"
)

// unpacked reads a directory that holds the root of a container, as unpacked.cern.ch has them.
type unpacked struct {
	ctx   context.Context
	w     *erofs.Writer
	t     *tree
	limit int64
	alive func()
	links map[[2]uint64]*erofs.Node // by device and inode, of files with several names
}

// directory writes the file system that a directory holds. No symbolic link in it is followed.
func directory(ctx context.Context, dir string, to *os.File, o Options) error {
	open := rootpath.Open
	if o.Resolve == nil {
		open = func(name string, flags int) (*os.File, error) { return os.OpenFile(name, flags, 0) }
	}
	root, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return sourceError(Reference{text: schemeDirectory + dir}, true, err)
	}
	out, release, err := o.turn(ctx, to)
	if err != nil {
		root.Close()
		return err
	}
	defer release()
	u := &unpacked{ctx: ctx, w: erofs.NewWriter(out), t: newTree(), limit: o.Limit, alive: out.alive,
		links: map[[2]uint64]*erofs.Node{}}
	tree, err := u.dir(root, 0)
	if err != nil {
		return err
	}
	_, err = u.w.Finish(tree, 0)
	return err
}

// dir reads a directory, and closes it.
func (u *unpacked) dir(d *os.File, depth int) (*erofs.Node, error) {
	defer d.Close()
	if depth > mostDepth {
		return nil, broken("%.300s has more than %d parts", d.Name(), mostDepth)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return nil, u.failed(d.Name(), err)
	}
	n := nodeOfStat(&st)
	n.Children = map[string]*erofs.Node{}
	var err error
	if n.Xattrs, err = u.xattrs(d); err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(mostEntries + 1)
	if err != nil && len(names) == 0 && err != io.EOF {
		return nil, u.failed(d.Name(), err)
	}
	slices.Sort(names) // contents come in the order of names, whatever the file system's is
	for _, name := range names {
		if err := context.Cause(u.ctx); err != nil {
			return nil, err
		}
		c, err := u.file(d, name, depth)
		if err != nil {
			return nil, err
		}
		if c != nil {
			n.Children[name] = c
		}
	}
	return n, nil
}

// file reads one entry of a directory; nil: it is not taken over.
func (u *unpacked) file(d *os.File, name string, depth int) (*erofs.Node, error) {
	full := path.Join(d.Name(), name)
	if err := u.t.count(name); err != nil {
		return nil, err
	}
	u.alive()
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, u.failed(full, err)
	}
	key := [2]uint64{st.Dev, st.Ino}
	if n := u.links[key]; n != nil {
		return n, nil
	}
	n := nodeOfStat(&st)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, u.failed(full, err)
		}
		return u.dir(os.NewFile(uintptr(fd), full), depth+1)
	case unix.S_IFLNK:
		b := make([]byte, erofs.MaxTarget+1)
		size, err := unix.Readlinkat(int(d.Fd()), name, b)
		if err != nil || size == 0 || size > erofs.MaxTarget {
			return nil, u.failed(full, cmp.Or(err, errors.New("its target is too long")))
		}
		n.Target = string(b[:size])
		if err := u.t.count(n.Target); err != nil {
			return nil, err
		}
	case unix.S_IFREG:
		if err := u.regular(d, name, full, n, &st); err != nil {
			return nil, err
		}
	case unix.S_IFIFO:
	default:
		return nil, nil // sockets are of programs that ran elsewhere, and devices the VM's own
	}
	if st.Nlink > 1 {
		u.links[key] = n
	}
	return n, nil
}

func (u *unpacked) regular(d *os.File, name, full string, n *erofs.Node, st *unix.Stat_t) error {
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return u.failed(full, err)
	}
	f := os.NewFile(uintptr(fd), full)
	defer f.Close()
	var opened unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil || opened.Ino != st.Ino || opened.Mode != st.Mode {
		return u.failed(full, cmp.Or(err, errors.New("it changed while it was read")))
	}
	if n.Xattrs, err = u.xattrs(f); err != nil {
		return err
	}
	if st.Size > u.limit-u.w.Written() {
		return tooLarge(u.limit)
	}
	in := &unpackedFile{u, f}
	if err := u.w.Content(n, in, st.Size); err != nil {
		return u.failed(full, err)
	}
	return nil
}

// unpackedFile ends with its context, and tells that it goes on.
type unpackedFile struct {
	u *unpacked
	f *os.File
}

func (f *unpackedFile) Read(b []byte) (int, error) {
	if err := context.Cause(f.u.ctx); err != nil {
		return 0, err
	}
	n, err := f.f.Read(b[:min(len(b), 1<<20)])
	f.u.alive()
	return n, err
}

// nodeOfStat takes over what stat(2) says, but for the type of what a VM has itself.
func nodeOfStat(st *unix.Stat_t) *erofs.Node {
	n := &erofs.Node{Mode: st.Mode & (erofs.TypeMask | 0o7777), UID: st.Uid, GID: st.Gid}
	if st.Mtim.Sec > 0 && st.Mtim.Sec < math.MaxInt64 {
		n.MTime, n.Nano = st.Mtim.Sec, uint32(st.Mtim.Nsec)
	}
	return n
}

// xattrs reads the attributes of an open file; a file system may have none.
func (u *unpacked) xattrs(f *os.File) (map[string]string, error) {
	b := make([]byte, erofs.MaxXattrs)
	size, err := unix.Flistxattr(int(f.Fd()), b)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	} else if err != nil {
		return nil, u.failed(f.Name(), err)
	}
	var all map[string]string
	total := 0
	for name := range strings.SplitSeq(string(b[:size]), "\x00") {
		if name == "" || !keptXattr(name) {
			continue
		}
		value := make([]byte, erofs.MaxXattrs)
		n, err := unix.Fgetxattr(int(f.Fd()), name, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		} else if err != nil {
			return nil, u.failed(f.Name(), err)
		}
		if total += len(name) + n + 8; total > erofs.MaxXattrs-64 {
			return nil, broken("the attributes of %.300s have %d bytes", f.Name(), total)
		}
		if all == nil {
			all = map[string]string{}
		}
		all[name] = string(value[:n])
		if err := u.t.count(name, all[name]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// failed is a file that cannot be read.
func (u *unpacked) failed(name string, err error) error {
	if cause := context.Cause(u.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	return sourceError(Reference{text: name}, false, err)
}
