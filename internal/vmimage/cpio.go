package vmimage

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// tree is the content of an initramfs: paths without a leading slash.
type tree map[string]node

// node is a directory, a regular file or a symbolic link, by mode's type bits. Everything belongs to root.
type node struct {
	mode fs.FileMode
	data []byte // a link's target
}

// dir adds a directory.
func (t tree) dir(p string, mode fs.FileMode) { t[p] = node{mode: fs.ModeDir | mode} }

// file adds a regular file.
func (t tree) file(p string, mode fs.FileMode, data []byte) { t[p] = node{mode: mode, data: data} }

// link adds a symbolic link.
func (t tree) link(p, target string) { t[p] = node{mode: fs.ModeSymlink | 0o777, data: []byte(target)} }

// writeCPIO writes t as a "newc" archive, as the kernel's Documentation/driver-api/early-userspace/buffer-format.rst
// defines. The same tree gives the same bytes: entries are sorted, owners, times and inode numbers fixed.
func (t tree) writeCPIO(w io.Writer) error {
	for p := range maps.Clone(t) { // the kernel makes no missing parents, it silently drops the file
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			if _, ok := t[d]; !ok {
				t.dir(d, 0o755)
			}
		}
	}
	// Parents sort before their children when compared by path elements; the slash must come before every other byte.
	names := slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	})
	for i, p := range names {
		n := t[p]
		links := 1
		if n.mode.IsDir() {
			links = 2
		}
		if err := cpioEntry(w, i+1, links, p, unixMode(n.mode), n.data); err != nil {
			return err
		}
	}
	return cpioEntry(w, 0, 1, "TRAILER!!!", 0, nil)
}

func cpioEntry(w io.Writer, inode, links int, name string, mode uint32, data []byte) error {
	if len(data) > 1<<32-1 {
		return fmt.Errorf("%s: %d bytes do not fit a cpio archive", name, len(data))
	}
	var b strings.Builder
	// magic ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
	fmt.Fprintf(&b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00", inode, mode, 0, 0, links, 0,
		len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	b.WriteString(pad4(b.Len()))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	_, err := io.WriteString(w, pad4(len(data)))
	return err
}

func pad4(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }

func unixMode(m fs.FileMode) uint32 {
	u := uint32(m.Perm())
	switch {
	case m.IsDir():
		u |= 0o040000
	case m&fs.ModeSymlink != 0:
		u |= 0o120000
	default:
		u |= 0o100000
	}
	if m&fs.ModeSticky != 0 {
		u |= 0o1000
	}
	return u
}
