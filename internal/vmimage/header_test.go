package vmimage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// qemuImg runs qemu-img in dir.
func qemuImg(t testing.TB, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("/usr/bin/qemu-img", args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %v: %v\n%s", args, err, text)
	}
}

// testRaw makes a raw disk of 4 MiB with a boot sector and some data.
func testRaw(t testing.TB, dir string) {
	t.Helper()
	b := make([]byte, 4<<20)
	copy(b[510:], "\x55\xaa")
	for i := 1 << 20; i < 2<<20; i++ {
		b[i] = byte(i*i>>8) | 1
	}
	writeFile(t, filepath.Join(dir, "base.raw"), b)
}

func writeFile(t testing.TB, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantCode fails unless err is a farm.Error with this code and a hint.
func wantCode(t testing.TB, err error, code farm.Code) *farm.Error {
	t.Helper()
	var e *farm.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	if e.Hint == "" {
		t.Errorf("%q has no hint", e.Message)
	}
	return e
}

func TestReadHeaderOfQemuImg(t *testing.T) {
	dir := t.TempDir()
	testRaw(t, dir)
	for name, args := range map[string][]string{
		"plain":      {"convert", "-f", "raw", "-O", "qcow2", "base.raw"},
		"v2":         {"convert", "-f", "raw", "-O", "qcow2", "-o", "compat=0.10", "base.raw"},
		"compressed": {"convert", "-f", "raw", "-c", "-O", "qcow2", "base.raw"},
		"zstd":       {"convert", "-f", "raw", "-c", "-O", "qcow2", "-o", "compression_type=zstd", "base.raw"},
		"clusters":   {"convert", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=2M", "base.raw"},
		"small":      {"convert", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=512", "base.raw"},
		"extended":   {"convert", "-f", "raw", "-O", "qcow2", "-o", "extended_l2=on", "base.raw"},
		"lazy":       {"convert", "-f", "raw", "-O", "qcow2", "-o", "lazy_refcounts=on", "base.raw"},
		"narrow":     {"convert", "-f", "raw", "-O", "qcow2", "-o", "refcount_bits=1", "base.raw"},
		"allocated":  {"convert", "-f", "raw", "-O", "qcow2", "-o", "preallocation=metadata", "base.raw"},
	} {
		t.Run(name, func(t *testing.T) {
			qemuImg(t, dir, append(args, name)...)
			b := readFile(t, filepath.Join(dir, name))
			h, err := readHeader(bytes.NewReader(b), int64(len(b)))
			if want := (header{"qcow2", 4 * farm.MiB}); err != nil || h != want {
				t.Errorf("%+v, %v; want %+v", h, err, want)
			}
		})
	}
	t.Run("snapshot", func(t *testing.T) {
		qemuImg(t, dir, "convert", "-f", "raw", "-O", "qcow2", "base.raw", "snapped")
		qemuImg(t, dir, "snapshot", "-c", "one", "snapped")
		qemuImg(t, dir, "snapshot", "-c", "two", "snapped")
		b := readFile(t, filepath.Join(dir, "snapped"))
		if _, err := readHeader(bytes.NewReader(b), int64(len(b))); err != nil {
			t.Error(err)
		}
	})
	t.Run("largest", func(t *testing.T) {
		qemuImg(t, dir, "create", "-f", "qcow2", "-o", "cluster_size=2M", "large", "64T")
		b := readFile(t, filepath.Join(dir, "large"))
		if h, err := readHeader(bytes.NewReader(b), int64(len(b))); err != nil || h.virtual != 64*farm.TiB {
			t.Error(h, err)
		}
	})
	for name, args := range map[string][]string{
		"backing file": {"create", "-f", "qcow2", "-F", "raw", "-b", "base.raw"},
		"another file": {"create", "-f", "qcow2", "-o", "data_file=data.raw,size=4M"},
		"VMDK":         {"convert", "-f", "raw", "-O", "vmdk", "base.raw"},
		"VDI":          {"convert", "-f", "raw", "-O", "vdi", "base.raw"},
		"VHDX":         {"convert", "-f", "raw", "-O", "vhdx", "base.raw"},
		"(VHD)":        {"convert", "-f", "raw", "-O", "vpc", "base.raw"},
		"Virtual PC":   {"convert", "-f", "raw", "-O", "vpc", "-o", "subformat=fixed", "base.raw"},
		"QED":          {"convert", "-f", "raw", "-O", "qed", "base.raw"},
		"of version 1": {"convert", "-f", "raw", "-O", "qcow", "base.raw"},
	} {
		t.Run("refused "+name, func(t *testing.T) {
			file := strings.ReplaceAll(name, " ", "_")
			qemuImg(t, dir, append(args, "./"+file)...)
			b := readFile(t, filepath.Join(dir, file))
			_, err := readHeader(bytes.NewReader(b), int64(len(b)))
			e := wantCode(t, err, farm.CodeBadImage)
			if !strings.Contains(e.Message+e.Hint, name) {
				t.Errorf("%q (%s) does not speak of %q", e.Message, e.Hint, name)
			}
		})
	}
}

func TestReadHeaderOfHostileQcow2(t *testing.T) {
	dir := t.TempDir()
	testRaw(t, dir)
	qemuImg(t, dir, "convert", "-f", "raw", "-O", "qcow2", "base.raw", "good")
	good := readFile(t, filepath.Join(dir, "good"))
	u32, u64 := binary.BigEndian.PutUint32, binary.BigEndian.PutUint64
	l1 := binary.BigEndian.Uint64(good[40:])
	l2 := binary.BigEndian.Uint64(good[l1:]) & offsetMask
	for name, spoil := range map[string]func(b []byte) []byte{
		"only the magic":    func(b []byte) []byte { return b[:4] },
		"half a header":     func(b []byte) []byte { return b[:60] },
		"only a header":     func(b []byte) []byte { return b[:104] },
		"cut in half":       func(b []byte) []byte { return b[:len(b)/2] },
		"last cluster gone": func(b []byte) []byte { return b[:len(b)-65536] },
		"version 1":         func(b []byte) []byte { u32(b[4:], 1); return b },
		"version 4":         func(b []byte) []byte { u32(b[4:], 4); return b },
		"backing file": func(b []byte) []byte {
			u64(b[8:], 512)
			u32(b[16:], 11)
			copy(b[512:],
				"/etc/shadow")
			return b
		},
		"backing size only":       func(b []byte) []byte { u32(b[16:], 11); return b },
		"clusters of one byte":    func(b []byte) []byte { u32(b[20:], 0); return b },
		"clusters of 2^63":        func(b []byte) []byte { u32(b[20:], 63); return b },
		"no size":                 func(b []byte) []byte { u64(b[24:], 0); return b },
		"odd size":                func(b []byte) []byte { u64(b[24:], 4<<20+1); return b },
		"size of 2^63":            func(b []byte) []byte { u64(b[24:], 1<<63); return b },
		"size over table":         func(b []byte) []byte { u64(b[24:], 1<<40); return b },
		"encrypted":               func(b []byte) []byte { u32(b[32:], 2); return b },
		"huge first table":        func(b []byte) []byte { u32(b[36:], 1<<31); return b },
		"first table outside":     func(b []byte) []byte { u64(b[40:], 1<<40); return b },
		"first table at 2^64":     func(b []byte) []byte { u64(b[40:], 1<<64-65536); return b },
		"first table not aligned": func(b []byte) []byte { u64(b[40:], l1+8); return b },
		"no first table":          func(b []byte) []byte { u64(b[40:], 0); return b },
		"no counts":               func(b []byte) []byte { u64(b[48:], 0); return b },
		"counts outside":          func(b []byte) []byte { u64(b[48:], 1<<40); return b },
		"many counts":             func(b []byte) []byte { u32(b[56:], 1<<31); return b },
		"no count clusters":       func(b []byte) []byte { u32(b[56:], 0); return b },
		"many snapshots":          func(b []byte) []byte { u32(b[60:], 1<<31); return b },
		"snapshots nowhere":       func(b []byte) []byte { u32(b[60:], 1); return b },
		"snapshots outside":       func(b []byte) []byte { u32(b[60:], 1); u64(b[64:], 1<<40); return b },
		"dirty":                   func(b []byte) []byte { b[79] |= 1; return b },
		"corrupt":                 func(b []byte) []byte { b[79] |= 2; return b },
		"data file":               func(b []byte) []byte { b[79] |= 4; return b },
		"unknown feature":         func(b []byte) []byte { b[72] |= 1; return b },
		"wide counts":             func(b []byte) []byte { u32(b[96:], 7); return b },
		"long header":             func(b []byte) []byte { u32(b[100:], 1<<31); return b },
		"short header":            func(b []byte) []byte { u32(b[100:], 80); return b },
		"extension too long": func(b []byte) []byte {
			h := binary.BigEndian.Uint32(b[100:])
			u32(b[h:], 0x1234)
			u32(b[h+4:], 1<<32-1)
			return b
		},
		"data file extension": func(b []byte) []byte {
			h := binary.BigEndian.Uint32(b[100:])
			u32(b[h:],
				0x44415441)
			return b
		},
		"LUKS extension": func(b []byte) []byte {
			h := binary.BigEndian.Uint32(b[100:])
			u32(b[h:],
				0x0537be77)
			return b
		},
		"second table outside":     func(b []byte) []byte { u64(b[l1:], 1<<63|1<<50); return b },
		"second table not aligned": func(b []byte) []byte { u64(b[l1:], 1<<63|(l2+512)); return b },
		"data outside":             func(b []byte) []byte { u64(b[l2:], 1<<63|1<<50); return b },
		"compressed data outside":  func(b []byte) []byte { u64(b[l2:], 1<<62|1<<50); return b },
		"data not aligned":         func(b []byte) []byte { u64(b[l2:], 1<<63|512); return b },
	} {
		t.Run(name, func(t *testing.T) {
			b := spoil(bytes.Clone(good))
			_, err := readHeader(bytes.NewReader(b), int64(len(b)))
			wantCode(t, err, farm.CodeBadImage)
		})
	}
	t.Run("second table twice", func(t *testing.T) {
		b := bytes.Clone(good)
		u32(b[36:], 2)
		copy(b[l1+8:l1+16], b[l1:l1+8])
		_, err := readHeader(bytes.NewReader(b), int64(len(b)))
		wantCode(t, err, farm.CodeBadImage)
	})
}

func TestReadHeaderOfRaw(t *testing.T) {
	disk := func(at int, magic string) []byte {
		b := make([]byte, 1<<20)
		copy(b[at:], magic)
		return b
	}
	for name, b := range map[string][]byte{
		"MBR": disk(510, "\x55\xaa"), "GPT": disk(512, "EFI PART"), "ext4": disk(1080, "\x53\xef"),
		"XFS": disk(0, "XFSB"),
	} {
		if h, err := readHeader(bytes.NewReader(b), int64(len(b))); err != nil || h != (header{"raw", farm.MiB}) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	for name, b := range map[string][]byte{
		"empty": nil, "zeros": disk(0, ""), "text": []byte("hello\n"), "odd": append(disk(510, "\x55\xaa"), 1),
		"ISO": disk(0x8001, "CD001"), "gzip": disk(0, "\x1f\x8b\x08"), "tar": disk(257, "ustar"),
		"LUKS": disk(0, "LUKS\xba\xbe"),
	} {
		_, err := readHeader(bytes.NewReader(b), int64(len(b)))
		if e := (*farm.Error)(nil); !errors.As(err, &e) || e.Code != farm.CodeBadImage || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Run with -fuzzminimizetime 10x: the default spends its first minutes on making inputs smaller.
func FuzzReadHeader(f *testing.F) {
	dir := f.TempDir()
	qemuImg(f, dir, "create", "-f", "qcow2", "-o", "cluster_size=512", "a", "64K")
	qemuImg(f, dir, "create", "-f", "qcow2", "-o", "compat=0.10,cluster_size=4K", "b", "1M")
	qemuImg(f, dir, "snapshot", "-c", "one", "a")
	f.Add(readFile(f, filepath.Join(dir, "a")))
	f.Add(readFile(f, filepath.Join(dir, "b")))
	f.Add([]byte("QFI\xfb"))
	f.Add(make([]byte, 512))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHeader(bytes.NewReader(b), int64(len(b)))
		if err == nil && (h.virtual == 0 || h.virtual > maxVirtual || h.format != "raw" && h.format != "qcow2") {
			t.Errorf("took %+v", h)
		}
		if err == nil && h.format == "qcow2" && binary.BigEndian.Uint64(b[8:]) != 0 {
			t.Error("took a backing file")
		}
		if e := (*farm.Error)(nil); err != nil && !errors.As(err, &e) {
			t.Errorf("error %v is no farm.Error", err)
		}
	})
}
