package gatewaytest

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func mountsBelow(v *vm) {
	v.onHost(func() {
		v.mkdir("m", 0o755)
		v.must("mount", unix.Mount("tmpfs", v.host("m"), "tmpfs", 0, "mode=0755"))
		v.atEnd(func() { unix.Unmount(v.host("m"), unix.MNT_DETACH) })
		v.give("m/f", "below", 0o644, v.Caller)
		v.give("f", "above", 0o644, v.Caller)
	})
	v.as(v.Caller, func() {
		v.holds("m/f", "below")
		v.want("rename across", unix.Rename(v.path("f"), v.path("m/g")), unix.EXDEV, unix.EACCES)
		v.want("link across", unix.Link(v.path("f"), v.path("m/g")), unix.EXDEV, unix.EACCES)
	})
}

// files are made and deleted, and the host sees it.
func files(v *vm) {
	v.as(v.Caller, func() { filesOf(v) })
	v.onHost(func() {
		if _, err := os.Lstat(v.host("d")); err == nil {
			v.errorf("the host still has it")
		}
	})
}

func filesOf(v *vm) {
	v.write("f", "text")
	v.holds("f", "text")
	v.want("create exclusively what is there", v.try("f", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY), unix.EEXIST)
	v.want("open or create what is there", v.try("f", unix.O_CREAT|unix.O_RDWR), 0)
	v.want("open what is not there", v.try("g", unix.O_RDONLY), unix.ENOENT)
	v.want("open a file as a directory", v.try("f", unix.O_RDONLY|unix.O_DIRECTORY), unix.ENOTDIR)
	v.want("open below a file", v.try("f/g", unix.O_RDONLY), unix.ENOTDIR)
	fd := v.open("locked", unix.O_RDWR|unix.O_CREAT, 0o400) // who creates a file may write it
	v.pwrite(fd, "once", 0)
	unix.Close(fd)
	v.holds("locked", "once")
	v.want("write a file of mode 400", v.try("locked", unix.O_WRONLY), unix.EACCES)
	v.mkdir("d", 0o755)
	v.want("mkdir what is there", unix.Mkdir(v.path("d"), 0o755), unix.EEXIST)
	v.want("write a directory", v.try("d", unix.O_WRONLY), unix.EISDIR)
	v.want("unlink a directory", unix.Unlink(v.path("d")), unix.EISDIR, unix.EPERM)
	v.want("rmdir a file", unix.Rmdir(v.path("f")), unix.ENOTDIR)
	v.write("d/g", "")
	v.want("rmdir a full one", unix.Rmdir(v.path("d")), unix.ENOTEMPTY, unix.EEXIST)
	v.want("unlink", unix.Unlink(v.path("d/g")), 0)
	v.want("unlink again", unix.Unlink(v.path("d/g")), unix.ENOENT)
	v.want("rmdir", unix.Rmdir(v.path("d")), 0)
}

// access asks first and opens then, as one's own kernel would answer both.
func access(v *vm) {
	foreign(v)
	groupOnly := Identity{UID: another.UID, GID: someone.Groups[0]}
	v.onHost(func() {
		v.mkdir("group-dir", 0o070)
		v.must("chown", os.Chown(v.host("group-dir"), int(groupOnly.UID), int(groupOnly.GID)))
		v.must("chmod", unix.Chmod(v.host("group-dir"), 0o070))
	})
	for _, who := range []Identity{v.Caller, root} {
		v.as(who, func() {
			for _, name := range []string{"own", "secret", "public", "group", "barred"} {
				for mode, flags := range map[uint32]int{unix.R_OK: unix.O_RDONLY, unix.W_OK: unix.O_WRONLY,
					unix.R_OK | unix.W_OK: unix.O_RDWR} {
					asked, opened := unix.Access(v.path(name), mode), v.try(name, flags)
					if (asked == nil) != (opened == nil) {
						v.errorf("user %d, %s: access(%d) is %v, open %v", who.UID, name, mode, asked, opened)
					}
				}
			}
			v.want("access to execute", unix.Access(v.path("own"), unix.X_OK), unix.EACCES)
			v.want("chdir by a group", unix.Chdir(v.path("group-dir")), 0)
			v.want("chdir into a closed one", unix.Chdir(v.path("closed")), unix.EACCES)
		})
	}
}

