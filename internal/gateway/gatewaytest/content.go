package gatewaytest

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func truncation(v *vm) {
	v.write("f", "0123456789")
	v.must("shrink", unix.Truncate(v.path("f"), 4))
	v.holds("f", "0123")
	v.must("grow", unix.Truncate(v.path("f"), 6))
	v.holds("f", "0123\x00\x00")
	fd := v.open("f", unix.O_RDWR, 0)
	v.must("fchmod", unix.Fchmod(fd, 0o400)) // what is open for writing stays so
	v.must("ftruncate", unix.Ftruncate(fd, 2))
	v.must("ftruncate", unix.Ftruncate(fd, 3))
	v.must("fchmod", unix.Fchmod(fd, 0o600))
	unix.Close(fd)
	v.holds("f", "01\x00")
	fd = v.open("f", unix.O_RDONLY, 0)
	v.want("of a file open for reading", unix.Ftruncate(fd, 0), unix.EINVAL, unix.EBADF)
	unix.Close(fd)
	fd = v.open("f", unix.O_WRONLY|unix.O_TRUNC, 0)
	if st := v.fstat(fd); st.Size != 0 {
		v.errorf("truncated at open, it has %d bytes", st.Size)
	}
	unix.Close(fd)
	v.mkdir("d", 0o755)
	v.want("of a directory", unix.Truncate(v.path("d"), 0), unix.EISDIR)
}

// lines is how many lines a writer appends.
const lines = 500

// appendLines appends lines that name the writer.
func (v *vm) appendLines(writer string) {
	fd := v.open("log", unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o644)
	defer unix.Close(fd)
	for i := range lines {
		line := fmt.Sprintf("%s %0*d\n", writer, i%80+10, i)
		if n, err := unix.Write(fd, []byte(line)); err != nil || n != len(line) {
			v.fatalf("a line of %d bytes: %d, %v", len(line), n, err)
		}
	}
}

// checkLines looks on the host whether each line of each writer is there, whole, in its order.
func (v *vm) checkLines(writers ...string) {
	text, err := os.ReadFile(v.host("log"))
	v.must("read", err)
	next := map[string]int{}
	for line := range strings.Lines(string(text)) {
		writer, _, _ := strings.Cut(line, " ")
		if i := next[writer]; line == fmt.Sprintf("%s %0*d\n", writer, i%80+10, i) {
			next[writer]++
		}
	}
	for _, writer := range writers {
		if next[writer] != lines {
			v.errorf("lines are lost: of %s, %d of %d are whole", writer, next[writer], lines)
		}
	}
}

func appends(v *vm) {
	v.as(v.Caller, func() {
		v.together(func() { v.appendLines("one") }, func() { v.appendLines("two") })
	})
	v.onHost(func() { v.checkLines("one", "two") })
}

// appendShared has two VMs take turns: not even they lose a line.
func appendShared(v *vm) {
	one, two := v.begin(0, v.Caller), v.begin(1, v.Caller)
	defer one.end()
	defer two.end()
	var fd int
	line := func(text string) {
		_, err := unix.Write(fd, []byte(text))
		v.must("write", err)
	}
	one.do(func() {
		fd = v.open("log", unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o644)
		line("one\n")
	})
	two.do(func() {
		fd := v.open("log", unix.O_WRONLY|unix.O_APPEND, 0)
		_, err := unix.Write(fd, []byte("two\n"))
		v.must("write", err)
		unix.Close(fd)
	})
	one.do(func() {
		line("three\n")
		unix.Close(fd)
	})
	v.onHost(func() {
		text, err := os.ReadFile(v.host("log"))
		v.must("read", err)
		if string(text) != "one\ntwo\nthree\n" {
			v.errorf("lines are lost: %q", text)
		}
	})
}

