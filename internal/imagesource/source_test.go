package imagesource_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/grange-project/grange/internal/imagesource"
	"github.com/grange-project/grange/internal/imagesource/sourcetest"
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

func TestOpenRefuses(t *testing.T) {
	for _, ref := range []string{"", "debian", "ftp://host/file", "https:///file", "https://host/", "https://host",
		"https://user:secret@host/file", "file://relative/x", "http://ho st/f"} {
		if s, err := imagesource.Open(ref); err == nil {
			t.Errorf("%q: %v", ref, s)
		}
	}
}

// TestBounded: a file that answers is read as without.
func TestBounded(t *testing.T) {
	d := directory{t.TempDir(), ""}
	d.url = d.dir
	source, err := imagesource.Open(d.Publish(t, []byte("text")))
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
