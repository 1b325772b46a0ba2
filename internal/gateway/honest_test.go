package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func me() fuse.Caller {
	return fuse.Caller{Owner: fuse.Owner{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())}}
}

// TestHonestGuest is a walk through what programs do to files, with and without openat2.
func TestHonestGuest(t *testing.T) {
	for _, stepwise := range []bool{false, true} {
		t.Run(fmt.Sprintf("stepwise=%v", stepwise), func(t *testing.T) { honest(t, t.TempDir(), stepwise) })
	}
}

func honest(t *testing.T, dir string, stepwise bool) {
	k := kernel{testFS(t, dir, false, stepwise), me()}
	ok := func(s fuse.Status) {
		t.Helper()
		if !s.Ok() {
			t.Fatal(s)
		}
	}
	on := func(name string) unix.Stat_t {
		t.Helper()
		var s unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	setattr := func(node uint64, what uint32, change func(*fuse.SetAttrIn)) fuse.AttrOut {
		t.Helper()
		in, out := &fuse.SetAttrIn{}, fuse.AttrOut{}
		in.InHeader, in.Valid = k.head(node), what
		change(in)
		ok(k.raw.SetAttr(nil, in, &out))
		return out
	}

	// Directories, a file in them, and its content.
	var entry fuse.EntryOut
	ok(k.raw.Mkdir(nil, &fuse.MkdirIn{InHeader: k.head(1), Mode: 0o1777}, "a", &entry))
	a := entry.NodeId
	ok(k.raw.Mkdir(nil, &fuse.MkdirIn{InHeader: k.head(a), Mode: 0o700}, "b", &entry))
	b := entry.NodeId
	if on("a").Mode&0o1000 == 0 {
		t.Error("the directory is not sticky")
	}
	var made fuse.CreateOut
	ok(k.raw.Create(nil, &fuse.CreateIn{InHeader: k.head(b), Flags: syscall.O_RDWR | syscall.O_APPEND | syscall.O_EXCL,
		Mode: 0o640}, "f", &made))
	f := made.NodeId
	write := func(at uint64, text string) {
		t.Helper()
		n, s := k.raw.Write(nil, &fuse.WriteIn{InHeader: k.head(f), Fh: made.Fh, Offset: at, Size: uint32(len(text))},
			[]byte(text))
		if ok(s); int(n) != len(text) {
			t.Fatal(n)
		}
	}
	write(0, "0123456789")
	write(4, "xx") // where to, the guest says: on a file that is open to append as well
	text := func() string {
		t.Helper()
		buf := make([]byte, 100)
		result, s := k.raw.Read(nil, &fuse.ReadIn{InHeader: k.head(f), Fh: made.Fh, Size: 100}, buf)
		ok(s)
		got, s := result.Bytes(buf)
		ok(s)
		return string(got)
	}
	if got := text(); got != "0123xx6789" {
		t.Errorf("%q", got)
	}

	// Attributes, by name and by handle.
	if out := setattr(f, fuse.FATTR_SIZE, func(in *fuse.SetAttrIn) { in.Size = 6 }); out.Size != 6 ||
		on("a/b/f").Size != 6 {
		t.Errorf("%+v", out)
	}
	if out := setattr(f, fuse.FATTR_SIZE|fuse.FATTR_FH,
		func(in *fuse.SetAttrIn) { in.Size, in.Fh = 5, made.Fh }); out.Size != 5 || text() != "0123x" {
		t.Errorf("%+v, %q", out, text())
	}
	out := setattr(f, fuse.FATTR_MODE|fuse.FATTR_MTIME,
		func(in *fuse.SetAttrIn) { in.Mode, in.Mtime, in.Mtimensec = 0o755, 1e9, 7 })
	if s := on("a/b/f"); s.Mode&0o7777 != 0o755 || s.Mtim.Sec != 1e9 || s.Mtim.Nsec != 7 || out.Mode != s.Mode ||
		out.Mtime != 1e9 || out.Mtimensec != 7 {
		t.Errorf("%+v, %+v", s, out)
	}
	ok(k.raw.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: k.head(f)}, "user.colour", []byte("blue")))
	h, buf := k.head(f), make([]byte, 64)
	if n, s := k.raw.GetXAttr(nil, &h, "user.colour", buf); !s.Ok() || string(buf[:n]) != "blue" {
		t.Errorf("%v, %q", s, buf[:n])
	}
	if n, s := k.raw.GetXAttr(nil, &h, "user.colour", nil); !s.Ok() || n != 4 {
		t.Errorf("the size of an attribute: %d, %v", n, s)
	}
	if n, s := k.raw.ListXAttr(nil, &h, buf); !s.Ok() || string(buf[:n]) != "user.colour\x00" {
		t.Errorf("%v, %q", s, buf[:n])
	}
	ok(k.raw.RemoveXAttr(nil, &h, "user.colour"))
	if _, s := k.raw.GetXAttr(nil, &h, "user.colour", buf); s != fuse.ENODATA {
		t.Errorf("an attribute that is gone: %v", s)
	}

	// Links of both kinds. A symbolic one has times and an owner of its own, and no mode to change.
	link := k.symlink(t, "a/b/f", "l")
	h = k.head(link)
	if target, s := k.raw.Readlink(nil, &h); !s.Ok() || string(target) != "a/b/f" {
		t.Errorf("%q, %v", target, s)
	}
	setattr(link, fuse.FATTR_MTIME|fuse.FATTR_UID,
		func(in *fuse.SetAttrIn) { in.Mtime, in.Owner.Uid = 2e9, uint32(os.Getuid()) })
	if on("l").Mtim.Sec != 2e9 || on("a/b/f").Mtim.Sec != 1e9 {
		t.Error("the times of a link are not its own")
	}
	if s := k.setattr(link, fuse.FATTR_MODE); s != fuse.Status(syscall.EOPNOTSUPP) {
		t.Errorf("the mode of a link: %v", s)
	}
	ok(k.raw.Link(nil, &fuse.LinkIn{InHeader: k.head(1), Oldnodeid: f}, "hard", &entry))
	if entry.NodeId != f || entry.Nlink != 2 || on("hard").Ino != on("a/b/f").Ino {
		t.Errorf("%+v", entry)
	}
	ok(k.raw.Link(nil, &fuse.LinkIn{InHeader: k.head(a), Oldnodeid: link}, "l2", &entry))
	if on("a/l2").Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Error("a hard link to a symbolic one is one to its target")
	}

	// A directory that moves takes what is known below it along; what is open stays open.
	ok(k.raw.Rename(nil, &fuse.RenameIn{InHeader: k.head(a), Newdir: 1}, "b", "moved"))
	if got := k.lookup(b, "f"); got != f {
		t.Errorf("%d, not %d", got, f)
	}
	h = k.head(b)
	ok(k.raw.Unlink(nil, &h, "f"))
	h = k.head(1)
	ok(k.raw.Unlink(nil, &h, "hard"))
	write(5, "!")
	var attr fuse.AttrOut
	ok(k.raw.GetAttr(nil, &fuse.GetAttrIn{InHeader: k.head(f)}, &attr))
	if text() != "0123x!" || attr.Nlink != 0 || attr.Size != 6 {
		t.Errorf("without a name: %q, %+v", text(), attr.Attr)
	}
	k.raw.Release(nil, &fuse.ReleaseIn{InHeader: k.head(f), Fh: made.Fh})
	ok(k.raw.Mknod(nil, &fuse.MknodIn{InHeader: k.head(1), Mode: syscall.S_IFREG | 0o600}, "x", &entry))
	ok(k.raw.Rename(nil, &fuse.RenameIn{InHeader: k.head(1), Newdir: b, Flags: unix.RENAME_NOREPLACE}, "x", "y"))
	ok(k.raw.Mknod(nil, &fuse.MknodIn{InHeader: k.head(1), Mode: syscall.S_IFREG | 0o600}, "x", &entry))
	if s := k.raw.Rename(nil, &fuse.RenameIn{InHeader: k.head(1), Newdir: b, Flags: unix.RENAME_NOREPLACE}, "x",
		"y"); s != fuse.Status(syscall.EEXIST) {
		t.Errorf("over a file: %v", s)
	}
	ok(k.raw.Rename(nil, &fuse.RenameIn{InHeader: k.head(1), Newdir: 1, Flags: unix.RENAME_EXCHANGE}, "x", "moved"))
	if on("x").Mode&unix.S_IFMT != unix.S_IFDIR || k.lookup(b, "y") == 0 {
		t.Error("a directory and a file did not change places")
	}

	// A file without a name gets one by no request; pipes are made, and are not the host's to open.
	var tmp fuse.CreateOut
	// not everywhere
	if s := k.raw.Tmpfile(nil, &fuse.CreateIn{InHeader: k.head(b), Flags: syscall.O_RDWR, Mode: 0o600},
		&tmp); s != fuse.Status(syscall.EOPNOTSUPP) {
		ok(s)
		ok(k.raw.GetAttr(nil, &fuse.GetAttrIn{InHeader: k.head(tmp.NodeId)}, &attr))
	}
	ok(k.raw.Mknod(nil, &fuse.MknodIn{InHeader: k.head(b), Mode: syscall.S_IFIFO | 0o600}, "pipe", &entry))
	if s := k.raw.Open(nil, &fuse.OpenIn{InHeader: k.head(entry.NodeId)},
		&fuse.OpenOut{}); s != fuse.Status(syscall.ENXIO) {
		t.Errorf("a pipe is opened on the host: %v", s)
	}
	if s := k.setattr(entry.NodeId, fuse.FATTR_SIZE); s != fuse.Status(syscall.ENXIO) {
		t.Errorf("a pipe is cut short: %v", s)
	}
	h = k.head(1)
	if s := k.raw.Rmdir(nil, &h, "x"); s != fuse.Status(syscall.ENOTEMPTY) {
		t.Errorf("a directory that is not empty: %v", s)
	}
	h = k.head(b)
	ok(k.raw.Unlink(nil, &h, "pipe"))
	ok(k.raw.Unlink(nil, &h, "y"))
	h = k.head(1)
	ok(k.raw.Rmdir(nil, &h, "x"))
	var s fuse.StatfsOut
	ok(k.raw.StatFs(nil, &h, &s))
	if s.Bsize == 0 {
		t.Errorf("%+v", s)
	}
}

