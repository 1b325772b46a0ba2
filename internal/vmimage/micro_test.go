package vmimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ulikunitz/xz"

	"github.com/grange-project/grange/internal/farm"
)

// testGuest builds the program of testdata/init.
func testGuest(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "init")
	cmd := exec.Command("go", "build", "-o", out, "./testdata/init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// TestBuildMicro builds the image twice from real packages and boots it. Packages come from apt's sources once and are
// kept below /var/tmp; GRANGE_TEST_IMAGES names another place.
func TestBuildMicro(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and boots an image: 10 seconds")
	}
	cache := os.Getenv("GRANGE_TEST_IMAGES")
	if cache == "" {
		cache = "/var/tmp/grange-test-images"
	}
	s, err := Open(cache)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	o := BuildOptions{Name: fmt.Sprintf("vmimage-test-%d", os.Getpid()), GuestBinary: testGuest(t),
		Progress: func(text string) { t.Log(text) }}
	first, err := s.BuildMicro(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Remove(o.Name, nil)
	start := time.Now()
	again, err := s.BuildMicro(t.Context(), o)
	if err != nil || again.Digest != first.Digest {
		t.Fatalf("built again: %v, %v; want %v", again.Digest, err, first.Digest)
	}
	t.Logf("built in %v: kernel %d, initrd %d bytes, cmdline %q", time.Since(start).Round(time.Millisecond),
		first.Files[0].Size, first.Files[1].Size, first.Cmdline)
	if filepath.Base(first.Kernel()) != "vmlinux" {
		t.Errorf("kernel %s was not extracted", first.Kernel())
	}
	if first.Files[1].Size > 24*farm.MiB {
		t.Errorf("an initramfs of %d bytes: every one costs memory and time at each start", first.Files[1].Size)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/usr/bin/qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi",
		"-m", "512", "-smp", "2", "-nodefaults", "-nographic", "-serial", "stdio", "-no-reboot", "-kernel",
		first.Kernel(), "-initrd", first.Initrd(), "-append", first.Cmdline, "-device", "virtio-serial", "-chardev",
		"null,id=a", "-device", "virtserialport,chardev=a,name=org.grange.control").CombinedOutput()
	if err != nil {
		t.Errorf("qemu: %v", err)
	}
	for _, want := range []string{"CHECKS-DONE", "SCRIPT <nil>", "hello", "CPU(s): ", "iso9660", "overlay", "virtiofs",
		"vport0p1", "LENGTH 2"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the guest did not print %q", want)
		}
	}
	if bytes.Contains(out, []byte("setlocale")) {
		t.Error("bash warns of a locale that is missing")
	}
	if bytes.Contains(out, []byte("MODULE-FAILED")) {
		t.Error("a module did not load")
	}
	if t.Failed() {
		t.Logf("console:\n%s", out)
	}
}

func TestBuildMicroRefuses(t *testing.T) {
	s := testStore(t)
	script := writeFile(t, filepath.Join(t.TempDir(), "guest"), []byte("#!/bin/sh\n"))
	for _, guest := range []string{"", "/nonexistent", script, "/bin/sh"} { // the last is not static
		_, err := s.BuildMicro(t.Context(), BuildOptions{GuestBinary: guest})
		wantCode(t, err, CodeImageBuild)
	}
	guest := testGuest(t)
	for _, p := range []string{"-oDir=/", "no-such-package-anywhere", "a b", "../x"} {
		_, err := s.BuildMicro(t.Context(), BuildOptions{GuestBinary: guest, Packages: []string{p}})
		wantCode(t, err, CodeImageBuild)
	}
	_, err := s.BuildMicro(t.Context(), BuildOptions{GuestBinary: guest, Name: "../x"})
	wantCode(t, err, CodeBadImageName)
	if left := append(entries(t, s, "tmp"), entries(t, s, "blobs")...); len(left) != 0 {
		t.Error("left:", left)
	}
}

