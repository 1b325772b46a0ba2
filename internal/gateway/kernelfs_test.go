package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// list returns the names in a directory, without those of itself and the one above.
func (k kernel) list(node uint64) ([]string, fuse.Status) {
	var out fuse.OpenOut
	if s := k.raw.OpenDir(nil, &fuse.OpenIn{InHeader: k.head(node)}, &out); !s.Ok() {
		return nil, s
	}
	buf := make([]byte, 1<<16)
	k.raw.ReadDir(nil, &fuse.ReadIn{InHeader: k.head(node), Fh: out.Fh, Size: uint32(len(buf))},
		fuse.NewDirEntryList(buf, 0))
	var names []string
	for len(buf) > 24 {
		n := int(binary.NativeEndian.Uint32(buf[16:]))
		if n == 0 {
			break
		}
		if name := string(bytes.TrimRight(buf[24:24+n], "\x00")); name != "." && name != ".." {
			names = append(names, name)
		}
		buf = buf[(24+n+7)&^7:]
	}
	return names, fuse.OK
}

func (k kernel) read(node uint64) ([]byte, fuse.Status) {
	var out fuse.OpenOut
	if s := k.raw.Open(nil, &fuse.OpenIn{InHeader: k.head(node)}, &out); !s.Ok() {
		return nil, s
	}
	buf := make([]byte, 4096)
	result, s := k.raw.Read(nil, &fuse.ReadIn{InHeader: k.head(node), Fh: out.Fh, Size: uint32(len(buf))}, buf)
	if !s.Ok() {
		return nil, s
	}
	return result.Bytes(buf)
}

// TestKernelFilesRefused: a bind of the kernel's own files is refused, whatever name it goes by.
func TestKernelFilesRefused(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc/self/fd", link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/proc", "/proc/self", "/proc/1/..", "/sys", link} {
		refused := new(RefusedError)
		if d, err := Open(dir); !errors.As(err, &refused) || refused.Dir != dir {
			t.Errorf("%s: %v", dir, err)
			d.Close()
		}
	}
	slash, _, _ := deviceOf("/")
	for _, dir := range []string{"/dev", "/dev/shm"} {
		if dev, _, ok := deviceOf(dir); !ok || dev == slash {
			continue
		}
		if _, err := Open(dir); !errors.As(err, new(*RefusedError)) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestBelowSharedMemory: a directory of one's own there is data.
func TestBelowSharedMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "grange-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(dir)
	slash, _, _ := deviceOf("/")
	if dev, _, _ := deviceOf("/dev"); dev == slash {
		t.Skip("/dev is no file system of its own")
	}
	k := kernel{testFS(t, dir, false, false), me()}
	k.create("f")
	if names, s := k.list(1); !s.Ok() || !slices.Equal(names, []string{"f"}) {
		t.Errorf("%v, %v", names, s)
	}
}

// TestKernelFilesHidden binds / and finds an empty directory where the kernel's files are.
func TestKernelFilesHidden(t *testing.T) {
	for _, stepwise := range []bool{false, true} {
		k := kernel{testFS(t, "/", false, stepwise), me()}
		if names, s := k.list(1); !s.Ok() || !slices.Contains(names, "proc") {
			t.Errorf("/ has %v, %v", names, s)
		}
		for _, dir := range []string{"proc", "sys"} {
			at := k.lookup(1, dir)
			if at == 0 {
				t.Fatalf("/ has no %s", dir)
			}
			checkHidden(t, k, at)
			if again := k.lookup(1, dir); again != at {
				t.Errorf("%s is another directory each time: a program that walks the tree fails", dir)
			}
		}
		if k.lookup(1, "proc", "self") != 0 {
			t.Error("/proc/self is found")
		}
	}
}

// checkHidden looks at a directory that must be shown, empty, and change in no way.
func checkHidden(t *testing.T, k kernel, at uint64) {
	t.Helper()
	if names, s := k.list(at); !s.Ok() || len(names) > 0 {
		t.Errorf("it has %v, %v", names, s)
	}
	var attr fuse.AttrOut
	if s := k.raw.GetAttr(nil, &fuse.GetAttrIn{InHeader: k.head(at)}, &attr); !s.Ok() ||
		attr.Mode != syscall.S_IFDIR|0o555 {
		t.Errorf("%v, mode %o", s, attr.Mode)
	}
	for _, s := range []fuse.Status{
		k.setattr(at, fuse.FATTR_MODE),
		k.raw.Mkdir(nil, &fuse.MkdirIn{InHeader: k.head(at), Mode: 0o755}, "new", &fuse.EntryOut{}),
		k.raw.Create(nil, &fuse.CreateIn{InHeader: k.head(at), Flags: syscall.O_WRONLY, Mode: 0o644}, "new",
			&fuse.CreateOut{}),
	} {
		if s.Ok() {
			t.Error("it was changed")
		}
	}
}

