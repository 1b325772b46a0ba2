package container

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goerofs "github.com/erofs/go-erofs"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/reach"
)

// golden is the digest of the file system that lowLayer and highLayer make.
const golden = "6d62ac03d233dde23e27d7632e2b40413cfa0deafbe0288923a047461b184d3a"

func tarOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := ""
		if h.Typeflag == tar.TypeReg || h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		h.ModTime = time.Unix(1700000000, 0)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// file has its content in Linkname.
func file(name, content string) tar.Header { return tar.Header{Name: name, Linkname: content} }

func lowLayer(t *testing.T) []byte {
	owned := file("bin/tool", "tool")
	owned.Uid, owned.Gid, owned.Mode = 1000, 2000, 0o4755
	owned.PAXRecords = map[string]string{paxXattr + "user.note": "kept", paxXattr + "trusted.overlay.opaque": "y",
		paxXattr + "security.selinux": "label"}
	return tarOf(t, tar.Header{Name: "./", Typeflag: tar.TypeDir}, tar.Header{Name: "bin", Typeflag: tar.TypeDir},
		owned,
		tar.Header{Name: "bin/again", Typeflag: tar.TypeLink, Linkname: "bin/tool"}, file("etc/old", "old"),
		file("etc/replaced", "low"), tar.Header{Name: "lib", Typeflag: tar.TypeSymlink, Linkname: "usr/lib"},
		tar.Header{Name: "up", Typeflag: tar.TypeSymlink, Linkname: "../../../etc"},
		tar.Header{Name: "dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		file("cache/a/b", "gone"), file("cache/c", "gone"), file("gone/deep/er", "gone"), file("dir/becomes/file", "x"),
		file("zeros", strings.Repeat("\x00", 100000)))
}

func highLayer(t *testing.T) []byte {
	return tarOf(t, file("cache/new", "new"), file("cache/.wh..wh..opq", ""), file("etc/.wh.old", ""),
		file(".wh.gone", ""), file("etc/replaced", "high"), file("lib/libc", "libc"), file("dir", "a file"), file("bin/.wh.never", ""),
		tar.Header{Name: "pipe", Typeflag: tar.TypeFifo})
}

func packed(t *testing.T, how string, b []byte) v1.Layer {
	t.Helper()
	var out bytes.Buffer
	kind := types.OCIUncompressedLayer
	switch how {
	case "gzip":
		w := gzip.NewWriter(&out)
		w.Write(b)
		w.Close()
		kind = types.OCILayer
	case "zstd":
		w, _ := zstd.NewWriter(&out)
		w.Write(b)
		w.Close()
		kind = types.OCILayerZStd
	default:
		out.Write(b)
	}
	return static.NewLayer(out.Bytes(), kind)
}

func imageOf(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", Config: v1.Config{
		Env: []string{"PATH=/opt/bin", "A=b", "broken"}, Entrypoint: []string{"/bin/tool"}, Cmd: []string{"arg"},
		WorkingDir: "work", User: "1000", Labels: map[string]string{"l": "v"}}, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// serve starts a registry, whose answers a test may change, and returns the reference of a name there.
func serve(t *testing.T, wrap func(http.Handler) http.Handler) (ref func(name string) string) {
	t.Helper()
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		h = wrap(h)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return func(name string) string { return "oci+http://" + strings.TrimPrefix(s.URL, "http://") + "/" + name }
}

func push(t *testing.T, ref string, what any) {
	t.Helper()
	r, err := name.ParseReference(strings.TrimPrefix(ref, "oci+http://"), name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	switch w := what.(type) {
	case v1.Image:
		err = remote.Write(r, w)
	case v1.ImageIndex:
		err = remote.WriteIndex(r, w)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type result struct {
	Built
	fs    fs.FS
	sum   string
	spool *os.Root
}

func fetch(t *testing.T, ref string, o Options) (result, error) {
	t.Helper()
	r, err := Parse(ref)
	if err != nil {
		t.Fatal(err)
	}
	if o.Dir == nil {
		if o.Dir, err = os.OpenRoot(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	if o.Limit == 0 {
		o.Limit = 1 << 30
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	built, err := Build(t.Context(), r, f, o)
	if err != nil {
		return result{spool: o.Dir}, err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, 1<<40)); err != nil {
		t.Fatal(err)
	}
	fsys, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return result{built, fsys, fmt.Sprintf("%x", sum.Sum(nil)), o.Dir}, nil
}

func wantCode(t *testing.T, what string, err error, code farm.Code, says string) {
	t.Helper()
	var known *farm.Error
	if !errors.As(err, &known) || known.Code != code || known.Hint == "" || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v; wanted %s with %q", what, err, code, says)
	}
}

// list names all that is in a file system.
func list(t *testing.T, fsys fs.FS) (names []string) {
	t.Helper()
	err := fs.WalkDir(fsys, ".", func(p string, _ fs.DirEntry, err error) error {
		names = append(names, p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestLayers: what layers add up to, however they are packed and wherever they come from.
func TestLayers(t *testing.T) {
	ref := serve(t, nil)
	var first result
	for i, how := range []string{"gzip", "zstd", "tar"} {
		image := imageOf(t, packed(t, how, lowLayer(t)), packed(t, how, highLayer(t)))
		push(t, ref("a/"+how), image)
		got, err := fetch(t, ref("a/"+how), Options{})
		if err != nil {
			t.Fatal(how, err)
		}
		if i == 0 {
			first = got
		}
		if got.sum != first.sum {
			t.Errorf("%s has another digest", how)
		}
		dir := t.TempDir()
		index, err := layout.Write(dir, empty.Index)
		if err != nil {
			t.Fatal(err)
		}
		if err := index.AppendImage(image, layout.WithAnnotations(map[string]string{tagAnnotation: "v1"})); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"oci-layout:" + dir, "oci-layout:" + dir + ":v1"} {
			if l, err := fetch(t, text, Options{}); err != nil || l.sum != first.sum || l.Digest != got.Digest {
				t.Errorf("%s: %v", text, err)
			}
		}
		_, err = fetch(t, "oci-layout:"+dir+":v2", Options{})
		wantCode(t, "another tag", err, farm.CodeBadImage, `tag "v1"`)
	}
	if first.sum != golden {
		t.Errorf("the digest is %s", first.sum)
	}
	want := []string{".", "bin", "bin/again", "bin/tool", "cache", "cache/new", "dev", "dir", "etc", "etc/replaced", "lib",
		"pipe", "up", "usr", "usr/lib", "usr/lib/libc", "zeros"}
	if got := list(t, first.fs); !slices.Equal(got, want) {
		t.Errorf("there is %q", got)
	}
	for name, want := range map[string]string{"etc/replaced": "high", "usr/lib/libc": "libc", "bin/again": "tool",
		"dir": "a file", "zeros": strings.Repeat("\x00", 100000)} {
		if b, err := fs.ReadFile(first.fs, name); err != nil || string(b) != want {
			t.Errorf("%s: %.50q, %v", name, b, err)
		}
	}
	info, err := fs.Stat(first.fs, "bin/tool")
	if err != nil {
		t.Fatal(err)
	}
	s := info.Sys().(*goerofs.Stat)
	if s.UID != 1000 || s.GID != 2000 || s.Nlink != 2 || s.Mode&fs.ModeSetuid == 0 || s.Mtime != 1700000000 ||
		len(s.Xattrs) != 1 || s.Xattrs["user.note"] != "kept" {
		t.Errorf("%+v", s)
	}
	if target, err := first.fs.(interface{ ReadLink(string) (string, error) }).ReadLink("up"); target != "../../../etc" {
		t.Error("a symbolic link was changed:", target, err)
	}
	c := first.Config
	if c.Workdir != "/work" || !slices.Equal(c.Env, []string{"PATH=/opt/bin", "A=b"}) || c.User != "1000" ||
		!slices.Equal(c.Command(), []string{"/bin/tool", "arg"}) || c.Labels["l"] != "v" {
		t.Errorf("%+v", c)
	}
}

// TestHostile: what nobody should be given to run is refused, and what was refused left nothing behind that runs.
func TestHostile(t *testing.T) {
	ref := serve(t, nil)
	long := strings.Repeat("n", 256)
	deep := strings.Repeat("d/", 200) + "f"
	for what, layer := range map[string][]byte{
		"absolute":       tarOf(t, file("/etc/passwd", "x")),
		"dots":           tarOf(t, file("a/../../etc/passwd", "x")),
		"dots inside":    tarOf(t, file("a/../b", "x")),
		"link outside":   tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "../../etc/shadow"}),
		"link to none":   tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "etc/shadow"}),
		"link to itself": tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "l"}),
		"link to a directory": tarOf(t, tar.Header{Name: "d", Typeflag: tar.TypeDir},
			tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "d"}),
		"long name": tarOf(t, file(long, "x")),
		"deep":      tarOf(t, file(deep, "x")),
		"circle": tarOf(t, tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b"},
			tar.Header{Name: "b", Typeflag: tar.TypeSymlink, Linkname: "a"}, file("a/x", "x")),
		"long target":    tarOf(t, tar.Header{Name: "s", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("t/", 2100)}),
		"root is a file": tarOf(t, tar.Header{Name: ".", Typeflag: tar.TypeSymlink, Linkname: "/"}),
		"unknown type":   tarOf(t, tar.Header{Name: "x", Typeflag: 'Z'}),
		"owner":          tarOf(t, tar.Header{Name: "x", Typeflag: tar.TypeDir, Uid: 1 << 40}),
		"attributes": tarOf(t, tar.Header{Name: "x", Typeflag: tar.TypeDir,
			PAXRecords: map[string]string{paxXattr + "user.x": strings.Repeat("x", 70000)}}),
		"cut short": tarOf(t, file("x", strings.Repeat("x", 5000)))[:3000],
		"no tar":    bytes.Repeat([]byte("nonsense"), 1000),
	} {
		image := imageOf(t, packed(t, "gzip", layer))
		push(t, ref("hostile/image"), image)
		_, err := fetch(t, ref("hostile/image"), Options{})
		wantCode(t, what, err, farm.CodeBadImage, "")
	}
	var cut bytes.Buffer
	w := gzip.NewWriter(&cut)
	w.Write(lowLayer(t))
	w.Close()
	push(t, ref("hostile/cut"), imageOf(t, static.NewLayer(cut.Bytes()[:cut.Len()-200], types.OCILayer)))
	_, err := fetch(t, ref("hostile/cut"), Options{})
	wantCode(t, "cut gzip", err, farm.CodeBadImage, "damaged")
}

// TestBombs: small layers that unpack to much are given up in time.
func TestBombs(t *testing.T) {
	ref := serve(t, nil)
	zeros := tarOf(t, file("big", strings.Repeat("\x00", 80<<20)))
	for _, how := range []string{"gzip", "zstd"} {
		push(t, ref("bomb/"+how), imageOf(t, packed(t, how, zeros)))
		_, err := fetch(t, ref("bomb/"+how), Options{Limit: 4 << 20})
		wantCode(t, how, err, farm.CodeBadImage, "unpacks to more")
	}
	// A file that says it has an exabyte, all of it a hole.
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	huge := &tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: 1 << 60, Format: tar.FormatGNU}
	if err := tw.WriteHeader(huge); err != nil {
		t.Fatal(err)
	}
	push(t, ref("bomb/size"), imageOf(t, packed(t, "gzip", b.Bytes())))
	_, err := fetch(t, ref("bomb/size"), Options{})
	wantCode(t, "size", err, farm.CodeBadImage, "")
	_, err = fetch(t, ref("bomb/gzip"), Options{Limit: 1000})
	wantCode(t, "packed size", err, farm.CodeBadImage, "unpacks to more")
	// All layers together unpack to no more than one that packs its files well.
	low := filepath.Join(t.TempDir(), "layer")
	if err := os.WriteFile(low, tarOf(t, file("x", strings.Repeat("x", 1<<20))), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(low)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := newPass(t.Context(), []*os.File{f, f}, 1<<40, func() {})
	if err != nil {
		t.Fatal(err)
	}
	skip := func(int32, *tar.Header, io.Reader) error { return nil }
	if before := p.left; before < 2*200<<20 || p.readLayer(f, skip) != nil || before-p.left < 1<<20 {
		t.Errorf("%d bytes are left of %d", p.left, before)
	}
	p.left = 1 << 19
	wantCode(t, "all layers", p.readLayer(f, skip), farm.CodeBadImage, "unpacks to more")
	many := newTree()
	many.entries = mostEntries
	wantCode(t, "files", many.count("x"), farm.CodeBadImage, "files")
	many = newTree()
	wantCode(t, "words", many.count(string(make([]byte, mostWords+1))), farm.CodeBadImage, "names")
}

// TestSteps: links whose targets have many parts, and directories that are hidden again and again, are given up before
// they take long.
func TestSteps(t *testing.T) {
	const left = 1 << 20 // of the steps of an image
	links := []tar.Header{{Name: "a", Typeflag: tar.TypeDir}, {Name: "end/deep", Typeflag: tar.TypeDir}}
	for n := range mostLinks - 1 {
		to := fmt.Sprintf("l%d", n+1)
		if n == mostLinks-2 {
			to = "end"
		}
		links = append(links, tar.Header{Name: fmt.Sprintf("l%d", n), Typeflag: tar.TypeSymlink,
			Linkname: strings.Repeat("a/../", 800) + to})
	}
	shifted := []tar.Header{{Name: "end/deep", Typeflag: tar.TypeDir}, {Name: "x", Typeflag: tar.TypeSymlink,
		Linkname: strings.Repeat("./", 2000) + "end"}}
	var children []tar.Header
	for n := range 1000 {
		children = append(children, file(fmt.Sprintf("end/%d", n), ""))
	}
	for what, c := range map[string]struct {
		layer []tar.Header
		again func(n int) tar.Header
	}{
		"files":      {links, func(n int) tar.Header { return file(fmt.Sprintf("l0/%d", n), "") }},
		"long rests": {shifted, func(n int) tar.Header { return file(fmt.Sprintf("x/%d", n), "") }},
		"hard links": {append(slices.Clone(links), file("end/f", "")), func(n int) tar.Header {
			return tar.Header{Name: fmt.Sprintf("h%d", n), Typeflag: tar.TypeLink, Linkname: "l0/f"}
		}},
		"whiteouts":    {links, func(n int) tar.Header { return file(fmt.Sprintf("l0/.wh.%d", n), "") }},
		"opaque":       {children, func(int) tar.Header { return file("end/.wh..wh..opq", "") }},
		"opaque above": {children, func(int) tar.Header { return file(".wh..wh..opq", "") }},
		"hidden":       {children, func(int) tar.Header { return file(".wh.end", "") }},
	} {
		many := newTree()
		many.steps = mostSteps - left
		many.begin(0)
		for n, h := range c.layer {
			if h.Typeflag == 0 {
				h.Typeflag = tar.TypeReg
			}
			if err := many.add(int32(n), &h); err != nil {
				t.Fatal(what, err)
			}
		}
		var err error
		for n := 0; n < left && err == nil; n++ {
			h := c.again(n)
			h.Typeflag = cmp.Or(h.Typeflag, tar.TypeReg)
			err = many.add(int32(n), &h)
		}
		wantCode(t, what, err, farm.CodeBadImage, "steps")
	}
}

func TestPlatform(t *testing.T) {
	ref := serve(t, nil)
	ours := imageOf(t, packed(t, "gzip", lowLayer(t)))
	foreign := imageOf(t, packed(t, "gzip", highLayer(t)))
	at := func(image v1.Image, os, arch, variant string) mutate.IndexAddendum {
		p := &v1.Platform{OS: os, Architecture: arch, Variant: variant}
		return mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: p}}
	}
	push(t, ref("p/both"), mutate.AppendManifests(empty.Index, at(foreign, "linux", "arm64", "v8"),
		at(ours, "linux", "amd64", ""), at(foreign, "unknown", "unknown", "")))
	got, err := fetch(t, ref("p/both"), Options{})
	if want, _ := ours.Digest(); err != nil || got.Digest != want.String() {
		t.Errorf("%s, %v", got.Digest, err)
	}
	push(t, ref("p/foreign"), mutate.AppendManifests(empty.Index, at(foreign, "linux", "arm64", "v8"),
		at(foreign, "windows", "amd64", "")))
	_, err = fetch(t, ref("p/foreign"), Options{})
	wantCode(t, "index", err, farm.CodeBadImage, "it has: linux/arm64/v8, windows/amd64")
	config, err := mutate.ConfigFile(ours, &v1.ConfigFile{OS: "linux", Architecture: "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	push(t, ref("p/arm"), config)
	_, err = fetch(t, ref("p/arm"), Options{})
	wantCode(t, "image", err, farm.CodeBadImage, "it has: linux/arm64")
}

// TestTampered: a registry that sends other bytes than it was asked for gives no image.
func TestTampered(t *testing.T) {
	var what atomic.Value
	what.Store("")
	ref := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if part := what.Load().(string); part != "" && r.Method == "GET" && strings.Contains(r.URL.Path, part) {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				b := rec.Body.Bytes()
				if len(b) > 100 {
					b[len(b)/2] ^= 1
				}
				for k, v := range rec.Header() {
					w.Header()[k] = v
				}
				w.WriteHeader(rec.Code)
				w.Write(b)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	push(t, ref("t/a"), imageOf(t, packed(t, "tar", lowLayer(t))))
	what.Store("/blobs/")
	got, err := fetch(t, ref("t/a"), Options{})
	wantCode(t, "tampered blobs", err, farm.CodeBadImage, "not what its digest says")
	if left, _ := fs.ReadDir(got.spool.FS(), "."); len(left) > 0 {
		t.Errorf("%s stays", left[0].Name())
	}
}

// TestLargeManifest: an answer that is no blob is read up to a bound.
func TestLargeManifest(t *testing.T) {
	var large atomic.Bool
	ref := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if large.Load() && strings.Contains(r.URL.Path, "/manifests/") {
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				w.Write(bytes.Repeat([]byte(" "), mostManifest+1))
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	push(t, ref("l/a"), imageOf(t, packed(t, "gzip", lowLayer(t))))
	large.Store(true)
	_, err := fetch(t, ref("l/a"), Options{})
	wantCode(t, "a large manifest", err, farm.CodeBadImage, "is not a usable image")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "index.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "index.json"), mostManifest+1); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644)
	_, err = fetch(t, "oci-layout:"+dir, Options{})
	wantCode(t, "a large index", err, farm.CodeBadImage, "more bytes than are read")
	if err := errors.Join(os.Remove(filepath.Join(dir, "index.json")),
		os.Symlink("/dev/zero", filepath.Join(dir, "index.json"))); err != nil {
		t.Fatal(err)
	}
	_, err = fetch(t, "oci-layout:"+dir, Options{})
	wantCode(t, "an index without an end", err, farm.CodeBadImage, "is no file")
}

// TestLargeBlobs: what a layout's descriptors say of the size of a file is not believed.
func TestLargeBlobs(t *testing.T) {
	for what, of := range map[string]func(v1.Image) (v1.Hash, error){
		"a large manifest": v1.Image.Digest, "a large configuration": v1.Image.ConfigName,
	} {
		dir := t.TempDir()
		to, err := layout.Write(dir, empty.Index)
		if err != nil {
			t.Fatal(err)
		}
		image := imageOf(t, packed(t, "gzip", lowLayer(t)))
		h, err := of(image)
		if err := errors.Join(err, to.AppendImage(image)); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, "blobs", h.Algorithm, h.Hex), 1<<40); err != nil {
			t.Fatal(err)
		}
		_, err = fetch(t, "oci-layout:"+dir, Options{})
		wantCode(t, what, err, farm.CodeBadImage, "more bytes than are read")
	}
}

// TestRootEntry: some builders write an entry for the root, as "/".
func TestRootEntry(t *testing.T) {
	ref := serve(t, nil)
	push(t, ref("r/a"), imageOf(t, packed(t, "gzip", tarOf(t, tar.Header{Name: "/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "etc", Typeflag: tar.TypeDir, Mode: 0o755}))))
	if _, err := fetch(t, ref("r/a"), Options{}); err != nil {
		t.Error(err)
	}
}

// TestKeptLayers: layers that came whole are not downloaded again, and damaged ones are.
func TestKeptLayers(t *testing.T) {
	var blobs atomic.Int32
	ref := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "GET" && strings.Contains(r.URL.Path, "/blobs/") {
				blobs.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	})
	push(t, ref("k/a"), imageOf(t, packed(t, "gzip", lowLayer(t)), packed(t, "gzip", highLayer(t))))
	first, err := fetch(t, ref("k/a"), Options{})
	if err != nil || blobs.Load() != 3 {
		t.Fatal(err, blobs.Load())
	}
	if _, err := fetch(t, ref("k/a"), Options{Dir: first.spool}); err != nil || blobs.Load() != 4 { // the configuration
		t.Error(err, blobs.Load())
	}
	kept, _ := fs.ReadDir(first.spool.FS(), ".")
	b, _ := first.spool.ReadFile(kept[0].Name())
	b[10] ^= 1
	first.spool.WriteFile(kept[0].Name(), b, 0o600)
	again, err := fetch(t, ref("k/a"), Options{Dir: first.spool})
	if err != nil || blobs.Load() != 6 || again.sum != first.sum {
		t.Error(err, blobs.Load())
	}
}

// TestPlainHTTP: only a reference that says so is fetched without TLS.
func TestPlainHTTP(t *testing.T) {
	ref := serve(t, nil)
	push(t, ref("h/a"), imageOf(t, packed(t, "gzip", lowLayer(t))))
	_, err := fetch(t, strings.Replace(ref("h/a"), "oci+http", "oci", 1), Options{})
	wantCode(t, "plain http", err, "image-source", "")
	_, err = fetch(t, ref("h/missing"), Options{})
	wantCode(t, "missing", err, "image-source", "")
	if !farm.IsKind(err, farm.NotFound) {
		t.Error(err)
	}
}

// TestHangs: a registry that sends nothing is given up.
func TestHangs(t *testing.T) {
	over := make(chan struct{})
	ref := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "GET" && strings.Contains(r.URL.Path, "/blobs/") {
				<-over
			}
			h.ServeHTTP(w, r)
		})
	})
	defer close(over)
	push(t, ref("s/a"), imageOf(t, packed(t, "gzip", lowLayer(t))))
	old := stall
	stall = 50 * time.Millisecond
	defer func() { stall = old }()
	_, err := fetch(t, ref("s/a"), Options{})
	wantCode(t, "a silent registry", err, "image-source", "nothing came")
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"bin/tool": "tool", "etc/passwd": "root:x:0:0::/:\n", "empty": ""} {
		os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.Link(filepath.Join(dir, "bin/tool"), filepath.Join(dir, "bin/again"))
	os.Symlink("/etc/shadow", filepath.Join(dir, "link"))
	first, err := fetch(t, "dir:"+dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{".", "bin", "bin/again", "bin/tool", "empty", "etc", "etc/passwd", "link"}
	if got := list(t, first.fs); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if target, _ := first.fs.(interface{ ReadLink(string) (string, error) }).ReadLink("link"); target != "/etc/shadow" {
		t.Error(target)
	}
	if b, err := fs.ReadFile(first.fs, "bin/again"); err != nil || string(b) != "tool" {
		t.Errorf("%q, %v", b, err)
	}
	if again, err := fetch(t, "dir:"+dir, Options{}); err != nil || again.sum != first.sum {
		t.Error("the same directory has another digest:", err)
	}
	_, err = fetch(t, "dir:"+dir, Options{Limit: 4})
	wantCode(t, "too large", err, farm.CodeBadImage, "unpacks to more")
	_, err = fetch(t, "dir:"+dir+"/missing", Options{})
	wantCode(t, "missing", err, "image-source", "")
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, _ := Parse("dir:" + t.TempDir())
	f, _ := os.Create(filepath.Join(t.TempDir(), "f"))
	defer f.Close()
	if _, err := Build(ctx, r, f, Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestOutsideRegistry: for who is not root, neither a registry nor what it names for tokens is at an address of this
// host, unless the site has named it.
func TestOutsideRegistry(t *testing.T) {
	hidden := 0
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hidden++
		w.Write([]byte(`{"token":"x"}`))
	}))
	defer inner.Close()
	var realm atomic.Value
	realm.Store("")
	ref := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if at := realm.Load().(string); at != "" && r.Header.Get("Authorization") == "" {
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+at+`/token"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	push(t, ref("t/a"), imageOf(t, packed(t, "tar", lowLayer(t))))
	site := &reach.Outside{Host: "127.0.0.1"}
	if _, err := fetch(t, ref("t/a"), Options{Limit: 1 << 30, Outside: &reach.Outside{}}); !farm.IsCode(err,
		farm.CodeNotYours) {
		t.Errorf("a registry of this host: %v", err)
	}
	if _, err := fetch(t, ref("t/a"), Options{Limit: 1 << 30, Outside: site}); err != nil {
		t.Errorf("a registry that the site has named: %v", err)
	}
	realm.Store(strings.Replace(inner.URL, "127.0.0.1", "localhost", 1))
	if _, err := fetch(t, ref("t/a"), Options{Limit: 1 << 30, Outside: site}); !farm.IsCode(err, farm.CodeNotYours) ||
		hidden != 0 {
		t.Errorf("tokens of this host: %v, asked %d times", err, hidden)
	}
	if _, err := fetch(t, ref("t/a"), Options{Limit: 1 << 30}); err != nil || hidden == 0 {
		t.Errorf("without a bound: %v, asked %d times", err, hidden)
	}
}
