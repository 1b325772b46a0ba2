package gatewaytest

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func modes(v *vm) {
	v.write("f", "")
	for _, mode := range []uint32{0o777, 0o640, 0o000, 0o400, 0o111} {
		v.must("chmod", unix.Chmod(v.path("f"), mode))
		if got := uint32(v.stat("f").Mode) & 0o7777; got != mode {
			v.errorf("mode %o is %o", mode, got)
		}
	}
	v.mkdir("d", 0o755)
	for _, mode := range []uint32{0o1777, 0o2775, 0o3770} {
		v.must("chmod", unix.Chmod(v.path("d"), mode))
		if got := uint32(v.stat("d").Mode) & 0o7777; got != mode {
			v.errorf("a directory's mode %o is %o", mode, got)
		}
	}
	group := v.Caller.Groups[0]
	v.must("chgrp", unix.Chown(v.path("d"), -1, int(group)))
	v.must("chmod", unix.Chmod(v.path("d"), 0o2775))
	v.write("d/f", "")
	v.mkdir("d/d", 0o755)
	if f, d := v.stat("d/f"), v.stat("d/d"); f.Gid != group || d.Gid != group || d.Mode&unix.S_ISGID == 0 {
		v.errorf("in a set-group-ID directory: a file of group %d, a directory of %d and mode %o", f.Gid, d.Gid,
			d.Mode)
	}
}

func setIDFiles(v *vm) {
	v.write("f", "")
	v.must("chmod", unix.Chmod(v.path("f"), 0o6755))
	if got := v.stat("f").Mode & 0o7777; got != 0o6755 {
		v.errorf("a file of mode 6755 has %o", got)
	}
}

func umask(v *vm) {
	unix.Umask(0)
	fd := v.open("f", unix.O_WRONLY|unix.O_CREAT, 0o666)
	unix.Close(fd)
	v.mkdir("d", 0o777)
	if f, d := v.stat("f").Mode&0o777, v.stat("d").Mode&0o777; f != 0o666 || d != 0o777 {
		v.errorf("with umask 0, modes are %o and %o", f, d)
	}
	unix.Umask(0o077)
	v.write("g", "")
	if g := v.stat("g").Mode & 0o777; g != 0o600 {
		v.errorf("with umask 77, a mode is %o", g)
	}
}

func times(v *vm) {
	v.onHost(func() { v.give("shared", "", 0o666, another) })
	v.as(v.Caller, func() {
		v.write("f", "")
		v.must("symlink", unix.Symlink("f", v.path("l")))
		set := func(name string, atime, mtime unix.Timespec) {
			v.must("utimensat", unix.UtimesNanoAt(unix.AT_FDCWD, v.path(name), []unix.Timespec{atime, mtime},
				unix.AT_SYMLINK_NOFOLLOW))
		}
		check := func(name string, atime, mtime unix.StatxTimestamp) {
			st := v.stat(name)
			if st.Atime != atime || st.Mtime != mtime {
				v.errorf("times of %s are %v and %v, not %v and %v", name, st.Atime, st.Mtime, atime, mtime)
			}
		}
		for _, at := range []unix.StatxTimestamp{{Sec: 1e9, Nsec: 123456789}, {Sec: 0, Nsec: 1}, {Sec: -1e8, Nsec: 5},
			{Sec: 1 << 32, Nsec: 999999999}} {
			for _, name := range []string{"f", "l"} {
				set(name, unix.Timespec{Sec: at.Sec, Nsec: int64(at.Nsec)}, unix.Timespec{Sec: 7, Nsec: 8})
				check(name, at, unix.StatxTimestamp{Sec: 7, Nsec: 8})
			}
		}
		set("f", unix.Timespec{Nsec: unix.UTIME_OMIT}, unix.Timespec{Sec: 9})
		check("f", v.stat("l").Atime, unix.StatxTimestamp{Sec: 9})
		set("f", unix.Timespec{Sec: 10}, unix.Timespec{Nsec: unix.UTIME_NOW})
		if st := v.stat("f"); st.Atime.Sec != 10 || st.Mtime.Sec < 1e9 {
			v.errorf("with a time of now: %v and %v", st.Atime, st.Mtime)
		}
		fd := v.open("f", unix.O_RDWR, 0)
		v.must("futimens", futimens(fd, &[2]unix.Timespec{{Sec: 11}, {Sec: 12}}))
		check("f", unix.StatxTimestamp{Sec: 11}, unix.StatxTimestamp{Sec: 12})
		v.pwrite(fd, "x", 0)
		unix.Close(fd)
		if st := v.stat("f"); st.Mtime.Sec < 1e9 {
			v.errorf("a write leaves it as changed at %v", st.Mtime)
		}
		// Who may write a file may say that it was changed now, and not when else.
		v.want("touch another's", unix.UtimesNanoAt(unix.AT_FDCWD, v.path("shared"), nil, 0), 0)
		fd = v.open("shared", unix.O_WRONLY, 0)
		v.want("touch another's, open", futimens(fd, nil), 0)
		unix.Close(fd)
		v.want("truncate another's", unix.Truncate(v.path("shared"), 5), 0)
		v.want("truncate another's at open", v.try("shared", unix.O_WRONLY|unix.O_TRUNC), 0)
		v.want("set the times of another's", unix.Utimes(v.path("shared"), make([]unix.Timeval, 2)), unix.EPERM)
	})
}