// exits is a program that ends with status 0 and needs no file beside it: `mov eax, 60; xor edi, edi; syscall`.
func exits() string {
	code := []byte{0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05}
	const start, head, entry = 0x400000, 64, 56 // where it is loaded; sizes of the file's head and of its one entry
	file := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	for _, field := range []any{uint16(elf.ET_EXEC), uint16(elf.EM_X86_64), uint32(elf.EV_CURRENT),
		uint64(start + head + entry), uint64(head), uint64(0), uint32(0), uint16(head), uint16(entry), uint16(1),
		uint16(0), uint16(0), uint16(0),
		uint32(elf.PT_LOAD), uint32(elf.PF_R | elf.PF_X), uint64(0), uint64(start), uint64(start),
		uint64(head + entry + len(code)), uint64(head + entry + len(code)), uint64(4096)} {
		file, _ = binary.Append(file, binary.LittleEndian, field)
	}
	return string(append(file, code...))
}

func executes(v *vm) {
	v.onHost(func() {
		v.give("program", exits(), 0o755, v.Caller)
		v.give("plain", exits(), 0o644, v.Caller)
	})
	v.onVM(func() {
		if out, err := v.program(v.Caller, "program").CombinedOutput(); err != nil {
			v.errorf("%v: %s", err, out)
		}
		if err := v.program(v.Caller, "plain").Run(); err == nil {
			v.errorf("a file that is not executable was run")
		}
	})
}

func links(v *vm) {
	v.write("f", "text")
	v.must("symlink", unix.Symlink("f", v.path("l")))
	v.holds("l", "text")
	v.want("open a link itself", v.try("l", unix.O_RDONLY|unix.O_NOFOLLOW), unix.ELOOP)
	v.must("symlink", unix.Symlink("circle", v.path("circle")))
	v.want("a circle", v.try("circle", unix.O_RDONLY), unix.ELOOP)
	long := strings.Repeat("x/", 2047) + "y"
	v.must("symlink", unix.Symlink(long, v.path("long")))
	buf := make([]byte, 5000)
	if n, err := unix.Readlink(v.path("long"), buf); err != nil || string(buf[:n]) != long {
		v.errorf("a link of %d bytes has %d, %v", len(long), n, err)
	}
	if st := v.stat("long"); st.Size != uint64(len(long)) {
		v.errorf("its size is %d", st.Size)
	}
	v.must("unlink", unix.Unlink(v.path("l")))
	v.holds("f", "text")
}

func hardLinks(v *vm) {
	v.write("f", "text")
	v.mkdir("d", 0o755)
	v.must("link", unix.Link(v.path("f"), v.path("d/g")))
	f, g := v.stat("f"), v.stat("d/g")
	if f.Ino != g.Ino || f.Nlink != 2 || g.Nlink != 2 {
		v.errorf("files %d and %d, with %d and %d links", f.Ino, g.Ino, f.Nlink, g.Nlink)
	}
	v.write("d/g", "changed")
	v.holds("f", "changed")
	v.want("over a file", unix.Link(v.path("f"), v.path("d/g")), unix.EEXIST)
	v.want("of a directory", unix.Link(v.path("d"), v.path("e")), unix.EPERM)
	v.must("unlink", unix.Unlink(v.path("f")))
	v.holds("d/g", "changed")
	if st := v.stat("d/g"); st.Nlink != 1 {
		v.errorf("it has %d links", st.Nlink)
	}
	v.must("symlink", unix.Symlink("none", v.path("l")))
	v.must("link of a link", unix.Linkat(unix.AT_FDCWD, v.path("l"), unix.AT_FDCWD, v.path("l2"), 0))
	if st := v.stat("l2"); st.Mode&unix.S_IFMT != unix.S_IFLNK {
		v.errorf("it is %o", st.Mode)
	}
}

