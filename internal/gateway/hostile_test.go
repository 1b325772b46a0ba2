package gateway

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// kernel is a guest's, with none of a kernel's manners: it sends what it likes.
type kernel struct {
	raw fuse.RawFileSystem
	me  fuse.Caller
}

func (k kernel) head(node uint64) fuse.InHeader { return fuse.InHeader{NodeId: node, Caller: k.me} }

// lookup gives 0 where there is no such name.
func (k kernel) lookup(parent uint64, names ...string) uint64 {
	var out fuse.EntryOut
	for _, name := range names {
		h := k.head(parent)
		if !k.raw.Lookup(nil, &h, name, &out).Ok() {
			return 0
		}
		parent = out.NodeId
	}
	return parent
}

func (k kernel) symlink(t *testing.T, target, name string) uint64 {
	t.Helper()
	h, out := k.head(1), fuse.EntryOut{}
	if s := k.raw.Symlink(nil, &h, target, name, &out); !s.Ok() {
		t.Fatal(s)
	}
	return out.NodeId
}

const (
	secretSize = 4711
	secretAttr = "an attribute"
)

// outside makes a directory that no bind shows, with everything that a request could want.
func outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "empty"), 0o755))
	must(os.MkdirAll(filepath.Join(dir, "in", "deeper"), 0o755))
	for _, name := range []string{"file", "in/file", "in/deeper/file"} {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, bytes.Repeat([]byte("s"), secretSize), 0o640))
		must(os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)))
		must(unix.Setxattr(path, "user.secret", []byte(secretAttr), 0))
	}
	must(os.Symlink("secret-target", filepath.Join(dir, "link")))
	return dir
}

// picture is all of a directory that a request could change.
func picture(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return err
		}
		names := make([]byte, 1024)
		n, _ := unix.Llistxattr(path, names)
		all = append(all, fmt.Sprintf("%s %o %d:%d %d links, %d bytes, %v %q", path, s.Mode, s.Uid, s.Gid, s.Nlink,
			s.Size, s.Mtim, names[:max(n, 0)]))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// request is one that a hostile guest sends about a directory and a file. What it returns has come back from the host.
type request struct {
	name string
	send func(k kernel, dir, file uint64) any
}

