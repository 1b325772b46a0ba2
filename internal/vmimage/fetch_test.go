package vmimage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
)

func ownerOf(t *testing.T, name string) int {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// published is a disk on a web server, with its checksums.
type published struct {
	url    string
	sum    string
	served atomic.Int64 // times that the disk was asked for
}

func publish(t *testing.T, disk string) *published {
	dir, content := t.TempDir(), readFile(t, disk)
	p := &published{sum: fmt.Sprintf("%x", sha256.Sum256(content))}
	writeFile(t, filepath.Join(dir, "disk.raw"), content)
	writeFile(t, filepath.Join(dir, "SHA256SUMS"), []byte(p.sum+" *disk.raw\n"))
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/disk.raw" && r.Method == "GET" {
			p.served.Add(1)
			time.Sleep(50 * time.Millisecond) // for others to come meanwhile
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func TestFetch(t *testing.T) {
	s, disk := testStore(t), rawDisk(t, "fetched")
	p := publish(t, disk)
	want := mustImport(t, s, "imported", disk)
	for name, o := range map[string]FetchOptions{
		"unchecked": {}, "sum": {Sum: p.sum}, "list": {Sums: p.url + "/SHA256SUMS"},
	} {
		o.Name, o.Source = name, p.url+"/disk.raw"
		i, err := s.Fetch(t.Context(), o)
		if err != nil || i.Digest != want.Digest {
			t.Errorf("%s: %s, %v", name, i.Digest, err)
		}
	}
	if left := entries(t, s, partialDir); len(left) > 0 {
		t.Error("left:", left)
	}
	// The record of content that was there already stays; new content knows where it came from.
	i, err := s.Fetch(t.Context(), FetchOptions{Name: "new", Source: publish(t, rawDisk(t, "new")).url + "/disk.raw"})
	if err != nil || i.Source == "" {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestFetchRefuses(t *testing.T) {
	s := testStore(t)
	p, other := publish(t, rawDisk(t, "a")), publish(t, rawDisk(t, "b"))
	list := p.url + "/SHA256SUMS"
	for name, c := range map[string]struct {
		o    FetchOptions
		code farm.Code
	}{
		"another sum":            {FetchOptions{Sum: other.sum}, imagesource.CodeUnverified},
		"another list":           {FetchOptions{Sums: other.url + "/SHA256SUMS"}, imagesource.CodeUnverified},
		"no list":                {FetchOptions{Sums: p.url + "/nothing"}, imagesource.CodeSource},
		"no signature":           {FetchOptions{Sums: list, Keyring: []byte("x")}, imagesource.CodeUnverified},
		"two words for it":       {FetchOptions{Sum: p.sum, Sums: list}, farm.CodeBadImage},
		"a keyring for a sum":    {FetchOptions{Sum: p.sum, Keyring: []byte("x")}, farm.CodeBadImage},
		"a signature of nothing": {FetchOptions{Signature: p.url + "/sig", Keyring: []byte("x")}, farm.CodeBadImage},
		"no keyring":             {FetchOptions{Sums: list, Signature: p.url + "/sig"}, farm.CodeBadImage},
		"no file":                {FetchOptions{Source: p.url + "/nothing"}, imagesource.CodeSource},
		"no image":               {FetchOptions{Source: p.url + "/SHA256SUMS"}, farm.CodeBadImage},
		"another shape":          {FetchOptions{Source: "ftp://host/file"}, imagesource.CodeBadSource},
	} {
		c.o.Name = "refused"
		if c.o.Source == "" {
			c.o.Source = p.url + "/disk.raw"
		}
		_, err := s.Fetch(t.Context(), c.o)
		wantCode(t, err, c.code)
		for _, dir := range []string{partialDir, "blobs", "images", "tmp"} {
			if left := entries(t, s, dir); len(left) > 0 {
				t.Errorf("%s: left in %s: %v", name, dir, left)
			}
		}
	}
}

// TestFetchOnce: one download serves all who come meanwhile with the same source.
func TestFetchOnce(t *testing.T) {
	s := testStore(t)
	p := publish(t, rawDisk(t, "once"))
	var waited atomic.Int64
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			_, err := s.Fetch(t.Context(), FetchOptions{Name: fmt.Sprintf("name-%d", n), Source: p.url + "/disk.raw",
				Progress: func(p Progress) {
					if p.Note != "" {
						waited.Add(1)
					}
				}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if p.served.Load() != 1 || waited.Load() != 3 {
		t.Errorf("%d downloads, %d were told to wait", p.served.Load(), waited.Load())
	}
}

// TestFetchContinues: a fetch that was cancelled is continued by the next.
func TestFetchContinues(t *testing.T) {
	s := testStore(t)
	content := readFile(t, rawDisk(t, "continued"))
	var ranges atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if r.Method == "GET" && r.Header.Get("Range") == "" {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			w.Write(content[:len(content)/2])
			w.(http.Flusher).Flush()
			<-r.Context().Done() // and hangs
			return
		}
		if r.Method == "GET" {
			ranges.Store(r.Header.Get("Range"))
		}
		http.ServeContent(w, r, "disk.raw", time.Time{}, bytes.NewReader(content))
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	o := FetchOptions{Name: "continued", Source: server.URL + "/disk.raw", Progress: func(p Progress) {
		if p.Done >= farm.Bytes(len(content)/2) {
			cancel()
		}
	}}
	if _, err := s.Fetch(ctx, o); err == nil {
		t.Fatal("not cancelled")
	}
	o.Progress = nil
	if _, err := s.Fetch(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("bytes=%d-", len(content)/2); ranges.Load() != want {
		t.Errorf("asked for %v, wanted %s", ranges.Load(), want)
	}
}

// TestSweepPartial: what nobody continues goes, what somebody is at stays.
func TestSweepPartial(t *testing.T) {
	s := testStore(t)
	old := time.Now().Add(-2 * partialAge)
	for _, name := range []string{"old", "new", "locked"} {
		dir := filepath.Join(s.dir, partialDir, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if name != "new" {
			os.Chtimes(dir, old, old)
		}
	}
	unlock, err := lockDir(s.root, partialDir+"/locked")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := sweepPartial(s.root); err != nil {
		t.Fatal(err)
	}
	if left := entries(t, s, partialDir); fmt.Sprint(left) != "[locked new]" {
		t.Error(left)
	}
}