func xattrs(v *vm) {
	v.write("f", "")
	v.mkdir("d", 0o755)
	buf := make([]byte, 4096)
	for _, name := range []string{"f", "d"} {
		path := v.path(name)
		v.must("set", unix.Setxattr(path, "user.a", []byte("blue\x00\xff"), unix.XATTR_CREATE))
		v.must("set one without content", unix.Setxattr(path, "user.b", nil, 0))
		v.want("create again", unix.Setxattr(path, "user.a", []byte("x"), unix.XATTR_CREATE), unix.EEXIST)
		v.want("replace none", unix.Setxattr(path, "user.c", []byte("x"), unix.XATTR_REPLACE), unix.ENODATA)
		v.want("replace", unix.Setxattr(path, "user.a", []byte("green"), unix.XATTR_REPLACE), 0)
		if n, err := unix.Getxattr(path, "user.a", buf); err != nil || string(buf[:n]) != "green" {
			v.errorf("%q, %v", buf[:max(n, 0)], err)
		}
		if n, err := unix.Getxattr(path, "user.a", nil); err != nil || n != 5 {
			v.errorf("its size is %d, %v", n, err)
		}
		_, err := unix.Getxattr(path, "user.a", buf[:2])
		v.want("read into less room", err, unix.ERANGE)
		n, err := unix.Listxattr(path, buf)
		got := strings.Split(strings.Trim(string(buf[:max(n, 0)]), "\x00"), "\x00")
		slices.Sort(got)
		if err != nil || !slices.Equal(got, []string{"user.a", "user.b"}) {
			v.errorf("%q, %v", got, err)
		}
		v.must("remove", unix.Removexattr(path, "user.a"))
		_, err = unix.Getxattr(path, "user.a", buf)
		v.want("read what is gone", err, unix.ENODATA)
	}
	long := []byte(strings.Repeat("x", 2000))
	v.must("set 2,000 bytes", unix.Setxattr(v.path("f"), "user.long", long, 0))
	if n, err := unix.Getxattr(v.path("f"), "user.long", buf); err != nil || string(buf[:n]) != string(long) {
		v.errorf("of 2,000 bytes: %d, %v", n, err)
	}
}

// acls: one that lets another user read, as setfacl writes it, counts on the host.
func acls(v *vm) {
	acl := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, rights uint16
		id          uint32
	}{{1, 6, ^uint32(0)}, {2, 4, another.UID}, {4, 0, ^uint32(0)}, {16, 4, ^uint32(0)}, {32, 0, ^uint32(0)}} {
		acl = binary.LittleEndian.AppendUint16(acl, e.tag)
		acl = binary.LittleEndian.AppendUint16(acl, e.rights)
		acl = binary.LittleEndian.AppendUint32(acl, e.id)
	}
	const name = "system.posix_acl_access"
	v.onHost(func() {
		v.give("try", "", 0o600, v.Caller)
		v.must("the host's own", unix.Setxattr(v.host("try"), name, acl, 0))
	})
	buf := make([]byte, 100)
	v.as(v.Caller, func() {
		v.write("f", "")
		v.must("set", unix.Setxattr(v.path("f"), name, acl, 0))
		if n, err := unix.Getxattr(v.path("f"), name, buf); err != nil || string(buf[:n]) != string(acl) {
			v.errorf("it is %x, %v", buf[:max(n, 0)], err)
		}
	})
	v.onHost(func() {
		if n, err := unix.Getxattr(v.host("f"), name, buf); err != nil || string(buf[:n]) != string(acl) {
			v.errorf("on the host it is %x, %v", buf[:max(n, 0)], err)
		}
	})
}