var requests = []request{
	{"LOOKUP", func(k kernel, dir, _ uint64) any {
		var out fuse.EntryOut
		h := k.head(dir)
		k.raw.Lookup(nil, &h, "file", &out)
		return out.Attr.Size
	}},
	{"GETATTR", func(k kernel, _, file uint64) any {
		var out fuse.AttrOut
		k.raw.GetAttr(nil, &fuse.GetAttrIn{InHeader: k.head(file)}, &out)
		return out.Attr.Size
	}},
	{"STATX", func(k kernel, _, file uint64) any {
		var out fuse.StatxOut
		k.raw.Statx(nil, &fuse.StatxIn{InHeader: k.head(file), SxMask: unix.STATX_BASIC_STATS}, &out)
		return out.Statx.Size
	}},
	{"MKNOD", func(k kernel, dir, _ uint64) any {
		return k.raw.Mknod(nil, &fuse.MknodIn{InHeader: k.head(dir), Mode: syscall.S_IFREG | 0o644}, "new",
			&fuse.EntryOut{})
	}},
	{"MKDIR", func(k kernel, dir, _ uint64) any {
		return k.raw.Mkdir(nil, &fuse.MkdirIn{InHeader: k.head(dir), Mode: 0o755}, "new", &fuse.EntryOut{})
	}},
	{"SYMLINK", func(k kernel, dir, _ uint64) any {
		h := k.head(dir)
		return k.raw.Symlink(nil, &h, "anything", "new", &fuse.EntryOut{})
	}},
	{"CREATE", func(k kernel, dir, _ uint64) any {
		return k.raw.Create(nil, &fuse.CreateIn{InHeader: k.head(dir), Flags: syscall.O_WRONLY, Mode: 0o644}, "new",
			&fuse.CreateOut{})
	}},
	{"CREATE over a file", func(k kernel, dir, _ uint64) any {
		return k.raw.Create(nil, &fuse.CreateIn{InHeader: k.head(dir), Flags: syscall.O_WRONLY | syscall.O_TRUNC,
			Mode: 0o644}, "file", &fuse.CreateOut{})
	}},
	{"CREATE over a link", func(k kernel, _, _ uint64) any {
		return k.raw.Create(nil, &fuse.CreateIn{InHeader: k.head(1), Flags: syscall.O_WRONLY | syscall.O_TRUNC,
			Mode: 0o644}, "tofile", &fuse.CreateOut{})
	}},
	{"TMPFILE", func(k kernel, dir, _ uint64) any {
		return k.raw.Tmpfile(nil, &fuse.CreateIn{InHeader: k.head(dir), Flags: syscall.O_RDWR, Mode: 0o644},
			&fuse.CreateOut{})
	}},
	{"UNLINK", func(k kernel, dir, _ uint64) any {
		h := k.head(dir)
		return k.raw.Unlink(nil, &h, "file")
	}},
	{"RMDIR", func(k kernel, dir, _ uint64) any {
		h := k.head(dir)
		return k.raw.Rmdir(nil, &h, "empty")
	}},
	{"RENAME out", func(k kernel, dir, _ uint64) any {
		return k.raw.Rename(nil, &fuse.RenameIn{InHeader: k.head(dir), Newdir: 1}, "file", "taken")
	}},
	{"RENAME in", func(k kernel, dir, _ uint64) any {
		return k.raw.Rename(nil, &fuse.RenameIn{InHeader: k.head(1), Newdir: dir}, "mine", "file")
	}},
	{"RENAME exchange", func(k kernel, dir, _ uint64) any {
		return k.raw.Rename(nil, &fuse.RenameIn{InHeader: k.head(1), Newdir: dir, Flags: unix.RENAME_EXCHANGE},
			"mine", "file")
	}},
	{"LINK in", func(k kernel, dir, _ uint64) any {
		mine := k.lookup(1, "mine")
		if mine == 0 {
			return nil
		}
		return k.raw.Link(nil, &fuse.LinkIn{InHeader: k.head(dir), Oldnodeid: mine}, "new", &fuse.EntryOut{})
	}},
	{"LINK out", func(k kernel, _, file uint64) any {
		var out fuse.EntryOut
		k.raw.Link(nil, &fuse.LinkIn{InHeader: k.head(1), Oldnodeid: file}, "hard", &out)
		return out.Attr.Size
	}},
	{"SETATTR size", func(k kernel, _, file uint64) any { return k.setattr(file, fuse.FATTR_SIZE) }},
	{"SETATTR mode", func(k kernel, _, file uint64) any { return k.setattr(file, fuse.FATTR_MODE) }},
	{"SETATTR owner", func(k kernel, _, file uint64) any { return k.setattr(file, fuse.FATTR_UID|fuse.FATTR_GID) }},
	{"SETATTR times", func(k kernel, _, file uint64) any { return k.setattr(file, fuse.FATTR_MTIME|fuse.FATTR_ATIME) }},
	{"SETATTR of a directory", func(k kernel, dir,
		_ uint64) any {
		return k.setattr(dir, fuse.FATTR_MODE|fuse.FATTR_MTIME)
	}},
	{"SETXATTR", func(k kernel, _, file uint64) any {
		return k.raw.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: k.head(file)}, "user.new", []byte("x"))
	}},
	{"REMOVEXATTR", func(k kernel, _, file uint64) any {
		h := k.head(file)
		return k.raw.RemoveXAttr(nil, &h, "user.secret")
	}},
	{"GETXATTR", func(k kernel, _, file uint64) any {
		h, value := k.head(file), make([]byte, 100)
		k.raw.GetXAttr(nil, &h, "user.secret", value)
		return string(value)
	}},
	{"LISTXATTR", func(k kernel, _, file uint64) any {
		h, value := k.head(file), make([]byte, 100)
		k.raw.ListXAttr(nil, &h, value)
		return string(value)
	}},
	{"READLINK", func(k kernel, dir, _ uint64) any {
		h := k.head(k.lookup(dir, "link"))
		if h.NodeId == 0 {
			return ""
		}
		target, _ := k.raw.Readlink(nil, &h)
		return string(target)
	}},
	{"OPEN", func(k kernel, _, file uint64) any {
		var out fuse.OpenOut
		if !k.raw.Open(nil, &fuse.OpenIn{InHeader: k.head(file), Flags: syscall.O_RDONLY}, &out).Ok() {
			return ""
		}
		buf := make([]byte, 2*secretSize)
		result, status := k.raw.Read(nil, &fuse.ReadIn{InHeader: k.head(file), Fh: out.Fh, Size: uint32(len(buf))}, buf)
		if !status.Ok() {
			return ""
		}
		text, _ := result.Bytes(buf)
		return uint64(len(text))
	}},
	{"OPEN to cut short", func(k kernel, _, file uint64) any {
		return k.raw.Open(nil, &fuse.OpenIn{InHeader: k.head(file), Flags: syscall.O_RDWR | syscall.O_TRUNC},
			&fuse.OpenOut{})
	}},
	{"OPEN to make", func(k kernel, _, file uint64) any {
		return k.raw.Open(nil, &fuse.OpenIn{InHeader: k.head(file), Flags: syscall.O_RDONLY | syscall.O_CREAT},
			&fuse.OpenOut{})
	}},
	{"OPENDIR", func(k kernel, dir, _ uint64) any {
		var out fuse.OpenOut
		if !k.raw.OpenDir(nil, &fuse.OpenIn{InHeader: k.head(dir)}, &out).Ok() {
			return ""
		}
		list := make([]byte, 4096)
		k.raw.ReadDir(nil, &fuse.ReadIn{InHeader: k.head(dir), Fh: out.Fh, Size: 4096}, fuse.NewDirEntryList(list, 0))
		return string(list)
	}},
	{"ACCESS", func(k kernel, _, file uint64) any {
		return k.raw.Access(nil, &fuse.AccessIn{InHeader: k.head(file), Mask: unix.R_OK})
	}},
	{"STATFS", func(k kernel, dir, _ uint64) any {
		h := k.head(dir)
		return k.raw.StatFs(nil, &h, &fuse.StatfsOut{})
	}},
}