// TestReadOnlyMakesNothing: an open that would make a file that has gone makes none.
func TestReadOnlyMakesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	k := kernel{testFS(t, dir, true, false), me()}
	f := k.lookup(1, "f")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	k.raw.Open(nil, &fuse.OpenIn{InHeader: k.head(f), Flags: syscall.O_RDONLY | syscall.O_CREAT}, &fuse.OpenOut{})
	if _, err := os.Lstat(path); err == nil {
		t.Error("it made a file")
	}
}

// TestNoIoctl: an ioctl that reads as much as an honest one says, and makes the kernel write as much as its content
// says.
func TestNoIoctl(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	k := kernel{testFS(t, dir, false, false), me()}
	f := k.lookup(1, "f")
	var out fuse.OpenOut
	if s := k.raw.Open(nil, &fuse.OpenIn{InHeader: k.head(f), Flags: syscall.O_RDWR}, &out); !s.Ok() {
		t.Fatal(s)
	}
	const fsIocGetflags = 0x80086601
	flags := make([]byte, 8)
	if s := k.raw.Ioctl(nil, &fuse.IoctlIn{InHeader: k.head(f), Fh: out.Fh, Cmd: fsIocGetflags}, nil, &fuse.IoctlOut{},
		flags); s != fuse.Status(syscall.ENOTTY) {
		t.Errorf("%v", s)
	}
}

