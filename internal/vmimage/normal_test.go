package vmimage

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/grange-project/grange/internal/farm"
)

// packFile writes a copy of a file, packed by w.
func packFile(t *testing.T, from, to string, packer func(io.Writer) (io.WriteCloser, error)) string {
	t.Helper()
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := packer(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(readFile(t, from)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}

func gzipped(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
func zstded(w io.Writer) (io.WriteCloser, error)  { return zstd.NewWriter(w) }

// TestImportPacked: a packed disk is the same image as the disk itself.
func TestImportPacked(t *testing.T) {
	s, dir, raw := testStore(t), t.TempDir(), rawDisk(t, "packed")
	want := mustImport(t, s, "plain", raw)
	files := map[string]string{
		"gzip": packFile(t, raw, filepath.Join(dir, "disk.gz"), gzipped),
		"zstd": packFile(t, raw, filepath.Join(dir, "disk.zst"), zstded),
		"xz":   filepath.Join(dir, "disk.xz"),
	}
	out, err := exec.Command("xz", "-kc", raw).Output()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, files["xz"], out)
	for name, file := range files {
		if got := mustImport(t, s, name, file); got.Digest != want.Digest || got.Format != "raw" {
			t.Errorf("%s: %s %s, wanted %s", name, got.Format, got.Digest, want.Digest)
		}
	}
	if left := entries(t, s, "blobs/"+blobName(want.Digest)); !slices.Equal(left, []string{"disk.raw", recordFile}) {
		t.Error("the image has", left)
	}
	if left := entries(t, s, "tmp"); len(left) > 0 {
		t.Error("left in tmp:", left)
	}
}

// TestImportConverted: disks of other hypervisors, also packed, become a qcow2 with the same content.
func TestImportConverted(t *testing.T) {
	s, dir, raw := testStore(t), t.TempDir(), rawDisk(t, "converted")
	for _, format := range []string{"vmdk", "vhdx", "vdi", "vpc"} {
		file := filepath.Join(dir, "disk."+format)
		options := []string{"convert", "-f", "raw", "-O", format, raw, file}
		if format == "vmdk" {
			options = slices.Insert(options, 1, "-o", "subformat=streamOptimized")
		}
		qemuImg(t, dir, options...)
		for name, file := range map[string]string{format: file,
			format + "-packed": packFile(t, file, file+".gz", gzipped)} {
			i := mustImport(t, s, name, file)
			if i.Format != "qcow2" {
				t.Errorf("%s: %s", name, i.Format)
			}
			back := filepath.Join(dir, name+".raw")
			qemuImg(t, dir, "convert", "-O", "raw", i.Disk(), back)
			if got, want := readFile(t, back), readFile(t, raw); !bytes.Equal(got[:len(want)], want) {
				t.Errorf("%s: another content", name)
			}
			info, err := os.Stat(i.Disk())
			if err != nil || info.Mode() != 0o444 || !os.SameFile(info, info) {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
			if owner := ownerOf(t, i.Disk()); owner != os.Geteuid() {
				t.Errorf("%s belongs to %d", name, owner)
			}
		}
	}
	if left := entries(t, s, "tmp"); len(left) > 0 {
		t.Error("left in tmp:", left)
	}
}

// TestImportPackedRefuses: what is damaged, or packed twice, or refers to other files, is no image; and a bomb ends
// before the disk is full.
func TestImportPackedRefuses(t *testing.T) {
	s, dir, raw := testStore(t), t.TempDir(), rawDisk(t, "refused")
	whole := packFile(t, raw, filepath.Join(dir, "whole.gz"), gzipped)
	descriptor := "# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n" +
		"RW 2048 FLAT \"/etc/shadow\" 0\n"
	qemuImg(t, dir, "create", "-q", "-f", "qcow2", "-F", "raw", "-b", raw, filepath.Join(dir, "backed"))
	for name, file := range map[string]string{
		"cut short":        writeFile(t, filepath.Join(dir, "cut.gz"), readFile(t, whole)[:100]),
		"packed twice":     packFile(t, whole, filepath.Join(dir, "twice.gz"), gzipped),
		"a description":    writeFile(t, filepath.Join(dir, "d.vmdk"), []byte(descriptor)),
		"a packed backing": packFile(t, filepath.Join(dir, "backed"), filepath.Join(dir, "b.gz"), gzipped),
		"damaged vmdk":     writeFile(t, filepath.Join(dir, "bad.vmdk"), append([]byte("KDMV"), make([]byte, 1020)...)),
		"xz, cut short":    writeFile(t, filepath.Join(dir, "x.xz"), []byte("\xfd7zXZ\x00\x00\x04")),
		"zstd, too much":   writeFile(t, filepath.Join(dir, "w.zst"), []byte("\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00")),
	} {
		if _, err := s.Import(t.Context(), "refused", file, nil); err == nil {
			t.Errorf("%s: taken", name)
		} else {
			wantCode(t, err, farm.CodeBadImage)
		}
	}
	if left := slices.Concat(entries(t, s, "tmp"), entries(t, s, "blobs"), entries(t, s, "images")); len(left) > 0 {
		t.Error("left:", left)
	}
}
