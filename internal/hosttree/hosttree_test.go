package hosttree_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

// entry is one of a tar archive.
type entry struct {
	name string
	kind byte
	text string // or where a link leads
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o644}
		if e.kind == tar.TypeReg {
			h.Size = int64(len(e.text))
		} else {
			h.Linkname = e.text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			w.Write([]byte(e.text))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func save(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// host is a sound archive: a link within, one out of, and one around the tree.
var host = []entry{
	{"./host/", tar.TypeDir, ""},
	{"./host/proc/version", tar.TypeReg, "Linux"},
	{"./host/sys/block/sda", tar.TypeSymlink, "../devices/sda"},
	{"./host/sys/devices/sda/size", tar.TypeReg, "1"},
	{"./host/sys/abs", tar.TypeSymlink, "/proc/version"},
	{"./host/sys/up", tar.TypeSymlink, "../../../../../../../etc/passwd"},
	{"./host/sys/loop", tar.TypeSymlink, "loop"},
	{"./host/sys/hard", tar.TypeLink, "./host/proc/version"},
	{"./host/dev/null", tar.TypeChar, ""},
	{"./host/dev/pipe", tar.TypeFifo, ""},
}

func checkHost(t *testing.T, tree *hosttree.Tree) {
	t.Helper()
	for name, want := range map[string]string{"proc/version": "Linux", "sys/block/sda/size": "1", "sys/abs": "Linux",
		"sys/hard": "Linux"} {
		if got, err := fs.ReadFile(tree, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"sys/up", "sys/loop", "dev/null", "dev/pipe", "etc/passwd"} {
		if _, err := fs.ReadFile(tree, name); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	if target, err := fs.ReadLink(tree.FS, "sys/block/sda"); err != nil || target != "../devices/sda" {
		t.Errorf("a link leads to %q, %v", target, err)
	}
}

func TestOpenArchives(t *testing.T) {
	plain := archive(t, host...)
	var zipped, packed bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(plain)
	z.Close()
	p, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	p.Write(plain)
	p.Close()
	for name, data := range map[string][]byte{"a.tar": plain, "a.tar.gz": zipped.Bytes(), "a.tar.zst": packed.Bytes(),
		"no-ending": zipped.Bytes()} {
		t.Run(name, func(t *testing.T) {
			tree, err := hosttree.Open(save(t, name, data))
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			checkHost(t, tree)
		})
	}
}

func TestArchiveIsAFileSystem(t *testing.T) {
	tree, err := hosttree.Open(save(t, "a.tar", archive(t, host[:4]...)))
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(tree.FS, "proc/version", "sys/block/sda", "sys/devices/sda/size"); err != nil {
		t.Error(err)
	}
}

func TestOpenText(t *testing.T) {
	tree, err := hosttree.Open(save(t, "a.txtar",
		[]byte("a comment\n-- proc/version --\nLinux\n-- sys/empty --\n-- etc/two --\n-- \nlast")))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"proc/version": "Linux\n", "sys/empty": "", "etc/two": "-- \nlast"} {
		if got, err := fs.ReadFile(tree, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestOpenDirectory(t *testing.T) {
	dir := t.TempDir()
	secret := save(t, "secret", []byte("x"))
	for name, text := range map[string]string{"deep/er/proc/version": "Linux", "deep/er/sys/devices/sda/size": "1"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"block": "devices/sda", "out": secret} {
		if err := os.Symlink(target, filepath.Join(dir, "deep/er/sys", name)); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := hosttree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if got, err := fs.ReadFile(tree, "sys/block/size"); err != nil || string(got) != "1" {
		t.Errorf("through a link: %q, %v", got, err)
	}
	if _, err := fs.ReadFile(tree, "sys/out"); err == nil {
		t.Error("a link led out of the tree")
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, data := range map[string][]byte{
		"up.tar":      archive(t, entry{"host/../../etc/cron.d/x", tar.TypeReg, "x"}),
		"both.tar":    archive(t, entry{"proc/a", tar.TypeReg, ""}, entry{"proc/a/b", tar.TypeReg, ""}),
		"both2.tar":   archive(t, entry{"proc/a/b", tar.TypeReg, ""}, entry{"proc/a", tar.TypeReg, ""}),
		"through.tar": archive(t, entry{"proc/a", tar.TypeSymlink, "/etc"}, entry{"proc/a/b", tar.TypeReg, ""}),
		"large.tar":   archive(t, entry{"proc/a", tar.TypeReg, strings.Repeat("x", 17<<20)}),
		"none.tar":    archive(t, entry{"etc/passwd", tar.TypeReg, ""}),
		"two.tar":     archive(t, entry{"a/proc/x", tar.TypeReg, ""}, entry{"b/proc/x", tar.TypeReg, ""}),
		"deep.tar":    archive(t, entry{"a/b/c/d/proc/x", tar.TypeReg, ""}),
		"cut.tar":     archive(t, host...)[:3000],
		"cut.tar.gz":  {0x1f, 0x8b, 8, 0},
		"words.tar":   []byte(strings.Repeat("no archive ", 100)),
		"up.txtar":    []byte("-- ../x --\n"),
		"empty.txtar": nil,
	} {
		t.Run(name, func(t *testing.T) {
			tree, err := hosttree.Open(save(t, name, data))
			var e *farm.Error
			if !errors.As(err, &e) || e.Code != farm.CodeBadRecording {
				t.Errorf("got %v, %v; want %s", tree, err, farm.CodeBadRecording)
			}
		})
	}
	if _, err := hosttree.Open("/does/not/exist"); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestFilesNeverWait(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := mkfifo(filepath.Join(dir, "proc/pipe")); err != nil {
		t.Fatal(err)
	}
	tree, err := hosttree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if _, ok := hosttree.NewFiles(tree).Text("proc/pipe"); ok {
		t.Error("a pipe was read")
	}
}

func TestLive(t *testing.T) {
	tree, err := hosttree.Live(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files := hosttree.NewFiles(tree)
	for _, path := range []string{hosttree.VersionsPath, hosttree.FileSystemsPath, "proc/version"} {
		if text, ok := files.Text(path); !ok || text == "" {
			t.Errorf("%s: %q", path, text)
		}
	}
}

func FuzzOpenArchive(f *testing.F) {
	f.Add(archive(f, host...), false)
	f.Add([]byte("-- proc/version --\nLinux\n"), true)
	f.Fuzz(func(t *testing.T, data []byte, text bool) {
		name := "a.tar"
		if text {
			name = "a.txtar"
		}
		tree, err := hosttree.Open(save(t, name, data))
		if err != nil {
			var e *farm.Error
			if !errors.As(err, &e) {
				t.Errorf("%v is not a farm.Error", err)
			}
			return
		}
		fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				fs.ReadFile(tree, name)
			}
			return nil
		})
	})
}