func unlinked(v *vm) {
	fd := v.open("f", unix.O_RDWR|unix.O_CREAT, 0o644)
	v.write("g", "replaces")
	over := v.open("over", unix.O_RDWR|unix.O_CREAT, 0o644)
	v.must("unlink", unix.Unlink(v.path("f")))
	v.must("rename over", unix.Rename(v.path("g"), v.path("over")))
	for what, fd := range map[string]int{"unlinked": fd, "replaced": over} {
		v.pwrite(fd, "0123456789", 0)
		v.must(what+": ftruncate", unix.Ftruncate(fd, 5))
		if got := v.pread(fd, 100, 0); got != "01234" {
			v.errorf("%s: it holds %q", what, got)
		}
		v.must(what+": fsync", unix.Fsync(fd))
		if st := v.fstat(fd); st.Size != 5 || st.Nlink != 0 {
			v.errorf("%s: %d bytes, %d links", what, st.Size, st.Nlink)
		}
		v.must(what+": fchmod", unix.Fchmod(fd, 0o600))
		v.must(what+": futimens", futimens(fd, &[2]unix.Timespec{{Sec: 1}, {Sec: 2}}))
		v.must(what+": fchown", unix.Fchown(fd, -1, int(v.Caller.Groups[0])))
		v.must(what+": fsetxattr", unix.Fsetxattr(fd, "user.a", []byte("b"), 0))
		buf := make([]byte, 10)
		if n, err := unix.Fgetxattr(fd, "user.a", buf); err != nil || string(buf[:n]) != "b" {
			v.errorf("%s: attribute %q, %v", what, buf[:max(n, 0)], err)
		}
		if st := v.fstat(fd); st.Mode&0o777 != 0o600 || st.Mtime.Sec != 2 || st.Gid != v.Caller.Groups[0] {
			v.errorf("%s: mode %o, changed at %d, group %d", what, st.Mode, st.Mtime.Sec, st.Gid)
		}
		v.must(what+": close", unix.Close(fd))
	}
	v.holds("over", "replaces")
}

// replaced: the host writes a new file and renames it over the old one, as careful programs do.
func replaced(v *vm) {
	v.onHost(func() {
		v.give("f", "old", 0o644, v.Caller)
		v.give("new", "the new one", 0o640, v.Caller)
	})
	p := v.begin(0, v.Caller)
	defer p.end()
	var fd int
	p.do(func() { fd = v.open("f", unix.O_RDWR, 0) })
	v.onHost(func() { v.must("rename", os.Rename(v.host("new"), v.host("f"))) })
	p.do(func() {
		if st := v.fstat(fd); st.Size != 3 || st.Mode&0o777 != 0o644 {
			v.errorf("the open file has %d bytes and mode %o", st.Size, st.Mode)
		}
		v.pwrite(fd, "OLD", 0)
		v.must("fchmod", unix.Fchmod(fd, 0o600))
		v.must("close", unix.Close(fd))
	})
	v.onHost(func() {
		text, err := os.ReadFile(v.host("f"))
		v.must("read", err)
		info, err := os.Stat(v.host("f"))
		v.must("stat", err)
		if string(text) != "the new one" || info.Mode() != 0o640 {
			v.errorf("the new file holds %q, with %v", text, info.Mode())
		}
	})
}

func tmpfileLink(v *vm) {
	fd, err := unix.Open(v.path("."), unix.O_TMPFILE|unix.O_RDWR, 0o644)
	if err != nil {
		v.fatalf("O_TMPFILE: %v", err)
	}
	defer unix.Close(fd)
	v.pwrite(fd, "text", 0)
	if err := linkDescriptor(fd, v.path("named")); err != nil {
		v.fatalf("linkat: %v", err)
	}
	v.holds("named", "text")
}

