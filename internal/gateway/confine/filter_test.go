package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const tryWord = "try-filter"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == tryWord {
		tryFilter(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// someone is a caller of the tests; 640002 is one of the groups.
var someone = Caller{UID: 640001, GID: 640001, Groups: []uint32{640002, 640005}}

// tryFilter is a process of root behind the filter of someone. It prints what differs.
func tryFilter(dir string) {
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(path("file"), nil, 0o644), confine(someone)); err != nil {
		fmt.Println(err)
		return
	}
	want := func(what string, err error, errno unix.Errno) {
		if err != errno && !(errno == 0 && err == nil) {
			fmt.Printf("%s: %v, not %v\n", what, err, errno)
		}
	}
	call := func(number uintptr, args ...uintptr) error {
		args = append(args, 0, 0, 0)
		if n, _, errno := unix.RawSyscall(number, args[0], args[1], args[2]); errno != 0 || n != 0 {
			return errno
		}
		return nil
	}
	open := func(name string, flags int, mode uint32) error {
		fd, err := unix.Open(path(name), flags, mode)
		unix.Close(fd)
		return err
	}
	const gone = ^uintptr(0)
	for _, number := range identityCalls {
		want(fmt.Sprintf("identity call %d", number), call(uintptr(number), gone-5, gone-5, gone-5), 0)
	}
	if unix.Geteuid() != 0 || unix.Getegid() != 0 {
		fmt.Println("the identity has changed")
	}
	for _, mode := range []uint32{0o4755, 0o2755, 0o6755, 0o7777} {
		want("chmod", unix.Chmod(path("file"), mode), unix.EPERM)
		want("fchmodat", unix.Fchmodat(unix.AT_FDCWD, path("file"), mode, 0), unix.EPERM)
		want("mkdir", unix.Mkdir(path("d"), mode), unix.EPERM)
		want("create", open("new", unix.O_CREAT|unix.O_WRONLY, mode), unix.EPERM)
		want("create without a name", open(".", unix.O_TMPFILE|unix.O_WRONLY, mode), unix.EPERM)
		want("open with anything as the mode", open("file", unix.O_RDONLY, mode), 0)
		want("mknod", unix.Mknod(path("new"), unix.S_IFREG|mode, 0), unix.EPERM)
	}
	want("chmod", unix.Chmod(path("file"), 0o1777), 0)
	want("mkdir", unix.Mkdir(path("d"), 0o1777), 0)
	want("create", open("new", unix.O_CREAT|unix.O_WRONLY, 0o777), 0)
	want("pipe", unix.Mknod(path("pipe"), unix.S_IFIFO|0o644, 0), 0)
	for _, kind := range []uint32{unix.S_IFCHR, unix.S_IFBLK} {
		want("device", unix.Mknod(path("device"), kind|0o644, 0x103), unix.EPERM)
	}
	for _, c := range []struct {
		uid, gid int
		errno    unix.Errno
	}{{-1, -1, 0}, {640001, 640001, 0}, {-1, 640002, 0}, {640001, 640005, 0}, {0, -1, unix.EPERM},
		{640003, -1, unix.EPERM}, {-1, 0, unix.EPERM}, {-1, 640004, unix.EPERM}, {640001, 640003, unix.EPERM}} {
		what := fmt.Sprintf("chown to %d:%d", c.uid, c.gid)
		want(what, unix.Chown(path("file"), c.uid, c.gid), c.errno)
		want("l"+what, unix.Lchown(path("file"), c.uid, c.gid), c.errno)
		want(what+" at", unix.Fchownat(unix.AT_FDCWD, path("file"), c.uid, c.gid, 0), c.errno)
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY}
	name, _ := unix.BytePtrFromString(dir)
	_, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(^uint(99)), uintptr(unsafe.Pointer(name)),
		uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
	want("openat2", errno, unix.ENOSYS)
}

// TestFilter: no identity is changed, no set-ID file and no device made, and nothing given away.
func TestFilter(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the filter takes from root what root may: root")
	}
	out, err := exec.Command("/proc/self/exe", tryWord, t.TempDir()).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestFilterFits: the kernel takes 4,096 instructions, and a caller has at most as many groups as check lets through.
func TestFilterFits(t *testing.T) {
	most := Caller{UID: 640001, GID: 640001}
	for gid := uint32(1); gid < 1<<20; gid += 2 {
		next := append(most.Groups, gid)
		if (Server{UID: 640001, GID: 640001, Groups: next}).check() != nil {
			break
		}
		most.Groups = next
	}
	if n := len(filter(most)); n > 4096 || len(most.Groups) < 100 {
		t.Errorf("%d instructions for %d groups", n, len(most.Groups))
	}
	ranges := Caller{UID: 640001, GID: 640001} // which a map takes in one line
	for gid := range uint32(5000) {
		ranges.Groups = append(ranges.Groups, 1000+gid)
	}
	if err := (Server{UID: 640001, GID: 640001, Groups: ranges.Groups}).check(); err == nil {
		t.Errorf("%d instructions for %d groups", len(filter(ranges)), len(ranges.Groups))
	}
}

func TestMaps(t *testing.T) {
	got := mapText(Caller{GID: 5, Groups: []uint32{9, 4, 5, 6, 9, 11}}.groups())
	if want := "4 4 3\n9 9 1\n11 11 1\n"; got != want {
		t.Errorf("%q", got)
	}
}

func TestNothingBelow(t *testing.T) {
	const root = "22 1 0:20 / / rw - tmpfs tmpfs rw\n30 22 0:21 / /tmp/directory rw - ext4 sda rw\n" +
		"31 22 0:21 / /tmp/directory2 rw - ext4 sda rw\n"
	if err := nothingBelow(strings.NewReader(root)); err != nil {
		t.Error(err)
	}
	err := nothingBelow(strings.NewReader(root + "32 30 0:22 / /tmp/directory/a/proc rw - proc proc rw\n"))
	if err == nil || !strings.Contains(err.Error(), "at a/proc") {
		t.Error(err)
	}
	if err := nothingBelow(strings.NewReader(root + "32 30 0:22 / /tmp/directory rw - ext4 sdb rw\n")); err == nil {
		t.Error("a file system that is mounted over the directory is served in its place")
	}
}