func (k kernel) setattr(node uint64, what uint32) fuse.Status {
	in := &fuse.SetAttrIn{}
	in.InHeader, in.Valid, in.Mode, in.Size, in.Mtime, in.Atime = k.head(node), what, 0o6777, 1, 12345, 12345
	in.Owner = fuse.Owner{Uid: 65534, Gid: 65534}
	return k.raw.SetAttr(nil, in, &fuse.AttrOut{})
}

// leaked reports whether an answer has something of outside.
func leaked(answer any) bool {
	switch a := answer.(type) {
	case uint64:
		return a == secretSize
	case string:
		return strings.Contains(a, "secret") || strings.Contains(a, secretAttr) || strings.Contains(a, "deeper")
	}
	return false
}

// TestHostileGuest sends every request about what lies behind a symbolic link of the guest's own: named in a request
// for what it is, or put in the place of a directory and a file that the guest knows already, as another task of the
// same user can do at any moment.
func TestHostileGuest(t *testing.T) {
	for _, how := range []string{"links", "swapped", "swapped above"} {
		for _, readOnly := range []bool{false, true} {
			for _, stepwise := range []bool{false, true} {
				for _, r := range requests {
					t.Run(fmt.Sprintf("%s/readonly=%v/stepwise=%v/%s", how, readOnly, stepwise, r.name),
						func(t *testing.T) {
							bound, secret := t.TempDir(), outside(t)
							k, dir, file := hostile(t, how, bound, secret, readOnly, stepwise)
							before, own := picture(t, secret), picture(t, bound)
							answer := r.send(k, dir, file)
							if leaked(answer) {
								t.Errorf("it tells the guest %v", answer)
							}
							if d := cmp.Diff(before, picture(t, secret)); d != "" {
								t.Errorf("it changes what is not bound:\n%s", d)
							}
							if d := cmp.Diff(own, picture(t, bound)); readOnly && d != "" {
								t.Errorf("it changes a read-only bind:\n%s", d)
							}
						})
				}
			}
		}
	}
}

// hostile is a guest with two nodes that mean, by path, a directory and a file of outside.
func hostile(t *testing.T, how, bound, secret string, readOnly, stepwise bool) (k kernel, dir, file uint64) {
	t.Helper()
	at := func(name string) string { return filepath.Join(bound, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("mine"), []byte("mine"), 0o644))
	must(os.Symlink(filepath.Join(secret, "in"), at("todir")))
	must(os.Symlink(filepath.Join(secret, "file"), at("tofile")))
	must(os.MkdirAll(at("a/in/deeper"), 0o755))
	must(os.WriteFile(at("a/in/file"), nil, 0o644))
	must(os.WriteFile(at("a/in/deeper/file"), nil, 0o644))
	k = kernel{testFS(t, bound, readOnly, stepwise), me()}
	switch how {
	case "links":
		return k, k.lookup(1, "todir"), k.lookup(1, "tofile")
	case "swapped":
		dir, file = k.lookup(1, "a", "in"), k.lookup(1, "a", "in", "file")
		must(os.RemoveAll(at("a/in")))
		must(os.Symlink(filepath.Join(secret, "in"), at("a/in")))
	case "swapped above":
		dir, file = k.lookup(1, "a", "in", "deeper"), k.lookup(1, "a", "in", "deeper", "file")
		must(os.Rename(at("a"), at("b")))
		must(os.Symlink(secret, at("a")))
	}
	if dir == 0 || file == 0 {
		t.Fatal("the guest cannot look up what is its own")
	}
	return k, dir, file
}