// TestRacingTasks sends requests while a directory on their way becomes a link to somewhere else and back, as fast as
// the host can.
func TestRacingTasks(t *testing.T) {
	for _, stepwise := range []bool{false, true} {
		bound, secret := t.TempDir(), outside(t)
		for _, name := range []string{"a/in/deeper", "a/in/empty"} {
			if err := os.MkdirAll(filepath.Join(bound, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"mine", "a/in/file", "a/in/deeper/file"} {
			if err := os.WriteFile(filepath.Join(bound, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(filepath.Join(secret, "in"), filepath.Join(bound, "a", "other")); err != nil {
			t.Fatal(err)
		}
		k := kernel{testFS(t, bound, false, stepwise), me()}
		dir, file := k.lookup(1, "a", "in"), k.lookup(1, "a", "in", "deeper", "file")
		before := picture(t, secret)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					unix.Renameat2(unix.AT_FDCWD, filepath.Join(bound, "a", "in"), unix.AT_FDCWD,
						filepath.Join(bound, "a", "other"), unix.RENAME_EXCHANGE)
				}
			}
		}()
		for range 50 {
			for _, r := range requests {
				if answer := r.send(k, dir, file); leaked(answer) && r.name != "OPENDIR" { // names of its own
					t.Errorf("%s tells %v", r.name, answer)
				}
			}
		}
		close(stop)
		<-stopped
		if d := cmp.Diff(before, picture(t, secret)); d != "" {
			t.Errorf("stepwise %v:\n%s", stepwise, d)
		}
	}
}