// TestMountsBelow is about what is mounted below a bind, before or after the guest has seen the place. It needs a mount
// namespace of its own.
func TestMountsBelow(t *testing.T) {
	const mark = "GATEWAY_TEST_MOUNTS"
	if dir := os.Getenv(mark); dir != "" {
		mountsBelow(t, dir)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestMountsBelow$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER |
			syscall.CLONE_NEWPID, UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, os.ErrPermission) {
		t.Skip("no mount namespaces here: ", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func mountsBelow(t *testing.T, dir string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for _, name := range []string{"proc", "late/self", "memory", "same", "data"} {
		must(os.MkdirAll(at(name), 0o755))
	}
	for _, name := range []string{"file", "status", "late/self/status", "data/file"} {
		must(os.WriteFile(at(name), []byte("data"), 0o644))
	}
	must(unix.Mount("tmpfs", at("memory"), "tmpfs", 0, ""))
	must(os.WriteFile(at("memory/file"), []byte("data"), 0o644))
	must(unix.Mount(at("data"), at("same"), "", unix.MS_BIND, ""))
	must(unix.Mount("proc", at("proc"), "proc", 0, ""))
	must(unix.Mount("/proc/self/status", at("status"), "", unix.MS_BIND, ""))
	for _, stepwise := range []bool{false, true} {
		for _, one := range []bool{false, true} {
			t.Run(fmt.Sprintf("stepwise=%v/one=%v", stepwise, one), func(t *testing.T) {
				k := kernel{testFSWith(t, dir, Options{OneFileSystem: one}, stepwise), me()}
				checkHidden(t, k, k.lookup(1, "proc"))
				checkMounts(t, k, one, one && !stepwise)
				late := k.lookup(1, "late", "self", "status")
				if text, s := k.read(late); !s.Ok() || string(text) != "data" {
					t.Errorf("%q, %v", text, s)
				}
				self := k.lookup(1, "late", "self")
				must(unix.Mount("proc", at("late"), "proc", 0, ""))
				defer unix.Unmount(at("late"), unix.MNT_DETACH)
				for _, r := range requests {
					if a := r.send(k, self, late); leaked(a) {
						t.Errorf("%s tells %v", r.name, a)
					}
				}
				if text, s := k.read(late); s.Ok() {
					t.Errorf("a file of the kernel, mounted over one that the guest knows: %q", text)
				}
				if names, s := k.list(self); s.Ok() {
					t.Errorf("a directory of the kernel, mounted over one that the guest knows: %v", names)
				}
			})
		}
	}
}

// checkMounts looks at what is mounted: a file of the kernel, a file system with data, and one of the bind's own
// directories a second time (which the kernel only tells apart with openat2).
func checkMounts(t *testing.T, k kernel, one, same bool) {
	t.Helper()
	status := k.lookup(1, "status")
	if status == 0 {
		t.Error("a file that is hidden is not listed")
	}
	if text, s := k.read(status); s.Ok() {
		t.Errorf("a file of the kernel is read: %q", text)
	}
	var made fuse.CreateOut
	if s := k.raw.Create(nil, &fuse.CreateIn{InHeader: k.head(1), Flags: syscall.O_RDWR | syscall.O_TRUNC, Mode: 0o644},
		"status", &made); s.Ok() {
		t.Error("a file of the kernel is opened by making it")
	}
	if got := k.lookup(1, "memory", "file") == 0; got != one {
		t.Errorf("what is mounted below is hidden: %v", got)
	}
	if got := k.lookup(1, "same", "file") == 0; got != same {
		t.Errorf("what is mounted a second time is hidden: %v", got)
	}
	if text, s := k.read(k.lookup(1, "data", "file")); !s.Ok() || string(text) != "data" {
		t.Errorf("%q, %v", text, s)
	}
}
