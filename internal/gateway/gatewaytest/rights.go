package gatewaytest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// denied are the ways in which a host refuses.
var denied = []syscall.Errno{unix.EACCES, unix.EPERM}

// try opens a file and closes it.
func (v *vm) try(name string, flags int) error {
	fd, err := unix.Open(v.path(name), flags|unix.O_CLOEXEC, 0o644)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// foreign makes files on the host that the job has some rights to, or none.
func foreign(v *vm) {
	v.onHost(func() {
		v.give("own", "own", 0o600, v.Caller)
		v.give("secret", "secret", 0o600, another)
		v.give("public", "public", 0o644, another)
		v.give("group", "group", 0o060, Identity{UID: another.UID, GID: someone.Groups[0]})
		v.give("barred", "barred", 0o077, v.Caller) // its owner, of all, may not
		for name, mode := range map[string]uint32{"closed": 0o700, "sticky": 0o777 | unix.S_ISVTX, "shown": 0o755} {
			v.mkdir(name, 0o700)
			v.give(name+"/file", "file", 0o666, another)
			v.must("chown", os.Chown(v.host(name), int(another.UID), int(another.GID)))
			v.must("chmod", unix.Chmod(v.host(name), mode))
		}
	})
}

// rights of a job: those of its caller, also where the kernel of the VM asks for more.
func rights(v *vm) {
	foreign(v)
	v.as(v.Caller, func() { rightsOf(v) })
}

func rightsOf(v *vm) {
	v.want("read one's own", v.try("own", unix.O_RDWR), 0)
	v.want("read by a group", v.try("group", unix.O_RDWR), 0)
	v.want("read another's", v.try("secret", unix.O_RDONLY), denied...)
	v.want("read as the owner who may not", v.try("barred", unix.O_RDONLY), denied...)
	v.want("read what all may", v.try("public", unix.O_RDONLY), 0)
	v.want("write it", v.try("public", unix.O_WRONLY), denied...)
	v.want("truncate it", unix.Truncate(v.path("public"), 0), denied...)
	v.want("truncate it at open", v.try("public", unix.O_RDONLY|unix.O_TRUNC), denied...)
	v.want("chmod it", unix.Chmod(v.path("public"), 0o666), denied...)
	v.want("set its times", unix.Utimes(v.path("public"), make([]unix.Timeval, 2)), denied...)
	v.want("its attributes", unix.Setxattr(v.path("public"), "user.a", []byte("b"), 0), denied...)
	v.want("give one's own away", unix.Chown(v.path("own"), int(another.UID), -1), denied...)
	v.want("take another's", unix.Chown(v.path("public"), int(v.Caller.UID), -1), denied...)
	v.want("give one's own to a group of others", unix.Chown(v.path("own"), -1, int(another.GID)), denied...)
	v.want("list a closed directory", v.try("closed", unix.O_RDONLY|unix.O_DIRECTORY), denied...)
	v.want("look into it", unix.Access(v.path("closed/file"), unix.F_OK), denied...)
	v.want("create in another's", v.try("shown/new", unix.O_CREAT|unix.O_WRONLY), denied...)
	v.want("mkdir there", unix.Mkdir(v.path("shown/new"), 0o755), denied...)
	v.want("unlink there", unix.Unlink(v.path("shown/file")), denied...)
	v.want("unlink in a sticky directory", unix.Unlink(v.path("sticky/file")), denied...)
	v.want("rename there", unix.Rename(v.path("sticky/file"), v.path("sticky/other")), denied...)
	for _, kind := range []uint32{unix.S_IFCHR, unix.S_IFBLK} {
		v.want("make a device", unix.Mknod(v.path("device"), kind|0o666, int(unix.Mkdev(1, 3))), denied...)
	}
	v.write("new", "new")
	if st := v.stat("new"); st.Uid != v.Caller.UID || st.Gid != v.Caller.GID {
		v.errorf("a new file belongs to %d:%d", st.Uid, st.Gid)
	}
}

// rootInVM is root there with every capability of its own kernel.
func rootInVM(v *vm) {
	foreign(v)
	v.as(root, func() { rightsOf(v) })
	v.onHost(func() {
		var st unix.Stat_t
		v.must("stat", unix.Stat(v.host("new"), &st))
		if st.Uid != v.Caller.UID || st.Gid != v.Caller.GID {
			v.errorf("root's new file belongs to %d:%d on the host", st.Uid, st.Gid)
		}
	})
}

// callerRoot: root's own job leaves nothing on the host that runs there with rights.
func callerRoot(v *vm) {
	v.onHost(func() {
		v.give("own", "own", 0o755, root)
		v.give("armed", "armed", 0o4755, root)
		v.must("mknod", unix.Mknod(v.host("null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	})
	v.as(root, func() {
		for _, kind := range []uint32{unix.S_IFCHR, unix.S_IFBLK} {
			v.want("make a device", unix.Mknod(v.path("device"), kind|0o666, int(unix.Mkdev(1, 3))), denied...)
		}
		v.want("open a device to all", unix.Chmod(v.path("null"), 0o666), denied...)
		unix.Chmod(v.path("own"), 0o6755)
		v.want("create", unix.Mknod(v.path("made"), unix.S_IFREG|0o6755, 0), append(denied, 0)...)
		v.want("write", v.try("armed", unix.O_WRONLY), append(denied, 0)...)
	})
	v.onHost(func() {
		for _, name := range []string{"own", "made"} {
			var st unix.Stat_t
			if unix.Stat(v.host(name), &st) == nil && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
				v.errorf("%s has mode %o on the host", name, st.Mode)
			}
		}
	})
	v.as(someone, func() { v.write("given", "") })
	v.onHost(func() {
		var st unix.Stat_t
		v.must("stat", unix.Stat(v.host("given"), &st))
		if st.Uid != someone.UID || st.Gid != someone.GID {
			v.errorf("what a user of root's job creates belongs to %d:%d", st.Uid, st.Gid)
		}
	})
}

// outside has the host make a directory beside the served one that all may write. It returns its path.
func outside(v *vm) string {
	dir := filepath.Join(filepath.Dir(v.Host), "outside")
	v.onHost(func() {
		v.must("mkdir", os.Mkdir(dir, 0o755))
		v.atEnd(func() { os.RemoveAll(dir) })
		v.must("write", os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o644))
		v.must("chmod", unix.Chmod(dir, 0o777))
		v.must("chmod", unix.Chmod(filepath.Join(dir, "secret"), 0o666))
	})
	return dir
}

func untouched(v *vm, dir string) {
	v.onHost(func() {
		entries, err := os.ReadDir(dir)
		v.must("list", err)
		text, err := os.ReadFile(filepath.Join(dir, "secret"))
		if len(entries) != 1 || err != nil || string(text) != "secret" {
			v.errorf("outside of the directory: %v, %q, %v", entries, text, err)
		}
	})
}

// linksOutside: a link is text, and is followed in the VM's own files.
func linksOutside(v *vm) {
	dir := outside(v)
	targets := map[string]string{"absolute": dir, "relative": "../outside", "proc": "/proc/self/root" + dir}
	v.onHost(func() {
		for name, target := range targets {
			v.must("symlink", os.Symlink(target, v.host("host-"+name)))
		}
	})
	v.as(v.Caller, func() {
		for name, target := range targets {
			v.must("symlink", unix.Symlink(target, v.path("vm-"+name)))
			for _, name := range []string{"host-" + name, "vm-" + name} {
				v.want("read through "+name, v.try(name+"/secret", unix.O_RDONLY), unix.ENOENT)
				v.want("create through "+name, v.try(name+"/new", unix.O_WRONLY|unix.O_CREAT), unix.ENOENT)
				v.want("unlink through "+name, unix.Unlink(v.path(name+"/secret")), unix.ENOENT)
				v.want("rename through "+name, unix.Rename(v.path(name+"/secret"), v.path("here")), unix.ENOENT)
				v.want("list "+name, v.try(name, unix.O_RDONLY|unix.O_DIRECTORY), unix.ENOENT)
				buf := make([]byte, 4096)
				if n, err := unix.Readlink(v.path(name), buf); err != nil || string(buf[:n]) != target {
					v.errorf("link %s is %q, %v", name, buf[:max(n, 0)], err)
				}
			}
		}
	})
	untouched(v, dir)
}

func dotDot(v *vm) {
	dir := outside(v)
	v.as(v.Caller, func() {
		v.mkdir("d", 0o755)
		for _, way := range []string{"../outside", "d/../../outside", "d/../../../outside"} {
			v.want("read "+way, v.try(way+"/secret", unix.O_RDONLY), unix.ENOENT)
			v.want("create in "+way, v.try(way+"/new", unix.O_WRONLY|unix.O_CREAT), unix.ENOENT)
		}
		fd := v.open("d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		_, err := unix.Openat(fd, "../../outside/secret", unix.O_RDONLY, 0)
		v.want("read from a descriptor", err, unix.ENOENT)
		unix.Close(fd)
		if v.stat("d/..").Ino != v.stat(".").Ino {
			v.errorf("d/.. is not the directory")
		}
	})
	untouched(v, dir)
}

// forgedHandles: root of the VM opens files by handles, which have the numbers that the gateway gave to files: those of
// other files, and any. What it opens so is in the directory.
func forgedHandles(v *vm) {
	v.onHost(func() { v.give("f", "text", 0o644, v.Caller) })
	v.as(root, func() {
		inside := map[uint64]bool{}
		v.must("walk", filepath.WalkDir(v.path("."), func(path string, _ fs.DirEntry, err error) error {
			var st unix.Stat_t
			err = errors.Join(err, unix.Lstat(path, &st))
			inside[st.Ino] = true
			return err
		}))
		at := v.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		defer unix.Close(at)
		real, _, err := unix.NameToHandleAt(unix.AT_FDCWD, v.path("f"), 0)
		if err != nil {
			v.want("a file's handle", err, unix.EOPNOTSUPP, unix.EOVERFLOW)
			return
		}
		try := func(number uint64) {
			bytes := slices.Clone(real.Bytes())
			binary.NativeEndian.PutUint32(bytes, uint32(number>>32)) // as fs/fuse/inode.c has it
			binary.NativeEndian.PutUint32(bytes[4:], uint32(number))
			fd, err := unix.OpenByHandleAt(at, unix.NewFileHandle(real.Type(), bytes), unix.O_RDONLY|unix.O_NONBLOCK)
			if err != nil {
				return
			}
			defer unix.Close(fd)
			if ino := v.fstat(fd).Ino; !inside[ino] {
				v.errorf("a handle of number %d opens the file %d, which is not in the directory", number, ino)
			}
		}
		for number := range uint64(300) {
			try(number)
		}
		for bit := range 64 {
			try(1<<bit - 1)
			try(^uint64(0) << bit)
		}
	})
}

// kernelFiles: what is mounted below is empty, or cannot be opened.
func kernelFiles(v *vm) {
	v.onHost(func() {
		for _, name := range []string{"proc", "sys"} {
			v.mkdir(name, 0o755)
			v.must("mount", unix.Mount(name, v.host(name), name+map[string]string{"sys": "fs"}[name], 0, ""))
			v.atEnd(func() { unix.Unmount(v.host(name), unix.MNT_DETACH) })
		}
		v.give("status", "beneath", 0o666, v.Caller)
		v.must("mount", unix.Mount("/proc/self/status", v.host("status"), "", unix.MS_BIND, ""))
		v.atEnd(func() { unix.Unmount(v.host("status"), unix.MNT_DETACH) })
	})
	for _, who := range []Identity{v.Caller, root} {
		v.as(who, func() {
			for _, name := range []string{"proc/self/status", "proc/version", "sys/kernel/mm"} {
				v.want("look at "+name, unix.Access(v.path(name), unix.F_OK), unix.ENOENT, unix.EACCES)
			}
			if err := v.try("status", unix.O_RDONLY); err != nil {
				v.want("read a file of the kernel", err, denied...)
			} else { // what was mounted after the directory was served is not there, but what it covers
				v.holds("status", "beneath")
			}
			v.want("create in /proc", v.try("proc/new", unix.O_CREAT|unix.O_WRONLY), unix.EACCES, unix.EPERM,
				unix.EROFS, unix.EOPNOTSUPP)
		})
	}
}

func devices(v *vm) {
	v.onHost(func() {
		v.must("mknod", unix.Mknod(v.host("zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
		v.must("chmod", unix.Chmod(v.host("zero"), 0o666))
	})
	for _, who := range []Identity{v.Caller, root} {
		v.as(who, func() {
			for _, flags := range []int{unix.O_RDONLY, unix.O_RDWR} {
				v.want("open a device", v.try("zero", flags), unix.EACCES, unix.EPERM, unix.ENXIO)
			}
		})
	}
}

// sockets: those of the host have no listener in the VM, and pipes no other end.
func sockets(v *vm) {
	reader := -1
	v.onHost(func() {
		old := unix.Umask(0)
		defer unix.Umask(old)
		l, err := net.Listen("unix", v.host("socket"))
		v.must("listen", err)
		v.atEnd(func() { l.Close() })
		v.must("mkfifo", unix.Mkfifo(v.host("pipe"), 0o666))
		reader, err = unix.Open(v.host("pipe"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		v.must("open", err)
		v.atEnd(func() { unix.Close(reader) })
	})
	v.as(v.Caller, func() {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		v.must("socket", err)
		defer unix.Close(s)
		v.want("connect", unix.Connect(s, &unix.SockaddrUnix{Name: v.path("socket")}), unix.ECONNREFUSED)
		if reader >= 0 { // this process is the host, too: the one of the table of this thread
			unix.Close(reader)
		}
		v.want("a pipe", v.try("pipe", unix.O_WRONLY|unix.O_NONBLOCK), unix.ENXIO)
	})
}

// readOnly tries every call that changes something.
func readOnly(v *vm) {
	var before string
	v.onHost(func() {
		v.give("f", "text", 0o666, v.Caller)
		v.mkdir("d", 0o777)
		v.must("chown", os.Chown(v.host("d"), int(v.Caller.UID), int(v.Caller.GID)))
		v.must("symlink", os.Symlink("f", v.host("l")))
		v.must("chown", os.Lchown(v.host("l"), int(v.Caller.UID), int(v.Caller.GID)))
		v.must("setxattr", unix.Setxattr(v.host("f"), "user.a", []byte("b"), 0))
		before = picture(v)
	})
	v.as(v.Caller, func() {
		v.holds("f", "text")
		fd := v.open("f", unix.O_RDONLY, 0)
		defer unix.Close(fd)
		times := []unix.Timespec{{Sec: 1}, {Sec: 1}}
		for what, err := range map[string]error{
			"write":             v.try("f", unix.O_WRONLY),
			"read and write":    v.try("f", unix.O_RDWR),
			"append":            v.try("f", unix.O_WRONLY|unix.O_APPEND),
			"truncate at open":  v.try("f", unix.O_RDONLY|unix.O_TRUNC),
			"create":            v.try("new", unix.O_WRONLY|unix.O_CREAT),
			"create to read":    v.try("new", unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL),
			"create in one":     v.try("d/new", unix.O_WRONLY|unix.O_CREAT),
			"mkdir":             unix.Mkdir(v.path("new"), 0o755),
			"mknod":             unix.Mknod(v.path("new"), unix.S_IFREG|0o644, 0),
			"mkfifo":            unix.Mkfifo(v.path("new"), 0o644),
			"symlink":           unix.Symlink("f", v.path("new")),
			"link":              unix.Link(v.path("f"), v.path("new")),
			"unlink":            unix.Unlink(v.path("f")),
			"unlink a link":     unix.Unlink(v.path("l")),
			"rmdir":             unix.Rmdir(v.path("d")),
			"rename":            unix.Rename(v.path("f"), v.path("new")),
			"rename into one":   unix.Rename(v.path("f"), v.path("d/new")),
			"exchange":          unix.Renameat2(-1, v.path("f"), -1, v.path("l"), unix.RENAME_EXCHANGE),
			"chmod":             unix.Chmod(v.path("f"), 0o600),
			"fchmod":            unix.Fchmod(fd, 0o600),
			"chmod the top":     unix.Chmod(v.path("."), 0o777),
			"chown":             unix.Chown(v.path("f"), int(v.Caller.UID), int(v.Caller.GID)),
			"truncate":          unix.Truncate(v.path("f"), 1),
			"times":             unix.UtimesNanoAt(-1, v.path("f"), times, 0),
			"times of a link":   unix.UtimesNanoAt(-1, v.path("l"), times, unix.AT_SYMLINK_NOFOLLOW),
			"set an attribute":  unix.Setxattr(v.path("f"), "user.c", []byte("d"), 0),
			"drop an attribute": unix.Removexattr(v.path("f"), "user.a"),
		} {
			v.want(what, err, unix.EROFS)
		}
		v.want("a file without a name", v.try(".", unix.O_TMPFILE|unix.O_RDWR), unix.EROFS, unix.EOPNOTSUPP)
	})
	v.onHost(func() {
		if after := picture(v); after != before {
			v.errorf("it was changed: %s, then %s", before, after)
		}
	})
}

// picture is what of the directory a call could change.
func picture(v *vm) string {
	var all strings.Builder
	err := filepath.Walk(v.Host, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		attrs := make([]byte, 256)
		n, _ := unix.Llistxattr(path, attrs)
		fmt.Fprintf(&all, "%s %v %d %v %q, ", path, info.Mode(), info.Size(), info.ModTime(), attrs[:max(n, 0)])
		return nil
	})
	v.must("walk", err)
	return all.String()
}

// disconnect ends the connection while several processes are at it.
func disconnect(v *vm) {
	v.as(v.Caller, func() { v.write("f", strings.Repeat("x", 1<<20)) })
	loops := map[string]func() error{
		"stat":  func() error { var st unix.Stat_t; return unix.Lstat(v.path("none"), &st) },
		"open":  func() error { return v.try("f", unix.O_RDWR) },
		"make":  func() error { return v.try("new", unix.O_WRONLY|unix.O_CREAT) },
		"mkdir": func() error { return unix.Mkdir(v.path("d"), 0o755) },
		"times": func() error { return unix.Utimes(v.path("f"), make([]unix.Timeval, 2)) },
		"write": func() error {
			fd, err := unix.Open(v.path("f"), unix.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if _, err = unix.Pwrite(fd, make([]byte, 1<<20), 0); err == nil {
				err = unix.Fsync(fd)
			}
			return err
		},
	}
	var all []func()
	var begun sync.WaitGroup
	for what, do := range loops {
		begun.Add(1)
		all = append(all, func() {
			for n := 0; ; n++ {
				if n == 20 {
					begun.Done()
				}
				switch err := do(); err {
				case nil, unix.ENOENT, unix.EEXIST:
				case unix.ENOTCONN, unix.ECONNABORTED, unix.EIO, unix.EINTR:
					if n < 20 {
						v.fatalf("%s ended before it should: %v", what, err)
					}
					return
				default:
					v.fatalf("%s: %v", what, err)
				}
			}
		})
	}
	go func() {
		begun.Wait()
		v.disconnect()
	}()
	v.as(v.Caller, func() { v.together(all...) })
	v.as(v.Caller, func() {
		v.want("afterwards", v.try("f", unix.O_RDONLY), unix.ENOTCONN, unix.ECONNABORTED, unix.EIO)
	})
}
