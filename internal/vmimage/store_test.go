package vmimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

func testStore(t testing.TB) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// rawDisk writes a raw disk whose content depends on seed.
func rawDisk(t testing.TB, seed string) string {
	t.Helper()
	b := make([]byte, 1<<20)
	copy(b[510:], "\x55\xaa")
	copy(b[300<<10:], seed)
	return writeFile(t, filepath.Join(t.TempDir(), "disk"), b)
}

func mustImport(t testing.TB, s *Store, name, path string) Image {
	t.Helper()
	i, err := s.Import(t.Context(), name, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func entries(t testing.TB, s *Store, dir string) []string {
	t.Helper()
	es, err := os.ReadDir(filepath.Join(s.dir, dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names
}

func TestImportRaw(t *testing.T) {
	s := testStore(t)
	path := rawDisk(t, "one")
	var last, total farm.Bytes
	i, err := s.Import(t.Context(), "debian-12", path, func(d, n farm.Bytes) { last, total = d, n })
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/usr/bin/sha256sum", path).Output()
	if err != nil || i.Digest != "sha256:"+strings.Fields(string(out))[0] {
		t.Errorf("digest %s, sha256sum says %s, %v", i.Digest, out, err)
	}
	if i.Kind != Disk || i.Format != "raw" || i.VirtualSize != farm.MiB || i.Name != "debian-12" || last != farm.MiB ||
		total != farm.MiB {
		t.Errorf("%+v, progress %v of %v", i, last, total)
	}
	if !bytes.Equal(readFile(t, i.Disk()), readFile(t, path)) {
		t.Error("the copy differs")
	}
	info, err := os.Stat(i.Disk())
	if err != nil || info.Mode().Perm() != 0o444 {
		t.Error(info.Mode(), err)
	}
	if blocks := info.Sys().(*syscall.Stat_t).Blocks; blocks*512 > 512<<10 {
		t.Errorf("%d KiB on disk: holes were filled", blocks/2)
	}
	for dir := i.Dir; len(dir) >= len(s.dir); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
			t.Error(dir, info.Mode(), err)
		}
	}
	if err := s.Verify(t.Context(), "debian-12"); err != nil {
		t.Error(err)
	}
	if left := entries(t, s, "tmp"); len(left) != 0 {
		t.Error("left in tmp:", left)
	}
}

func TestImportQcow2(t *testing.T) {
	s, dir := testStore(t), t.TempDir()
	testRaw(t, dir)
	qemuImg(t, dir, "convert", "-f", "raw", "-O", "qcow2", "base.raw", "good.qcow2")
	// qemu-img looks at the copy, and not as root
	if err := os.Chmod(filepath.Join(dir, "good.qcow2"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := mustImport(t, s, "good", filepath.Join(dir, "good.qcow2"))
	if i.Format != "qcow2" || i.VirtualSize != 4*farm.MiB || filepath.Base(i.Disk()) != "disk.qcow2" {
		t.Errorf("%+v", i)
	}
	// A reference count that is wrong is seen by qemu-img only.
	b := readFile(t, filepath.Join(dir, "good.qcow2"))
	block := 2 * 65536 // the first block of counts
	for n := range 16 {
		b[block+n] = 0
	}
	_, err := s.Import(t.Context(), "bad", writeFile(t, filepath.Join(dir, "bad.qcow2"), b), nil)
	wantCode(t, err, farm.CodeBadImage)
	if left := entries(t, s, "tmp"); len(left) != 0 {
		t.Error("left in tmp:", left)
	}
}

// TestComplaints: a damaged image may have qemu-img complain for gigabytes.
func TestComplaints(t *testing.T) {
	c := command{path: "/bin/sh", args: []string{"-c", "yes damaged | head -c 10000000 >&2; echo the end >&2; exit 1"},
		start: reader(nil), timeout: time.Minute}
	_, err := c.run(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), "; the end") || len(err.Error()) > mostComplaint {
		t.Error(err)
	}
}

func TestImportKernel(t *testing.T) {
	s, dir := testStore(t), t.TempDir()
	kernel := make([]byte, 4096)
	copy(kernel[0x202:], "HdrS")
	writeFile(t, filepath.Join(dir, "vmlinuz"), kernel)
	_, err := s.Import(t.Context(), "k", dir, nil)
	wantCode(t, err, farm.CodeBadImage) // no initrd
	writeFile(t, filepath.Join(dir, "initrd"), []byte("070701"))
	plain := mustImport(t, s, "k", dir)
	writeFile(t, filepath.Join(dir, "cmdline"), []byte("console=ttyS0 quiet\n"))
	i := mustImport(t, s, "k", dir)
	if i.Kind != Kernel || i.Cmdline != "console=ttyS0 quiet" || i.Digest == plain.Digest ||
		filepath.Base(i.Kernel()) != "vmlinuz" || filepath.Base(i.Initrd()) != "initrd" || i.Disk() != "" {
		t.Errorf("%+v", i)
	}
	if err := s.Verify(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{"two lines": "a\nb", "long": strings.Repeat("x", 2048),
		"bytes": "\x00\xff"} {
		writeFile(t, filepath.Join(dir, "cmdline"), []byte(text))
		if _, err := s.Import(t.Context(), "k", dir, nil); err == nil {
			t.Errorf("took a cmdline of %s", name)
		}
	}
	os.Remove(filepath.Join(dir, "cmdline"))
	os.Remove(filepath.Join(dir, "initrd"))
	if err := os.Symlink("/etc/shadow", filepath.Join(dir, "initrd")); err != nil {
		t.Fatal(err)
	}
	_, err = s.Import(t.Context(), "k", dir, nil)
	wantCode(t, err, farm.CodeBadImage)
	writeFile(t, filepath.Join(dir, "vmlinuz"), []byte("#!/bin/sh\n"))
	_, err = s.Import(t.Context(), "k", dir, nil)
	wantCode(t, err, farm.CodeBadImage)
}

func TestImportRefuses(t *testing.T) {
	s := testStore(t)
	for _, name := range []string{"", ".hidden", "../up", "a/b", "Upper", "-x", strings.Repeat("a", 64), "a b", "a\n"} {
		_, err := s.Import(t.Context(), name, rawDisk(t, "x"), nil)
		wantCode(t, err, CodeBadImageName)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero", "/nonexistent", t.TempDir()} {
		_, err := s.Import(t.Context(), "x", path, nil)
		wantCode(t, err, farm.CodeBadImage)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Import(ctx, "x", rawDisk(t, "x"), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left := append(entries(t, s, "tmp"),
		append(entries(t, s, "blobs"), entries(t, s, "images")...)...); len(left) != 0 {
		t.Error("left:", left)
	}
}

func TestGet(t *testing.T) {
	s := testStore(t)
	one := mustImport(t, s, "one", rawDisk(t, "one"))
	mustImport(t, s, "two", rawDisk(t, "two"))
	for _, ref := range []string{"one", one.Digest, one.Digest[7:], one.Digest[:20], one.Digest[7:17]} {
		if i, err := s.Get(ref); err != nil || i.Digest != one.Digest || i.Name != "one" {
			t.Errorf("%s: %+v, %v", ref, i, err)
		}
	}
	for _, ref := range []string{"three", "", "sha256:", "sha256:0", "../images/one",
		"sha256:" + strings.Repeat("0", 64)} {
		_, err := s.Get(ref)
		wantCode(t, err, farm.CodeNoImage)
	}
	images, err := s.List()
	if err != nil || len(images) != 2 || images[0].Name != "one" {
		t.Error(images, err)
	}
}

func TestSameNameAgain(t *testing.T) {
	s := testStore(t)
	old := mustImport(t, s, "a", rawDisk(t, "old"))
	open, err := os.Open(old.Disk())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	young := mustImport(t, s, "a", rawDisk(t, "new"))
	if i, err := s.Get("a"); err != nil || i.Digest != young.Digest {
		t.Error(i, err)
	}
	if _, err := os.Stat(old.Disk()); err != nil {
		t.Error("a running VM lost its image:", err)
	}
	inUse := func(d string) bool { return d == old.Digest }
	if gone, err := s.Purge(PurgeOptions{InUse: inUse}); err != nil || len(gone) != 0 {
		t.Error(gone, err)
	}
	if gone, err := s.Purge(PurgeOptions{}); err != nil || len(gone) != 1 || gone[0].Digest != old.Digest {
		t.Error(gone, err)
	}
	if _, err := os.Stat(old.Dir); err == nil {
		t.Error("the old image is still there")
	}
	if err := s.Verify(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestRemove(t *testing.T) {
	s := testStore(t)
	path := rawDisk(t, "one")
	i := mustImport(t, s, "a", path)
	mustImport(t, s, "b", path)
	if got := entries(t, s, "blobs"); len(got) != 1 {
		t.Error("the same content twice:", got)
	}
	e := wantCode(t, s.Remove("a", func(d string) bool { return d == i.Digest }), farm.CodeImageInUse)
	if e.Kind != farm.Conflict {
		t.Error(e.Kind)
	}
	_, release, err := s.Acquire("a")
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Remove("a", nil), farm.CodeImageInUse)
	release()
	if err := s.Remove("a", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	if err := s.Remove("b", nil); err != nil {
		t.Fatal(err)
	}
	if left := append(entries(t, s, "blobs"), entries(t, s, "tmp")...); len(left) != 0 {
		t.Error("left:", left)
	}
	wantCode(t, s.Remove("b", nil), farm.CodeNoImage)
	wantCode(t, s.Remove("../blobs", nil), CodeBadImageName)
}

func TestOpenSweeps(t *testing.T) {
	s := testStore(t)
	d, err := s.newDraft()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.write("disk.raw", strings.NewReader("half")); err != nil {
		t.Fatal(err)
	}
	reopen := func() {
		other, err := Open(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		other.Close()
	}
	reopen()
	if len(entries(t, s, "tmp")) != 1 {
		t.Error("a build that is alive was swept")
	}
	d.unlock() // as the kernel does when the process dies
	reopen()
	if left := entries(t, s, "tmp"); len(left) != 0 {
		t.Error("left:", left)
	}
	if images, err := s.List(); err != nil || len(images) != 0 {
		t.Error(images, err)
	}
}

func TestDamage(t *testing.T) {
	s := testStore(t)
	path := rawDisk(t, "one")
	i := mustImport(t, s, "a", path)
	mustImport(t, s, "b", rawDisk(t, "two"))
	// Somebody writes to a file that nobody should.
	if err := os.Chmod(i.Disk(), 0o644); err != nil {
		t.Fatal(err)
	}
	writeFile(t, i.Disk(), []byte("x"))
	wantCode(t, s.Verify(t.Context(), "a"), farm.CodeBadImage)
	writeFile(t, filepath.Join(i.Dir, "x"), nil)
	os.Chmod(filepath.Join(i.Dir, recordFile), 0o644)
	writeFile(t, filepath.Join(i.Dir, recordFile), []byte(`{"digest":"sha256:../../x"}`))
	images, err := s.List()
	wantCode(t, err, farm.CodeImageStore)
	if len(images) != 1 || images[0].Name != "b" {
		t.Error("one damaged image hides the others:", images)
	}
	mustImport(t, s, "a", path)
	if err := s.Verify(t.Context(), "a"); err != nil {
		t.Error("importing again does not heal:", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	s := testStore(t)
	paths := []string{rawDisk(t, "one"), rawDisk(t, "two")}
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			if _, err := s.Import(t.Context(), fmt.Sprintf("i%d", n%3), paths[n%2], nil); err != nil {
				t.Error(err)
			}
			if _, err := s.Purge(PurgeOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	images, err := s.List()
	if err != nil || len(images) != 3 {
		t.Fatal(images, err)
	}
	for _, i := range images {
		if err := s.Verify(t.Context(), i.Name); err != nil {
			t.Error(err)
		}
	}
}

func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Skip(err)
	}
	defer syscall.Unmount(dir, 0)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := bytes.Repeat([]byte("x"), 2<<20)
	copy(b[510:], "\x55\xaa")
	_, err = s.Import(t.Context(), "a", writeFile(t, filepath.Join(t.TempDir(), "disk"), b), nil)
	if e := wantCode(t, err, farm.CodeDiskFull); e.Kind != farm.NoCapacity {
		t.Error(e.Kind)
	}
	if left := append(entries(t, s, "tmp"), entries(t, s, "blobs")...); len(left) != 0 {
		t.Error("left:", left)
	}
}