func renames(v *vm) {
	to := func(from, to string) error { return unix.Rename(v.path(from), v.path(to)) }
	v.write("a", "a")
	v.write("b", "b")
	fd := v.open("b", unix.O_RDONLY, 0)
	v.want("over a file", to("a", "b"), 0)
	v.holds("b", "a")
	v.want("its old name", v.try("a", unix.O_RDONLY), unix.ENOENT)
	if got := v.pread(fd, 10, 0); got != "b" {
		v.errorf("the open file that lost its name holds %q", got)
	}
	unix.Close(fd)
	v.mkdir("d", 0o755)
	v.mkdir("e", 0o755)
	v.mkdir("d/in", 0o755)
	v.write("d/in/f", "deep")
	fd = v.open("d/in/f", unix.O_RDWR, 0)
	v.want("across directories", to("d/in", "e/out"), 0)
	v.pwrite(fd, "DEEP", 0)
	unix.Close(fd)
	v.holds("e/out/f", "DEEP")
	v.want("into its own child", to("e", "e/out/e"), unix.EINVAL)
	v.want("over a full directory", to("d", "e"), unix.ENOTEMPTY, unix.EEXIST)
	v.want("a file over a directory", to("b", "d"), unix.EISDIR)
	v.want("a directory over a file", to("d", "b"), unix.ENOTDIR)
	v.want("over an empty directory", to("e/out", "d"), 0)
	v.holds("d/f", "DEEP")
	v.want("what is not there", to("none", "b"), unix.ENOENT)
	v.want("to itself", to("b", "b"), 0)
	v.must("link", unix.Link(v.path("b"), v.path("c")))
	v.want("over a link to the same", to("b", "c"), 0) // nothing happens, POSIX says
	v.holds("b", "a")
}

func renameFlags(v *vm) {
	to := func(from, to string, flags uint) error {
		return unix.Renameat2(unix.AT_FDCWD, v.path(from), unix.AT_FDCWD, v.path(to), flags)
	}
	v.write("a", "a")
	v.write("b", "b")
	v.mkdir("d", 0o755)
	v.write("d/f", "f")
	v.want("no replace", to("a", "b", unix.RENAME_NOREPLACE), unix.EEXIST)
	v.want("no replace, to a new name", to("a", "c", unix.RENAME_NOREPLACE), 0)
	v.want("exchange", to("b", "c", unix.RENAME_EXCHANGE), 0)
	v.holds("b", "a")
	v.holds("c", "b")
	v.want("exchange with a directory", to("b", "d", unix.RENAME_EXCHANGE), 0)
	v.holds("d", "a")
	v.holds("b/f", "f")
	v.want("exchange with nothing", to("b", "none", unix.RENAME_EXCHANGE), unix.ENOENT)
}

// listed reads a directory from its start, in small pieces.
func (v *vm) listed(fd int) []string {
	if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
		v.fatalf("rewind: %v", err)
	}
	var found []string
	buf := make([]byte, 4096)
	for {
		n, err := unix.ReadDirent(fd, buf)
		v.must("getdents", err)
		if n == 0 {
			slices.Sort(found)
			return found
		}
		_, _, found = unix.ParseDirent(buf[:n], -1, found)
	}
}

