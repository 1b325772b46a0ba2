package gateway

import (
	"context"
	"os"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A guest's files stay on the host, where others can run them: unless the bind says so, none of them runs there with
// the rights of its owner, and none is a device. POSIX lets a system ignore set-ID bits of a file's mode; a guest sees
// that they are not there.

const setID = unix.S_ISUID | unix.S_ISGID

// mode is the mode of a new file that is no directory. (A directory's set-group-ID bit gives nobody rights: it says
// whose new files are.)
func (b *bound) mode(mode uint32) uint32 {
	if b.SetID {
		return mode
	}
	return mode &^ setID
}

func device(mode uint32) bool {
	kind := mode & unix.S_IFMT
	return kind == unix.S_IFCHR || kind == unix.S_IFBLK
}

// chmod changes the mode of what fd stands for, as far as the bind lets it.
func (b *bound) chmod(fd int, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		mode = b.mode(mode)
	}
	return unix.Chmod(procPath(fd), mode)
}

// mayGive refuses to change who may use a device of the host.
func (b *bound) mayGive(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || b.Devices || !device(st.Mode) || st.Rdev == 0 {
		return err
	}
	return unix.EPERM
}

// disarm takes the set-ID bits from a file that is open for writing, which the kernel does by itself at the first write
// of anybody but root.
func (b *bound) disarm(fd int) error {
	if b.SetID || os.Geteuid() != 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&setID == 0 {
		return nil
	}
	err := unix.Fchmod(fd, st.Mode&0o7777&^setID)
	if err == unix.EPERM { // of a network's file system where our root is nobody: its server does it at the first write
		return nil
	}
	return err
}

// privileged reports whether an attribute of a file is one by which the host's kernel gives rights: capabilities,
// labels.
func (b *bound) privileged(attr string) bool {
	return !b.SetID && (strings.HasPrefix(attr, "security.") || strings.HasPrefix(attr, "trusted."))
}

// Setattr changes an open file.
func (h *handle) Setattr(ctx context.Context, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	allowed := *in
	allowed.Mode = h.node.dir.mode(in.Mode)
	return h.LoopbackFile.Setattr(ctx, &allowed, out)
}

var _ fs.FileSetattrer = (*handle)(nil)
