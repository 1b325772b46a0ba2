package vmimage

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
)

// unpacked is a directory that is a container's root.
func unpacked(t *testing.T, text string) (ref string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "image")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "file"), []byte(text))
	if err := os.Chtimes(dir, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	os.Chtimes(filepath.Join(dir, "file"), time.Unix(1, 0), time.Unix(1, 0))
	return "dir:" + dir
}

func TestFetchReference(t *testing.T) {
	s, ref := testStore(t), unpacked(t, "text")
	if _, err := s.Get(ref); !farm.IsCode(err, farm.CodeNoImage) {
		t.Error(err)
	}
	i, err := s.FetchReference(t.Context(), FetchOptions{Source: ref})
	if err != nil {
		t.Fatal(err)
	}
	if i.Kind != Root || i.Format != "erofs" || i.Config == nil || i.Source != ref || i.Size == 0 ||
		filepath.Base(i.Root()) != "root.erofs" || i.Kernel() != "" || i.Disk() != "" {
		t.Errorf("%+v", i)
	}
	if info, err := os.Stat(i.Root()); err != nil || info.Mode() != 0o444 || info.Size()%4096 != 0 {
		t.Errorf("%v %v", info, err)
	}
	if err := s.Verify(t.Context(), ref); err != nil {
		t.Error(err)
	}
	// What is cached needs its source no more.
	os.RemoveAll(strings.TrimPrefix(ref, "dir:"))
	if again, err := s.Get(ref); err != nil || again.Digest != i.Digest || again.Config == nil {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := s.FetchReference(t.Context(), FetchOptions{Source: ref}); !farm.IsCode(err, imagesource.CodeSource) {
		t.Error(err)
	}
	if left := slices.Concat(entries(t, s, "tmp"), entries(t, s, partialDir)); len(left) > 0 {
		t.Error("left:", left)
	}
	// Under a name of its own it is found by its reference all the same.
	ref = unpacked(t, "another")
	named, err := s.Fetch(t.Context(), FetchOptions{Name: "named", Source: ref})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(ref); err != nil || got.Name != "named" || got.Digest == i.Digest {
		t.Errorf("%+v, %v", got, err)
	}
	if again, err := s.Fetch(t.Context(), FetchOptions{Name: "again", Source: unpacked(t, "another")}); err != nil ||
		again.Digest != named.Digest {
		t.Errorf("the same content has another digest: %v", err)
	}
	_, err = s.Fetch(t.Context(), FetchOptions{Name: "x", Source: ref, Sum: "00"})
	if !farm.IsCode(err, farm.CodeBadImage) {
		t.Error(err)
	}
}

// TestDigestOfConfig: the same files with another configuration are another image.
func TestDigestOfConfig(t *testing.T) {
	i := Image{Kind: Root, Files: []File{{"root.erofs", 1, strings.Repeat("0", 64)}}, Config: &container.Config{}}
	plain := i.digest()
	i.Config = &container.Config{Entrypoint: []string{"/bin/ü"}}
	want := i.digest()
	if want == plain {
		t.Error("the configuration does not count")
	}
	i.Digest = want
	text, err := i.marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := unmarshal(text)
	if err != nil || back.digest() != want {
		t.Errorf("read back it is %s, and was %s: %v", back.digest(), want, err)
	}
}

// TestFetchReferenceOnce: those who want the same image at once wait for one who makes it.
func TestFetchReferenceOnce(t *testing.T) {
	s, ref := testStore(t), unpacked(t, "once")
	var imports, waits atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			began, waited := false, false
			_, err := s.FetchReference(t.Context(), FetchOptions{Source: ref, Progress: func(p Progress) {
				if p.Step == "import" && !began {
					began = true
					imports.Add(1)
					time.Sleep(100 * time.Millisecond)
				}
				if p.Note != "" && !waited {
					waited = true
					waits.Add(1)
				}
			}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if imports.Load() != 1 || waits.Load() != 7 {
		t.Errorf("%d imports, %d waited", imports.Load(), waits.Load())
	}
}

func sif(root []byte) []byte {
	le, b := binary.LittleEndian, make([]byte, 8192)
	copy(b[32:], container.SIFMagic+"01\x0002\x00")
	le.PutUint64(b[88:], 1)
	le.PutUint64(b[96:], 4096)
	le.PutUint64(b[104:], 585)
	d := b[4096:]
	le.PutUint32(d, 0x4004)
	d[4] = 1
	le.PutUint64(d[17:], uint64(len(b)))
	le.PutUint64(d[25:], uint64(len(root)))
	le.PutUint32(d[201:], 1)
	le.PutUint32(d[205:], 2)
	copy(d[209:], "02")
	return append(b, root...)
}

func TestSIF(t *testing.T) {
	s := testStore(t)
	root := append([]byte("hsqs"), bytes.Repeat([]byte("x"), 5000)...)
	file := filepath.Join(t.TempDir(), "image.sif")
	writeFile(t, file, sif(root))
	for name, get := range map[string]func() (Image, error){
		"import": func() (Image, error) { return s.Import(t.Context(), "imported", file, nil) },
		"path":   func() (Image, error) { return s.FetchReference(t.Context(), FetchOptions{Source: file}) },
		"reference": func() (Image, error) {
			return s.FetchReference(t.Context(), FetchOptions{Source: "sif:" + file})
		},
	} {
		i, err := get()
		if err != nil {
			t.Fatal(name, err)
		}
		b := readFile(t, i.Root())
		if i.Kind != Root || i.Format != "squashfs" || len(b) != 8192 || !bytes.HasPrefix(b, root) ||
			i.Config.Command()[0] != "/.singularity.d/runscript" {
			t.Errorf("%s: %+v", name, i)
		}
	}
	writeFile(t, file, sif(root)[:9000])
	if _, err := s.Import(t.Context(), "cut", file, nil); !farm.IsCode(err, farm.CodeBadImage) {
		t.Error(err)
	}
	disk := rawDisk(t, "no sif")
	if _, err := s.FetchReference(t.Context(), FetchOptions{Source: "sif:" + disk}); !farm.IsCode(err,
		farm.CodeBadImage) {
		t.Error(err)
	}
	if left := entries(t, s, "tmp"); len(left) > 0 {
		t.Error("left:", left)
	}
}

// TestResolvedPath: where a path is to be resolved, what it leads to is opened, and no symbolic link is followed any
// more.
func TestResolvedPath(t *testing.T) {
	s := testStore(t)
	ref := unpacked(t, "x")
	dir := strings.TrimPrefix(ref, "dir:")
	file := filepath.Join(t.TempDir(), "image.sif")
	writeFile(t, file, sif(append([]byte("hsqs"), make([]byte, 5000)...)))
	links := t.TempDir()
	for name, to := range map[string]string{"dir": dir, "sif": file} {
		if err := os.Symlink(to, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	as := func(path string) (string, error) { return path, nil }
	denied := &farm.Error{Kind: farm.Denied, Code: "denied"}
	for _, c := range []struct {
		ref     string
		resolve func(string) (string, error)
		code    farm.Code
	}{
		{"dir:" + links + "/dir", nil, ""},
		{"dir:" + links + "/dir", as, imagesource.CodeSource},
		{"dir:" + links + "/dir", filepath.EvalSymlinks, ""},
		{"dir:" + links + "/dir", func(string) (string, error) { return "", denied }, "denied"},
		{"sif:" + links + "/sif", nil, ""},
		{"sif:" + links + "/sif", as, imagesource.CodeSource},
		{"sif:" + links + "/sif", filepath.EvalSymlinks, ""},
		{"sif:" + links + "/sif", func(string) (string, error) { return "", denied }, "denied"},
	} {
		i, err := s.FetchReference(t.Context(), FetchOptions{Source: c.ref, Resolve: c.resolve})
		if c.code == "" && (err != nil || i.Source != c.ref) || c.code != "" && !farm.IsCode(err, c.code) {
			t.Errorf("%s: %v", c.ref, err)
		}
	}
}

func TestKernelOfRoot(t *testing.T) {
	s := testStore(t)
	root, err := s.FetchReference(t.Context(), FetchOptions{Source: unpacked(t, "x")})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Kernel(root); !farm.IsCode(err, CodeRootKernel) {
		t.Error(err)
	}
	mustImport(t, s, MicroName, rawDisk(t, "a disk"))
	if _, _, err := s.Kernel(root); !farm.IsCode(err, CodeRootKernel) {
		t.Error(err)
	}
	if err := root.CheckSystem("a worker"); !farm.IsCode(err, CodeImageKind) {
		t.Error(err)
	}
	if err := (Image{Kind: Disk}).CheckSystem("a worker"); err != nil {
		t.Error(err)
	}
}