func names(v *vm) {
	var all []string
	for c := 1; c < 256; c++ {
		if name := string([]byte{byte(c)}); c != '/' && c != '.' {
			all = append(all, name, "x"+name+name)
		}
	}
	all = append(all, "...", " ", "-rf", "a\nb", "\xff\xfe\x80", "ä", "a\u0308", "con", "A", strings.Repeat("n", 255),
		strings.Repeat("\xf0", 255))
	slices.Sort(all)
	all = slices.Compact(all)
	for i, name := range all {
		if i%2 == 0 {
			v.write(name, name)
		} else {
			v.mkdir(name, 0o755)
		}
	}
	fd := v.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if got := v.listed(fd); !slices.Equal(got, all) {
		v.errorf("%d names are listed as %d, or as others", len(all), len(got))
	}
	unix.Close(fd)
	for _, name := range all {
		if st := v.stat(name); st.Mode&unix.S_IFMT == unix.S_IFREG {
			v.holds(name, name)
		}
	}
	v.want("a name of 256 bytes", v.try(strings.Repeat("n", 256), unix.O_WRONLY|unix.O_CREAT), unix.ENAMETOOLONG)
}

// deep makes a tree by descriptors, whose deepest names have no path that a call takes.
func deep(v *vm) {
	const levels = 60
	name := strings.Repeat("d", 200)
	at := v.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for i := range levels {
		what := fmt.Sprintf("level %d", i)
		v.must("mkdir, "+what, unix.Mkdirat(at, name, 0o755))
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		v.must("open, "+what, err)
		unix.Close(at)
		at = next
	}
	fd, err := unix.Openat(at, "f", unix.O_RDWR|unix.O_CREAT, 0o644)
	v.must("create", err)
	v.pwrite(fd, "deep", 0)
	if got := v.pread(fd, 10, 0); got != "deep" {
		v.errorf("it holds %q", got)
	}
	unix.Close(fd)
	v.must("unlink", unix.Unlinkat(at, "f", 0))
	for i := range levels {
		up, err := unix.Openat(at, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		v.must("..", err)
		unix.Close(at)
		v.must(fmt.Sprintf("rmdir, level %d", levels-i), unix.Unlinkat(up, name, unix.AT_REMOVEDIR))
		at = up
	}
	unix.Close(at)
}

func manyEntries(v *vm) {
	const entries = 10000
	v.onHost(func() {
		v.mkdir("d", 0o755)
		v.must("chown", os.Chown(v.host("d"), int(v.Caller.UID), int(v.Caller.GID)))
		for i := range entries {
			v.must("write", os.WriteFile(filepath.Join(v.host("d"), fmt.Sprintf("an-entry-%05d", i)), nil, 0o644))
		}
	})
	v.as(v.Caller, func() {
		fd := v.open("d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		defer unix.Close(fd)
		got := v.listed(fd)
		if n := len(slices.Compact(slices.Clone(got))); len(got) != entries || n != entries {
			v.fatalf("%d entries are listed, %d of them once", len(got), n)
		}
		v.write("d/late", "")
		if got := v.listed(fd); len(got) != entries+1 {
			v.errorf("after rewinding, %d entries are listed", len(got))
		}
		// As rm -r does, several hundred at a time.
		buf := make([]byte, 32<<10)
		v.must("rewind", func() error { _, err := unix.Seek(fd, 0, io.SeekStart); return err }())
		for {
			n, err := unix.ReadDirent(fd, buf)
			v.must("getdents", err)
			if n == 0 {
				break
			}
			var some []string
			_, _, some = unix.ParseDirent(buf[:n], -1, some)
			for _, name := range some {
				v.must("unlink", unix.Unlinkat(fd, name, 0))
			}
		}
		v.want("rmdir what was emptied", unix.Rmdir(v.path("d")), 0)
	})
}

func pipes(v *vm) {
	v.must("mkfifo", unix.Mkfifo(v.path("p"), 0o644))
	v.together(func() {
		fd := v.open("p", unix.O_WRONLY, 0)
		unix.Write(fd, []byte("through"))
		unix.Close(fd)
	}, func() {
		fd := v.open("p", unix.O_RDONLY, 0)
		buf := make([]byte, 100)
		if n, err := unix.Read(fd, buf); err != nil || string(buf[:n]) != "through" {
			v.errorf("%q, %v", buf[:max(n, 0)], err)
		}
		unix.Close(fd)
	})
}
