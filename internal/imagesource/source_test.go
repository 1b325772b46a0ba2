package imagesource_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
	"github.com/grange-project/grange/internal/imagesource/sourcetest"
	"github.com/grange-project/grange/internal/reach"
)

// directory publishes by path, or below url.
type directory struct{ dir, url string }

func (d directory) Publish(t *testing.T, content []byte) string {
	next := filepath.Join(d.dir, "next")
	if err := os.WriteFile(next, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(d.dir, "disk.qcow2")); err != nil {
		t.Fatal(err)
	}
	return d.url + "/disk.qcow2"
}

func (d directory) Missing(*testing.T) string { return d.url + "/nothing.qcow2" }

func TestFile(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Publisher { d := t.TempDir(); return directory{d, d} })
}

func TestFileURL(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Publisher { d := t.TempDir(); return directory{d, "file://" + d} })
}

func TestWeb(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Publisher {
		d := t.TempDir()
		server := httptest.NewServer(http.FileServer(http.Dir(d)))
		t.Cleanup(server.Close)
		return directory{d, server.URL}
	})
}

// TestWebWithoutRanges: a server that knows no ranges sends all, and what is there already is passed over.
func TestWebWithoutRanges(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Publisher {
		d := t.TempDir()
		files := http.FileServer(http.Dir(d))
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Range")
			files.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		return directory{d, server.URL}
	})
}

// tree publishes as a simplestreams tree does: a version for each image.
type tree struct {
	dir, url string
	version  int
}

func (s *tree) write(t *testing.T, name string, content []byte) {
	t.Helper()
	name = filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

const product = "org.example:12:amd64"

func (s *tree) Publish(t *testing.T, content []byte) string {
	s.version++
	s.write(t, "streams/v1/index.json", []byte(`{"format":"index:1.0","index":{"images":{"path":"streams/v1/images.json",`+
		`"products":["`+product+`"]}}}`))
	s.write(t, "files/disk.qcow2", content)
	s.write(t, "streams/v1/images.json", fmt.Appendf(nil, `{"format":"products:1.0","products":{%q:{"versions":{`+
		`"2026010%d":{"items":{"disk-kvm.img":{"ftype":"disk-kvm.img","path":"files/disk.qcow2","size":%d,`+
		`"sha256":"%x"},"manifest":{"ftype":"manifest","path":"files/manifest"}}},`+
		`"20250101":{"items":{"disk":{"ftype":"disk-kvm.img","path":"files/old"}}}}}}}`,
		product, s.version, len(content), sha256.Sum256(content)))
	return "simplestreams+" + s.url + "/#" + product
}

func (s *tree) Missing(t *testing.T) string {
	s.Publish(t, nil)
	return "simplestreams+" + s.url + "/#org.example:13:amd64"
}

func newTree(t *testing.T) *tree {
	d := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(d)))
	t.Cleanup(server.Close)
	return &tree{dir: d, url: server.URL}
}

func TestSimplestreams(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Publisher { return newTree(t) })
}

// TestHostileIndex: an index leads nowhere but below its tree, and has a checksum of each file.
func TestHostileIndex(t *testing.T) {
	for _, item := range []string{
		`"path":"../secret","sha256":"` + strings.Repeat("a", 64) + `"`,
		`"path":"/etc/shadow","sha256":"` + strings.Repeat("a", 64) + `"`,
		`"path":"http://other/disk","sha256":"` + strings.Repeat("a", 64) + `"`,
		`"path":"files/disk.qcow2"`, `"path":"files/disk.qcow2","sha256":"abc"`, `"path":7`,
	} {
		tree := newTree(t)
		ref := tree.Publish(t, []byte("disk"))
		tree.write(t, "streams/v1/images.json", []byte(`{"products":{"`+product+
			`":{"versions":{"1":{"items":{"d":{"ftype":"disk-kvm.img",`+item+`}}}}}}}`))
		s, err := imagesource.Open(ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := s.Stat(t.Context()); err == nil {
			t.Errorf("%s: %+v", item, info)
		}
	}
}

// TestSimplestreamsType: a reference may name the type of file.
func TestSimplestreamsType(t *testing.T) {
	tree := newTree(t)
	ref := tree.Publish(t, []byte("disk"))
	for ftype, there := range map[string]bool{"/disk-kvm.img": true, "/disk1.img": false} {
		s, err := imagesource.Open(ref+ftype, nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Stat(t.Context())
		if (err == nil) != there || there && info.Sum == "" {
			t.Errorf("%s: %+v, %v", ftype, info, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, ref := range []string{"", "debian", "ftp://host/file", "https:///file", "https://host/", "https://host",
		"https://user:secret@host/file", "file://relative/x", "http://ho st/f",
		"simplestreams+https://host/", "simplestreams+ftp://host/#product"} {
		if s, err := imagesource.Open(ref, nil); err == nil {
			t.Errorf("%q: %v", ref, s)
		}
	}
}

// TestBounded: a file that answers is read as without.
func TestBounded(t *testing.T) {
	d := directory{t.TempDir(), ""}
	d.url = d.dir
	source, err := imagesource.Open(d.Publish(t, []byte("text")), nil)
	if err != nil {
		t.Fatal(err)
	}
	source = imagesource.Bounded(source)
	info, err := source.Stat(t.Context())
	if err != nil || info.Size != 4 {
		t.Fatalf("%+v, %v", info, err)
	}
	if b, err := imagesource.ReadSmall(t.Context(), source, 10); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
	if imagesource.Bounded(nil) != nil {
		t.Error("a source of nothing")
	}
}

// TestOutside: for who is not root, neither a source nor a redirect leads to an address of this host.
func TestOutside(t *testing.T) {
	hidden := 0
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hidden++ }))
	defer inner.Close()
	named := strings.Replace(inner.URL, "127.0.0.1", "localhost", 1)
	outer := httptest.NewServer(http.RedirectHandler(named+"/disk.raw", http.StatusFound))
	defer outer.Close()
	for _, ref := range []string{named + "/disk.raw", outer.URL + "/disk.raw", "simplestreams+" + named + "/#it",
		"simplestreams+" + outer.URL + "/#it"} {
		s, err := imagesource.Open(ref, &reach.Outside{Host: "127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Stat(t.Context()); !farm.IsCode(err, farm.CodeNotYours) || hidden != 0 {
			t.Errorf("%s: %v, asked %d times", ref, err, hidden)
		}
		if _, err := imagesource.ReadSmall(t.Context(), s, 1000); !farm.IsCode(err, farm.CodeNotYours) || hidden != 0 {
			t.Errorf("%s: %v, asked %d times", ref, err, hidden)
		}
	}
	s, err := imagesource.Open(outer.URL+"/disk.raw", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Stat(t.Context()); err != nil || hidden != 1 {
		t.Errorf("without a bound: %v, asked %d times", err, hidden)
	}
}