func TestWriteCPIO(t *testing.T) {
	tr := tree{}
	tr.file("usr/lib/x", 0o644, []byte("hello"))
	tr.file("usr-lib", 0o755, nil) // "-" sorts before "/"
	tr.link("init", "usr/lib/x")
	var a, b bytes.Buffer
	if err := tr.writeCPIO(&a); err != nil {
		t.Fatal(err)
	}
	if err := tr.writeCPIO(&b); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("not the same twice", err)
	}
	if a.Len()%4 != 0 {
		t.Error("not padded")
	}
	var names []string
	for in := a.Bytes(); ; {
		var size, nameSize int
		if n, err := fmt.Sscanf(string(in[54:62])+" "+string(in[94:102]), "%x %x", &size, &nameSize); n != 2 {
			t.Fatal(err)
		}
		name := string(in[110 : 110+nameSize-1])
		if name == "TRAILER!!!" {
			break
		}
		names = append(names, name)
		in = in[(110+nameSize+3)&^3:]
		in = in[(size+3)&^3:]
	}
	if want := []string{"init", "usr", "usr/lib", "usr/lib/x", "usr-lib"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

func TestLoadOrder(t *testing.T) {
	have := map[string]module{
		"a": {"lib/a.ko", nil, []string{"b", "c"}}, "b": {"lib/b.ko", nil, []string{"c"}}, "c": {"lib/c.ko", nil, nil},
		"d": {"lib/d.ko", nil, []string{"c", "e"}},
		"e": {"lib/e.ko", nil, nil}, "x": {"lib/x.ko", nil, []string{"y"}}, "y": {"lib/y.ko", nil, []string{"x"}},
		"z": {"lib/z.ko", nil, []string{"gone"}},
	}
	read := func(name string) (module, error) {
		m, ok := have[name]
		if !ok {
			return m, errors.New("no such module")
		}
		return m, nil
	}
	tr := tree{}
	lines, err := loadOrder(tr, read,
		[]moduleGroup{{"boot", []string{"b"}}, {"disk", []string{"a"}}, {"net", []string{"d"}},
			{"fuse", []string{"e"}}})
	want := "boot /lib/c.ko\nboot /lib/b.ko\ndisk /lib/a.ko\nnet /lib/e.ko\nnet /lib/d.ko\nfuse /lib/e.ko\n"
	if err != nil || string(lines) != want {
		t.Errorf("%v\n%s", err, lines)
	}
	if len(tr) != 5 {
		t.Error("files:", tr)
	}
	for _, name := range []string{"x", "z", "gone"} {
		if _, err := loadOrder(tree{}, read, []moduleGroup{{"boot", []string{name}}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestUnlz4(t *testing.T) {
	want := []byte(strings.Repeat("abcabcabd", 5000) + "the end")
	cmd := exec.Command("/usr/bin/lz4", "-l", "-9", "-c")
	cmd.Stdin = bytes.NewReader(want)
	in, err := cmd.Output()
	if err != nil {
		t.Skip("the lz4 program is not installed:", err)
	}
	if got, err := unlz4(in[4:], int64(len(want))); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for n := 5; n < len(in)-4; n++ {
		if _, err := unlz4(in[4:n], int64(len(want))); err == nil {
			t.Fatalf("took %d of %d bytes", n, len(in))
		}
	}
}

func FuzzExtractKernel(f *testing.F) {
	b := make([]byte, 2048)
	copy(b[0x202:], "HdrS\x0f\x02")
	b[0x1f1], b[0x24c], b[2044] = 1, 0xf0, 64
	copy(b[1024:], "\x02\x21\x4c\x18\x10\x00\x00\x00\x40abcd\x02\x00\x10e")
	b[1024+0xf0-4] = 64
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		extractKernel(b)
	})
}

// TestModuleFiles reads modules that are compressed, as all of Debian 13 are, that are built in, and a damaged one.
func TestModuleFiles(t *testing.T) {
	program, err := os.ReadFile("/bin/true") // as modules are, of ELF
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, err := xz.NewWriter(&packed)
	if err == nil {
		_, err = w.Write(program)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	k := kernelModules{}
	k.add("usr/lib/modules/6.12/virtio-rng.ko.xz", packed.Bytes())
	k.add("usr/lib/modules/6.12/cut.ko.xz", packed.Bytes()[:packed.Len()/2])
	if _, err := k.read("virtio_rng"); err == nil || !strings.Contains(err.Error(), "no .modinfo") {
		t.Errorf("a program: %v", err)
	}
	k.add("usr/lib/modules/6.12/modules.builtin",
		[]byte("kernel/drivers/virtio/virtio-pci.ko\nkernel/fs/ext4/ext4.ko\n"))
	tr := tree{}
	if lines, err := loadOrder(tr, k.read, []moduleGroup{{"boot", []string{"virtio_pci"}}}); err != nil ||
		len(lines)+len(tr) != 0 {
		t.Errorf("built in: %v, %q, %d files", err, lines, len(tr))
	}
	for _, name := range []string{"cut", "gone"} {
		if _, err := k.read(name); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestBusyboxApplets reads the table as releases of Debian have it: after text, after numbers, beside the shell's own
// list of the same names.
func TestBusyboxApplets(t *testing.T) {
	const table, end = "[\x00[[\x00acpid\x00sh\x00zcat\x00", "\x00/var/log/wtmp\x00"
	want := []string{"[", "[[", "acpid", "sh", "zcat"}
	for name, program := range map[string]string{
		"after text":    "text\x00" + table + end,
		"after numbers": "2[\x002[[\x006alias\x00\xc0\xae " + table + end,
		"second":        "[\x00[[\x00alias\x00\x00" + table + end,
		"padded":        "\x00" + table + "text" + end,
	} {
		got, err := busyboxApplets([]byte(program))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, program := range []string{"", table[3:] + end, "\x00[\x00[[\x00acpid\x00" + end, table} {
		if got, err := busyboxApplets([]byte(program)); err == nil {
			t.Errorf("%q: no error, but %q", program, got)
		}
	}
}
