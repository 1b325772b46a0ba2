package disk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func testPool(t *testing.T) *Pool {
	t.Helper()
	p, err := Open(filepath.Join(t.TempDir(), "disks"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func wantCode(t *testing.T, err error, code farm.Code) {
	t.Helper()
	var e *farm.Error
	if !errors.As(err, &e) || e.Code != code || e.Hint == "" {
		t.Fatalf("error %v, want code %s and a hint", err, code)
	}
}

func wantEmpty(t *testing.T, p *Pool) {
	t.Helper()
	if vms, err := p.List(); err != nil || len(vms) != 0 {
		t.Error("left:", vms, err)
	}
}

func TestOverlay(t *testing.T) {
	p := testPool(t)
	raw := filepath.Join(t.TempDir(), "base, with: odd name.raw")
	content := bytes.Repeat([]byte("grange"), 1<<18)
	if err := os.WriteFile(raw, content, 0o444); err != nil {
		t.Fatal(err)
	}
	qcow := filepath.Join(filepath.Dir(raw), "base.qcow2")
	tool(t, "/usr/bin/qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, qcow)
	for vm, base := range map[string]Base{"vm-1": {raw, "raw", farm.Bytes(len(content))},
		"vm-2": {qcow, "qcow2", farm.Bytes(len(content))}} {
		file, err := p.Overlay(t.Context(), vm, base, 0)
		if err != nil {
			t.Fatal(err)
		}
		tool(t, "/usr/bin/qemu-img", "check", "-q", "-f", "qcow2", file)
		info := tool(t, "/usr/bin/qemu-img", "info", "-f", "qcow2", "--output=json", file)
		if !strings.Contains(info, `"backing-filename-format": "`+base.Format) ||
			!strings.Contains(info, "full-backing-filename") {
			t.Error(info)
		}
		copied := filepath.Join(t.TempDir(), "copy")
		tool(t, "/usr/bin/qemu-img", "convert", "-f", "qcow2", "-O", "raw", file, copied)
		if got, err := os.ReadFile(copied); err != nil || !bytes.HasPrefix(got, content) {
			t.Error("the overlay does not show the base", err)
		}
		// A disk in use is never made anew.
		if _, err := p.Overlay(t.Context(), vm, base, 0); err == nil {
			t.Error("made twice")
		}
		if _, err := os.Stat(file); err != nil {
			t.Error("the second call removed the disk of the first:", err)
		}
		if err := p.Remove(vm); err != nil {
			t.Error(err)
		}
	}
	wantEmpty(t, p)
	file, err := p.Overlay(t.Context(), "big", Base{raw, "raw", farm.Bytes(len(content))}, 10*farm.GiB)
	if err != nil {
		t.Fatal(err)
	}
	if info := tool(t, "/usr/bin/qemu-img", "info", "-f", "qcow2", file); !strings.Contains(info, "10737418240 bytes") {
		t.Error(info)
	}
	_, err = p.Overlay(t.Context(), "small", Base{raw, "raw", farm.Bytes(len(content))}, farm.MiB)
	wantCode(t, err, farm.CodeTooBig)
}

func TestOverlayRefuses(t *testing.T) {
	p := testPool(t)
	for _, base := range []Base{{"/x", "", 1}, {"/x", "vmdk", 1}, {"x", "raw", 1}, {"/nonexistent", "raw", 1 << 20}} {
		if _, err := p.Overlay(t.Context(), "vm", base, 0); err == nil {
			t.Errorf("%+v: no error", base)
		}
	}
	for _, vm := range []string{"", ".", "..", "a/b", "../x", "-x", strings.Repeat("x", 65)} {
		if _, err := p.Scratch(t.Context(), vm, farm.GiB); err == nil {
			t.Errorf("%q: no error", vm)
		}
		if err := p.Remove(vm); err == nil {
			t.Errorf("%q: removed", vm)
		}
	}
	wantEmpty(t, p)
}

// TestBaseIsNotRead: root's qemu-img does not parse an image, which a stranger may have made.
func TestBaseIsNotRead(t *testing.T) {
	p := testPool(t)
	base := filepath.Join(t.TempDir(), "base.qcow2")
	if err := os.WriteFile(base, []byte("QFI\xfb and nothing that qemu-img would take"), 0o444); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Overlay(t.Context(), "vm", Base{base, "qcow2", farm.MiB}, 0); err != nil {
		t.Error("it was read:", err)
	}
}

func TestScratch(t *testing.T) {
	p := testPool(t)
	for _, size := range []farm.Bytes{16 * farm.MiB, 3*farm.GiB + 17} {
		file, err := p.Scratch(t.Context(), "vm", size)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil || farm.Bytes(info.Size()) != size&^4095 || info.Mode().Perm() != 0o600 {
			t.Error(info, err)
		}
		if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20 {
			t.Errorf("an empty disk takes %d bytes", used)
		}
		tool(t, "/usr/sbin/e2fsck", "-f", "-n", file)
		head := tool(t, "/usr/sbin/dumpe2fs", "-h", file)
		if strings.Contains(head, "has_journal") || !strings.Contains(head, "Filesystem volume name:   "+ScratchLabel) {
			t.Error(head)
		}
		if err := p.Remove("vm"); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []farm.Bytes{0, farm.MiB, 17 * farm.TiB} {
		_, err := p.Scratch(t.Context(), "vm", size)
		wantCode(t, err, farm.CodeBadSize)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Scratch(ctx, "vm", farm.GiB); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wantEmpty(t, p)
}

// TestSpace: what was promised is taken, whether its disk is there or not, and as much as is written counts once.
func TestSpace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skip(err)
	}
	defer syscall.Unmount(dir, 0)
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Scratch(t.Context(), "vm-2", 32*farm.MiB); err != nil { // which takes a few hundred KiB
		t.Fatal(err)
	}
	for _, c := range []struct {
		promised    map[string]farm.Bytes
		free, short farm.Bytes // in MiB, to the next
	}{
		{nil, 32, 0},
		{map[string]farm.Bytes{"vm": 32 * farm.MiB}, 32, 0},
		{map[string]farm.Bytes{"vm": 48 * farm.MiB}, 16, 0},
		{map[string]farm.Bytes{"vm": 32 * farm.MiB, "other": 16 * farm.MiB}, 16, 0},
		{map[string]farm.Bytes{"other": 16 * farm.MiB}, 16, 0},
		{map[string]farm.Bytes{"other": 48 * farm.MiB}, 0, 16},
	} {
		got, err := p.Space(c.promised)
		if err != nil || got.Total != 64*farm.MiB || (got.Free+farm.MiB/2)/farm.MiB != c.free ||
			(got.Short+farm.MiB/2)/farm.MiB != c.short {
			t.Errorf("%v: %+v, %v; want %d MiB free, %d short", c.promised, got, err, c.free, c.short)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "vm-2", OverlayFile), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Space(map[string]farm.Bytes{"vm": 48 * farm.MiB}); err != nil ||
		(got.Free+farm.MiB/2)/farm.MiB != 16 {
		t.Errorf("what is written is taken twice: %+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Space(nil); err != nil || (got.Pool+farm.MiB/2)/farm.MiB != 56 {
		t.Errorf("disks have and may have %v, %v; want all but 8M", got.Pool, err)
	}
}

// TestOverlayBound: an overlay that was written from end to end stays within its bound.
func TestOverlayBound(t *testing.T) {
	p := testPool(t)
	base := filepath.Join(t.TempDir(), "base")
	if err := os.WriteFile(base, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	const size = 128 * farm.MiB
	file, err := p.Overlay(t.Context(), "vm", Base{base, "raw", farm.MiB}, size)
	if err != nil {
		t.Fatal(err)
	}
	tool(t, "/usr/bin/qemu-io", "-f", "qcow2", "-c", "write -P 7 0 128M", file)
	used, length := p.usage("vm", OverlayFile)
	if bound := OverlayBound(size); used < size || used > bound || length > bound {
		t.Errorf("%v used, %v long; the bound is %v", used, length, bound)
	}
}

// TestOwner gives disks to a user and takes them back: nobody else opens them, and only the user's group passes their
// directory.
func TestOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("giving files away needs root")
	}
	p := testPool(t)
	file, err := p.Scratch(t.Context(), "vm", farm.GiB)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	outside := filepath.Join(t.TempDir(), "victim")
	record := filepath.Join(dir, "wanted.json")
	for _, path := range []string{outside, record} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, SeedFile)); err != nil {
		t.Fatal(err)
	}
	wants := func(owner, group uint32) {
		t.Helper()
		for path, want := range map[string][2]uint32{file: {owner, 0}, dir: {0, group}, record: {0, 0},
			outside: {0, 0}} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			s := info.Sys().(*syscall.Stat_t)
			if s.Uid != want[0] || s.Gid != want[1] || s.Mode&0o067 != 0 || s.Mode&0o010 != 0 && path != dir {
				t.Errorf("%s belongs to %d:%d, mode %o", path, s.Uid, s.Gid, s.Mode)
			}
		}
		if owners, err := p.Owners(); err != nil || !owners[owner] || len(owners) != 1 {
			t.Errorf("owners are %v, %v", owners, err)
		}
	}
	if err := p.Give("vm", 64055, 107); err != nil {
		t.Fatal(err)
	}
	wants(64055, 107)
	if err := p.Take("vm"); err != nil {
		t.Fatal(err)
	}
	wants(0, 0)
	if err := p.Give("none", 64055, 107); err != nil {
		t.Errorf("a VM without disks: %v", err)
	}
}

func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip(err)
	}
	defer syscall.Unmount(dir, 0)
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	base := filepath.Join(t.TempDir(), "base")
	if err := os.WriteFile(base, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = p.Overlay(t.Context(), "vm", Base{base, "raw", farm.MiB}, 2*farm.TiB)
	wantCode(t, err, farm.CodeDiskFull)
	wantEmpty(t, p)
}

// TestDiskFullInTheMiddle lets the guard pass and the tool run out of space.
func TestDiskFullInTheMiddle(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32k"); err != nil {
		t.Skip(err)
	}
	defer syscall.Unmount(dir, 0)
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, err = p.make(t.Context(), "vm", ScratchFile, func(file string) error {
		if err := os.Truncate(file, 16<<30); err != nil {
			return err
		}
		return run(t.Context(), "e2fsprogs", "/usr/sbin/mke2fs", "-q", "-F", "-t", "ext4", file)
	})
	wantCode(t, err, farm.CodeDiskFull)
	wantEmpty(t, p)
}

func TestManyAtOnce(t *testing.T) {
	p := testPool(t)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			vm := string(rune('a' + n))
			if _, err := p.Scratch(t.Context(), vm, farm.GiB); err != nil {
				t.Error(err)
			}
			if err := p.Remove(vm); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantEmpty(t, p)
}