func sparse(v *vm) {
	const mib = 1 << 20
	fd := v.open("f", unix.O_RDWR|unix.O_CREAT, 0o644)
	defer unix.Close(fd)
	v.pwrite(fd, "start", 0)
	v.pwrite(fd, "middle", 8*mib)
	v.must("ftruncate", unix.Ftruncate(fd, 16*mib))
	v.must("fsync", unix.Fsync(fd))
	if st := v.fstat(fd); st.Size != 16*mib || st.Blocks*512 > mib {
		v.errorf("%d bytes in %d blocks", st.Size, st.Blocks)
	}
	for _, c := range []struct {
		whence   int
		from, at int64
	}{{unix.SEEK_DATA, 0, 0}, {unix.SEEK_DATA, mib, 8 * mib}, {unix.SEEK_HOLE, 8 * mib, 8*mib + 4096}} {
		got, err := unix.Seek(fd, c.from, c.whence)
		if err != nil || got < c.at || got > c.at+64<<10 {
			v.errorf("seek (%d) from %d: %d, %v", c.whence, c.from, got, err)
		}
	}
	_, err := unix.Seek(fd, 9*mib, unix.SEEK_DATA)
	v.want("data behind the last", err, unix.ENXIO)
	if got := v.pread(fd, 10, 4*mib); got != strings.Repeat("\x00", 10) {
		v.errorf("a hole holds %q", got)
	}
}

func allocates(v *vm) {
	const kib = 1 << 10
	fd := v.open("f", unix.O_RDWR|unix.O_CREAT, 0o644)
	defer unix.Close(fd)
	v.want("allocate", unix.Fallocate(fd, 0, 0, 256*kib), 0)
	if st := v.fstat(fd); st.Size != 256*kib || st.Blocks*512 < 256*kib {
		v.errorf("allocated: %d bytes in %d blocks", st.Size, st.Blocks)
	}
	v.want("keep the size", unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 256*kib, 256*kib), 0)
	if st := v.fstat(fd); st.Size != 256*kib {
		v.errorf("with its size kept it has %d bytes", st.Size)
	}
	v.pwrite(fd, strings.Repeat("x", 256*kib), 0)
	v.must("fsync", unix.Fsync(fd))
	v.pread(fd, 256*kib, 0)
	before := v.fstat(fd).Blocks
	v.want("punch a hole", unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 64*kib, 64*kib), 0)
	if got := v.pread(fd, 64*kib, 64*kib); got != strings.Repeat("\x00", 64*kib) {
		v.errorf("the hole has content")
	}
	if after := v.fstat(fd).Blocks; after >= before {
		v.errorf("it had %d blocks, and now %d", before, after)
	}
	v.want("zero", unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE, 0, 4*kib), 0, unix.EOPNOTSUPP) // tmpfs has none
	if got := v.pread(fd, 1, 4*kib); got != "x" {
		v.errorf("behind what was zeroed is %q", got)
	}
}

func bigFiles(v *vm) {
	const gib = int64(1) << 30
	fd := v.open("f", unix.O_RDWR|unix.O_CREAT, 0o644)
	defer unix.Close(fd)
	for _, at := range []int64{1<<31 - 3, 4*gib - 3, 5 * gib, 40 * gib} {
		v.pwrite(fd, "far away", at)
	}
	for _, at := range []int64{1<<31 - 3, 4*gib - 3, 5 * gib, 40 * gib} {
		if got := v.pread(fd, 8, at); got != "far away" {
			v.errorf("at %d it holds %q", at, got)
		}
	}
	v.must("truncate", unix.Truncate(v.path("f"), 6*gib))
	if st := v.stat("f"); st.Size != uint64(6*gib) {
		v.errorf("it has %d bytes", st.Size)
	}
	if end, err := unix.Seek(fd, 0, 2); err != nil || end != 6*gib {
		v.errorf("its end is %d, %v", end, err)
	}
}