func xattrsPrivileged(v *vm) {
	v.write("f", "")
	for _, name := range []string{"trusted.a", "security.a"} {
		if err := unix.Setxattr(v.path("f"), name, []byte("b"), 0); err != nil {
			v.errorf("%s: %v", name, err)
		}
	}
}

func fileFlags(v *vm) {
	v.write("f", "")
	fd := v.open("f", unix.O_RDONLY, 0)
	defer unix.Close(fd)
	if _, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS); err != nil {
		v.errorf("FS_IOC_GETFLAGS: %v", err)
	}
}

// fresh: an open that follows a change by the host sees it, after a while at most.
func fresh(v *vm) {
	v.onHost(func() { v.give("f", "one", 0o644, v.Caller) })
	v.as(v.Caller, func() { v.holds("f", "one") })
	v.onHost(func() {
		v.must("write", os.WriteFile(v.host("f"), []byte("two"), 0o644))
		v.must("write", os.WriteFile(v.host("late"), nil, 0o644))
		v.must("chown", os.Chown(v.host("late"), int(v.Caller.UID), int(v.Caller.GID)))
	})
	v.as(v.Caller, func() {
		v.want("what the host creates", v.try("late", unix.O_RDONLY), 0)
		for {
			fd := v.open("f", unix.O_RDONLY, 0)
			got := v.pread(fd, 100, 0)
			unix.Close(fd)
			if got == "two" {
				return
			}
			if got != "one" {
				v.fatalf("it holds %q", got)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// freshAtOnce looks through an open file, again and again, right after the host has changed it.
func freshAtOnce(v *vm) {
	var file *os.File
	v.onHost(func() {
		v.give("f", "0000", 0o644, v.Caller)
		var err error
		file, err = os.OpenFile(v.host("f"), os.O_WRONLY, 0)
		v.must("open", err)
		v.atEnd(func() { file.Close() })
	})
	reader := v.begin(0, v.Caller)
	defer reader.end()
	var fd int
	reader.do(func() { fd = v.open("f", unix.O_RDONLY, 0) })
	for i := range 50 {
		text := string([]byte{'a', byte('0' + i/10), byte('0' + i%10), 'z'})
		reader.do(func() { v.pread(fd, 4, 0) })
		v.onHost(func() { file.WriteAt([]byte(text), 0) })
		reader.do(func() {
			if got := v.pread(fd, 4, 0); got != text {
				v.fatalf("the content of before is read")
			}
		})
	}
}

// watch begins to watch the directory.
func (v *vm) watch() int {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	v.must("inotify", err)
	_, err = unix.InotifyAddWatch(fd, v.path("."), unix.IN_CREATE)
	v.must("watch", err)
	return fd
}

// events are all that have been reported by now.
func (v *vm) events(fd int) string {
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil && err != unix.EAGAIN {
		v.fatalf("events: %v", err)
	}
	return string(buf[:max(n, 0)])
}

func inotifies(v *vm) {
	v.as(v.Caller, func() {
		fd := v.watch()
		defer unix.Close(fd)
		v.write("by-the-vm", "")
		if !strings.Contains(v.events(fd), "by-the-vm") {
			v.errorf("no event of a new file")
		}
	})
}

// inotifyHost has the VM see the new file, so that no event can be late.
func inotifyHost(v *vm) {
	watcher := v.begin(0, v.Caller)
	defer watcher.end()
	var fd int
	watcher.do(func() { fd = v.watch() })
	v.onHost(func() { v.must("write", os.WriteFile(v.host("by-the-host"), nil, 0o644)) })
	watcher.do(func() {
		v.stat("by-the-host")
		if !strings.Contains(v.events(fd), "by-the-host") {
			v.errorf("no event of a new file")
		}
	})
}