func copies(v *vm) {
	text := strings.Repeat("0123456789abcdef", 40000)
	v.write("f", text)
	from := v.open("f", unix.O_RDONLY, 0)
	defer unix.Close(from)
	to := v.open("g", unix.O_RDWR|unix.O_CREAT, 0o644)
	defer unix.Close(to)
	for sum := 0; sum < len(text); {
		n, err := unix.CopyFileRange(from, nil, to, nil, len(text), 0)
		if err != nil || n == 0 {
			v.fatalf("copy_file_range: %d, %v", n, err)
		}
		sum += n
	}
	v.holds("g", text)
	v.must("truncate", unix.Ftruncate(to, 0))
	_, err := unix.Seek(to, 0, 0)
	v.must("seek", err)
	for off := int64(0); off < int64(len(text)); {
		n, err := unix.Sendfile(to, from, &off, len(text))
		if err != nil || n == 0 {
			v.fatalf("sendfile: %d, %v", n, err)
		}
	}
	v.holds("g", text)
	_, err = unix.Pwritev(to, [][]byte{[]byte("one"), []byte("two")}, 1)
	v.must("pwritev", err)
	a, b := make([]byte, 4), make([]byte, 4)
	if _, err = unix.Preadv(to, [][]byte{a, b}, 0); err != nil || string(a)+string(b) != "0onetwo7" {
		v.errorf("readv: %q %q, %v", a, b, err)
	}
}

func syncs(v *vm) {
	v.write("f", "text")
	fd := v.open("f", unix.O_RDWR, 0)
	defer unix.Close(fd)
	v.want("fsync", unix.Fsync(fd), 0)
	v.want("fdatasync", unix.Fdatasync(fd), 0)
	v.want("syncfs", unix.Syncfs(fd), 0)
	at := v.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	defer unix.Close(at)
	v.want("fsync of a directory", unix.Fsync(at), 0)
	var st unix.Statfs_t
	if err := unix.Fstatfs(at, &st); err != nil || st.Blocks == 0 || st.Bfree > st.Blocks || st.Namelen != 255 {
		v.errorf("statfs: %+v, %v", st, err)
	}
	for _, flag := range []int{unix.O_SYNC, unix.O_DSYNC} {
		fd := v.open("f", unix.O_WRONLY|flag, 0)
		v.pwrite(fd, "TEXT", 0)
		unix.Close(fd)
	}
}

func direct(v *vm) {
	buf, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	v.must("memory", err)
	for i := range buf {
		buf[i] = byte(i / 1000)
	}
	fd := v.open("f", unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT, 0o644)
	defer unix.Close(fd)
	v.pwrite(fd, string(buf[:0]), 0)
	if n, err := unix.Pwrite(fd, buf, 4096); err != nil || n != len(buf) {
		v.fatalf("%d, %v", n, err)
	}
	want := string(buf)
	clear(buf)
	if n, err := unix.Pread(fd, buf, 4096); err != nil || n != len(buf) || string(buf) != want {
		v.errorf("%d bytes, %v", n, err)
	}
}

// mapped: pages that are shared are the file, also for other processes and at last on the host; private ones are not.
func mapped(v *vm) {
	const size = 3 * 4096
	v.as(v.Caller, func() {
		v.write("f", strings.Repeat("a", size))
		fd := v.open("f", unix.O_RDWR, 0)
		shared, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		v.must("shared", err)
		private, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		v.must("private", err)
		copy(private, "private")
		copy(shared[4090:], "across pages")
		if got := v.pread(fd, 12, 4090); got != "across pages" {
			v.errorf("a read of what was stored: %q", got)
		}
		v.pwrite(fd, "written", 5000)
		if got := string(shared[5000:5007]); got != "written" {
			v.errorf("a load of what was written: %q", got)
		}
		v.together(func() {
			fd := v.open("f", unix.O_RDWR, 0)
			other, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			v.must("shared", err)
			if got := string(other[4090:4102]); got != "across pages" {
				v.errorf("another process loads %q", got)
			}
			copy(other[9000:], "other")
			v.must("munmap", unix.Munmap(other))
		})
		if got := string(shared[9000:9005]); got != "other" {
			v.errorf("what another process stored: %q", got)
		}
		v.must("msync", unix.Msync(shared, unix.MS_SYNC))
		copy(shared[10000:], "closed")
		v.must("close", unix.Close(fd)) // a mapping outlives its descriptor
		v.must("msync", unix.Msync(shared, unix.MS_SYNC))
		v.must("munmap", unix.Munmap(shared))
		v.must("munmap", unix.Munmap(private))
	})
	v.onHost(func() {
		text, err := os.ReadFile(v.host("f"))
		v.must("read", err)
		if len(text) != size {
			v.fatalf("on the host it has %d bytes", len(text))
		}
		for at, want := range map[int]string{0: "aaaaaaa", 4090: "across pages", 5000: "written", 9000: "other",
			10000: "closed"} {
			if got := string(text[at : at+len(want)]); got != want {
				v.errorf("on the host, at %d: %q, not %q", at, got, want)
			}
		}
	})
}

// lock takes a lock on part of a file without waiting.
func lock(fd int, kind int16, from, size int64) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: kind, Start: from, Len: size})
}

func locks(v *vm) {
	v.write("f", "0123456789")
	fd := v.open("f", unix.O_RDWR, 0)
	v.must("fcntl", lock(fd, unix.F_WRLCK, 0, 5))
	v.together(func() {
		fd := v.open("f", unix.O_RDWR, 0)
		defer unix.Close(fd)
		v.want("a lock that is taken", lock(fd, unix.F_RDLCK, 4, 1), unix.EAGAIN, unix.EACCES)
		v.want("a lock beside it", lock(fd, unix.F_WRLCK, 5, 5), 0)
		held := unix.Flock_t{Type: unix.F_RDLCK, Start: 0, Len: 10}
		v.must("F_GETLK", unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &held))
		if held.Type != unix.F_WRLCK || held.Start != 0 || held.Len != 5 {
			v.errorf("the lock that is taken: %+v", held)
		}
	})
	v.want("a lock of who has ended", lock(fd, unix.F_WRLCK, 5, 5), 0)
	v.must("unlock", lock(fd, unix.F_UNLCK, 0, 0))
	v.must("read lock", lock(fd, unix.F_RDLCK, 0, 0))
	v.together(func() {
		fd := v.open("f", unix.O_RDWR, 0)
		defer unix.Close(fd)
		v.want("two who read", lock(fd, unix.F_RDLCK, 0, 0), 0)
		v.want("one who writes", lock(fd, unix.F_WRLCK, 0, 0), unix.EAGAIN, unix.EACCES)
	})
	v.must("unlock", lock(fd, unix.F_UNLCK, 0, 0))

	unix.Close(fd)

	held := make(chan bool)
	v.together(func() {
		fd := v.open("f", unix.O_RDWR, 0)
		v.must("flock", unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB))
		held <- true
		<-held
		v.must("unlock", unix.Flock(fd, unix.LOCK_UN))
		unix.Close(fd)
	}, func() {
		fd := v.open("f", unix.O_RDWR, 0)
		<-held
		v.want("flock that is taken", unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
		held <- true
		v.want("flock that is waited for", unix.Flock(fd, unix.LOCK_EX), 0)
		unix.Close(fd)
	})
	fd = v.open("f", unix.O_RDWR, 0)
	v.want("flock of who has closed", unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB), 0)
	unix.Close(fd)
}

// locksShared has one VM take locks, and another and the host ask for them.
func locksShared(v *vm) {
	taken := func(where string) {
		for what, ask := range map[string]func(fd int) error{
			"fcntl": func(fd int) error { return lock(fd, unix.F_WRLCK, 0, 0) },
			"flock": func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) },
		} {
			fd, err := unix.Open(v.path("f"), unix.O_RDWR|unix.O_CLOEXEC, 0)
			v.must("open", err)
			if err := ask(fd); err != unix.EAGAIN {
				v.errorf("%s on %s: both have the lock (%v)", what, where, err)
			}
			unix.Close(fd)
		}
	}
	v.onHost(func() { v.give("f", "", 0o644, v.Caller) })
	holder := v.begin(0, v.Caller)
	defer holder.end()
	holder.do(func() {
		fd, flocked := v.open("f", unix.O_RDWR, 0), v.open("f", unix.O_RDWR, 0)
		v.must("fcntl", lock(fd, unix.F_WRLCK, 0, 0))
		v.must("flock", unix.Flock(flocked, unix.LOCK_EX|unix.LOCK_NB))
	})
	v.onHost(func() { taken("the host") })
	v.in(1, v.Caller, func() { taken("another VM") })
}
