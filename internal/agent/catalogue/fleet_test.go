package catalogue

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
	"github.com/grange-project/grange/internal/vmimage"
	"github.com/grange-project/grange/internal/waittest"
)

// server has a catalogue and files, and is as bad as a test wants it.
type server struct {
	catalogue fleet.Catalogue
	files     map[string][]byte
	breaks    int  // transfers that end in the middle
	lies      bool // other bytes come
	hangs     bool // nothing comes
	from      []int64
}

func (s *server) Catalogue(context.Context) (fleet.Catalogue, error) { return s.catalogue, nil }

func (s *server) Blob(sum string, _ []string) imagesource.Source { return &file{s, sum} }

type file struct {
	s   *server
	sum string
}

func (f *file) Stat(context.Context) (imagesource.Info, error) {
	return imagesource.Info{Name: "file", Size: int64(len(f.s.files[f.sum])), Version: f.sum}, nil
}

func (f *file) Open(ctx context.Context, _ string, at int64) (io.ReadCloser, error) {
	f.s.from = append(f.s.from, at)
	b := bytes.Clone(f.s.files[f.sum])
	if f.s.lies {
		b[len(b)-1]++
	}
	var r io.Reader = bytes.NewReader(b[at:])
	if f.s.breaks > 0 {
		f.s.breaks--
		r = io.MultiReader(bytes.NewReader(b[at:at+(int64(len(b))-at)/2]), broken{})
	}
	if f.s.hangs {
		r = hanging{ctx}
	}
	return io.NopCloser(r), nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

type hanging struct{ ctx context.Context }

func (h hanging) Read([]byte) (int, error) { <-h.ctx.Done(); return 0, h.ctx.Err() }

func testStore(t *testing.T) vmimage.Exchange {
	t.Helper()
	s, err := vmimage.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return vmimage.Exchange{Store: s}
}

// publish has a server with an image under a name: a disk, or a kernel with its initrd.
func publish(t *testing.T, name string, kernel bool) (*server, vmimage.Image) {
	t.Helper()
	dir := t.TempDir()
	path, content := filepath.Join(dir, "disk"), bytes.Repeat([]byte{1, 2, 3, 4}, 1<<18)
	copy(content[510:], "\x55\xaa")
	files := map[string][]byte{path: content}
	if kernel {
		path = dir
		bzImage := make([]byte, 4096)
		copy(bzImage[0x202:], "HdrS")
		files = map[string][]byte{filepath.Join(dir, "vmlinuz"): bzImage, filepath.Join(dir, "initrd"): content,
			filepath.Join(dir, "cmdline"): []byte("quiet\n")}
	}
	s := &server{files: map[string][]byte{}}
	for path, b := range files {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		s.files[hex.EncodeToString(sum[:])] = b
	}
	store := testStore(t)
	image, err := store.Import(t.Context(), name, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := store.Manifest(image.Digest)
	if err != nil {
		t.Fatal(err)
	}
	s.catalogue = fleet.Catalogue{Revision: 7, Names: map[string]string{name: image.Digest},
		Images: []fleet.CatalogueImage{{Digest: image.Digest, State: "active", Manifest: manifest}}}
	return s, image
}

// newFleet is a copy that knows what a server has.
func newFleet(t *testing.T, s *server) *Fleet {
	t.Helper()
	nobody := func(string) []string { return nil }
	f := NewFleet(Options{Images: testStore(t), File: filepath.Join(t.TempDir(), "catalogue.json"),
		Log: slog.New(slog.DiscardHandler), Users: nobody, Cloud: nobody})
	f.Via(s)
	f.Want(s.catalogue.Revision, nil)
	if err := f.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func quiet(vmimage.Progress) {}

func TestEnsure(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		s, want := publish(t, "it", kernel)
		f := newFleet(t, s)
		if err := f.Ensure(t.Context(), want.Digest, quiet); err != nil {
			t.Fatal(err)
		}
		got, err := f.Images.Get("it")
		if err != nil || got.Digest != want.Digest || got.Kind != want.Kind || got.Cmdline != want.Cmdline {
			t.Errorf("%+v %v", got, err)
		}
		if err := f.Images.Verify(t.Context(), "it"); err != nil {
			t.Error(err)
		}
		transfers := len(s.from)
		if err := f.Ensure(t.Context(), "it", quiet); err != nil || len(s.from) != transfers {
			t.Errorf("fetched again: %v", err)
		}
	}
}

// What breaks off goes on where it ended, by the next who wants it too.
func TestEnsureGoesOn(t *testing.T) {
	s, want := publish(t, "it", false)
	f := newFleet(t, s)
	s.breaks = 1
	if err := f.Ensure(t.Context(), "it", quiet); err != nil {
		t.Fatal(err)
	}
	if len(s.from) != 2 || s.from[1] != int64(want.Size)/2 {
		t.Errorf("from %v", s.from)
	}
}

// Other bytes than the catalogue's are never an image, and the next attempt begins anew.
func TestEnsureOfALiar(t *testing.T) {
	s, want := publish(t, "it", false)
	f := newFleet(t, s)
	s.lies = true
	if err := f.Ensure(t.Context(), "it", quiet); !farm.IsCode(err, farm.CodeBadImage) {
		t.Fatal(err)
	}
	if _, err := f.Images.Get(want.Digest); !farm.IsCode(err, farm.CodeNoImage) {
		t.Error(err)
	}
	s.lies = false
	if err := f.Ensure(t.Context(), "it", quiet); err != nil || s.from[len(s.from)-1] != 0 {
		t.Errorf("%v, from %v", err, s.from)
	}
	text := bytes.Replace(s.catalogue.Images[0].Manifest, []byte(`"kind": "disk"`), []byte(`"kind": "root"`), 1)
	if _, err := vmimage.ParseManifest(text); !farm.IsCode(err, farm.CodeBadImage) {
		t.Errorf("a description of another image: %v", err)
	}
}

// One who goes away leaves a transfer to the others; it ends with the last of them, and what comes later begins anew.
func TestEnsureThatNobodyWants(t *testing.T) {
	s, _ := publish(t, "it", false)
	f := newFleet(t, s)
	s.hangs = true
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- f.Ensure(ctx, "it", quiet) }()
	}
	waiting := func(n int) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, t := range f.transfers {
			return t.waiters == n
		}
		return n == 0
	}
	waittest.For(t, "what other goroutines bring about", func() bool { return waiting(2) })
	cancel()
	for range 2 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	waittest.For(t, "what other goroutines bring about", func() bool { return waiting(0) })
	s.hangs = false
	if err := f.Ensure(t.Context(), "it", quiet); err != nil {
		t.Error(err)
	}
}

// A host's own mark holds where it allows less, and so does the fleet's.
func TestMarksOfHostAndFleet(t *testing.T) {
	s, want := publish(t, "it", false)
	f := newFleet(t, s)
	if err := f.Ensure(t.Context(), "it", quiet); err != nil {
		t.Fatal(err)
	}
	own := func(state vmimage.State) {
		t.Helper()
		if _, err := f.Images.SetMark("it", func(m *vmimage.Mark) { m.State = state }); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, want2 vmimage.State) {
		t.Helper()
		if i, err := f.Images.Get(want.Digest); err != nil || i.Mark.State != want2 {
			t.Errorf("%s: %v %v", what, i.Mark.State, err)
		}
	}
	own(vmimage.Withdrawn)
	is("the host's", vmimage.Withdrawn)
	own(vmimage.Deprecated)
	s.catalogue.Revision++
	s.catalogue.Images[0].State = "withdrawn"
	f.take(s.catalogue)
	is("the fleet's", vmimage.Withdrawn)
	if err := vmimage.Refusal(f.Images.Store, want.Digest); !farm.IsCode(err, farm.CodeWithdrawn) {
		t.Error(err)
	}
	s.catalogue.Images[0].State = "active"
	f.take(s.catalogue)
	is("the host's again", vmimage.Deprecated)
}

// ownDisk is the file of an image that the fleet does not know.
func ownDisk(t *testing.T) string {
	t.Helper()
	own := filepath.Join(t.TempDir(), "own")
	content := bytes.Repeat([]byte{9}, 4096)
	copy(content[510:], "\x55\xaa")
	if err := os.WriteFile(own, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return own
}

// A name that the catalogue has no more means nothing on hosts either, unless somebody gave it to another image there.
func TestRemovedNames(t *testing.T) {
	s, it := publish(t, "it", false)
	s.catalogue.Names["second"], s.catalogue.Names["theirs"] = it.Digest, it.Digest
	f := newFleet(t, s)
	for _, name := range []string{"it", "second", "theirs"} {
		if err := f.Ensure(t.Context(), name, quiet); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Images.Import(t.Context(), "theirs", ownDisk(t), nil); err != nil {
		t.Fatal(err)
	}
	s.catalogue.Names = map[string]string{"it": it.Digest}
	s.catalogue.Revision++
	f.take(s.catalogue)
	if _, err := f.Images.Get("second"); !farm.IsCode(err, farm.CodeNoImage) {
		t.Errorf("a name that was removed: %v", err)
	}
	if i, err := f.Images.Get("theirs"); err != nil || i.Digest == it.Digest {
		t.Errorf("another image's name: %v %v", i.Digest, err)
	}
	if i, err := f.Images.Get("it"); err != nil || i.Digest != it.Digest {
		t.Errorf("a name that stays: %v %v", i.Digest, err)
	}
}

// A name that has moved means nothing here until its image comes, and nothing behind its removal.
func TestMovedName(t *testing.T) {
	s, first := publish(t, "it", false)
	f := newFleet(t, s)
	if err := f.Ensure(t.Context(), "it", quiet); err != nil {
		t.Fatal(err)
	}
	second := s.catalogue.Images[0]
	second.Digest = "sha256:" + strings.Repeat("2", 64)
	s.catalogue.Images = append(s.catalogue.Images, second)
	for _, names := range []map[string]string{{"it": second.Digest}, {}} {
		s.catalogue.Names = names
		s.catalogue.Revision++
		f.take(s.catalogue)
		if _, err := f.Images.Get("it"); !farm.IsCode(err, farm.CodeNoImage) {
			t.Errorf("names %v: %v", names, err)
		}
	}
	if _, err := f.Images.Get(first.Digest); err != nil {
		t.Errorf("its files are gone at once: %v", err)
	}
}

// An image that was removed from the catalogue starts nothing, and its copy goes as one without a name.
func TestRemovedImage(t *testing.T) {
	s, it := publish(t, "it", false)
	f := newFleet(t, s)
	if err := f.Ensure(t.Context(), it.Digest, quiet); err != nil {
		t.Fatal(err)
	}
	s.catalogue.Images[0].Removed, s.catalogue.Names = true, map[string]string{}
	s.catalogue.Revision++
	f.take(s.catalogue)
	if err := f.Ensure(t.Context(), it.Digest, quiet); !farm.IsCode(err, farm.CodeNoImage) {
		t.Errorf("by its digest: %v", err)
	}
	i, err := f.Images.Get(it.Digest)
	then := time.Now().Add(-2 * oldVersion)
	if err := errors.Join(err, os.Chtimes(i.Dir, then, then)); err != nil {
		t.Fatal(err)
	}
	f.tidy()
	if _, err := f.Images.Get(it.Digest); !farm.IsCode(err, farm.CodeNoImage) {
		t.Errorf("its copy stays: %v", err)
	}
}

// What the catalogue keeps for some is kept for them by whatever it is called.
func TestMayRunByOtherNames(t *testing.T) {
	s, it := publish(t, "it", false)
	s.catalogue.Images[0].Projects = []string{"p"}
	f := newFleet(t, s)
	if err := f.Ensure(t.Context(), it.Digest, quiet); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Images.Tag(it.Digest, "mine"); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"it", it.Digest, it.Digest[len("sha256:"):][:4], "mine"} {
		if err := f.MayRun(ref, farm.GiB, false); !farm.IsCode(err, CodeOfProjects) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// Without a catalogue, and without a server, images are the host's own.
func TestNoCatalogue(t *testing.T) {
	var none *Fleet
	if err := none.Ensure(t.Context(), "it", quiet); err != nil {
		t.Error(err)
	}
	if none.Use() != nil || none.MayRun("it", 0, false) != nil {
		t.Error("a host without a catalogue has one")
	}
	s, _ := publish(t, "it", false)
	f := newFleet(t, s)
	f.Via(nil)
	if err := f.Ensure(t.Context(), "own", quiet); !farm.IsCode(err, farm.CodeNoImage) {
		t.Error(err)
	}
	if err := f.Ensure(t.Context(), "it", quiet); !farm.IsKind(err, farm.Unavailable) {
		t.Errorf("without a link: %v", err)
	}
	f.copy.Images[0].Projects, f.copy.Images[0].MinMemory = []string{"p"}, 1<<30
	f.take(f.copy)
	if err := f.MayRun("it", 2<<30, false); !farm.IsCode(err, CodeOfProjects) {
		t.Error(err)
	}
	if err := f.MayRun("it", 1<<20, true); !farm.IsCode(err, farm.CodeBadShape) {
		t.Error(err)
	}
}

// Copies that lost their name go after a day, unused ones as the site says; what administrators brought stays, and what
// a VM uses.
func TestTidy(t *testing.T) {
	s, first := publish(t, "it", false)
	f := newFleet(t, s)
	if err := f.Ensure(t.Context(), "it", quiet); err != nil {
		t.Fatal(err)
	}
	mine, err := f.Images.Import(t.Context(), "own", ownDisk(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	age := func(digest string, age time.Duration) {
		t.Helper()
		i, err := f.Images.Get(digest)
		if err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(i.Dir, then, then); err != nil {
			t.Fatal(err)
		}
	}
	here := func(digest string) bool { _, err := f.Images.Get(digest); return err == nil }
	age(mine.Digest, 10*oldVersion)
	age(first.Digest, 10*oldVersion)
	var used []string
	f.Users = func(digest string) []string {
		if slices.Contains(used, digest) {
			return []string{"vm"}
		}
		return nil
	}
	f.tidy()
	f.Unused = func() time.Duration { return 20 * oldVersion }
	f.tidy()
	if !here(first.Digest) {
		t.Fatal("a copy with a name is gone")
	}
	f.Unused, used = func() time.Duration { return oldVersion }, []string{first.Digest}
	f.tidy()
	if !here(first.Digest) {
		t.Fatal("a copy that a VM uses is gone")
	}
	if _, err := f.Images.Tag(first.Digest, "ours"); err != nil {
		t.Fatal(err)
	}
	used = nil
	f.tidy()
	if !here(first.Digest) {
		t.Fatal("a copy to which somebody gave a name here is gone")
	}
	if err := f.Images.Remove("ours", nil); err != nil {
		t.Fatal(err)
	}
	f.Unused = nil
	if _, err := f.Images.Tag(mine.Digest, "it"); err != nil { // the first has no name now
		t.Fatal(err)
	}
	age(first.Digest, oldVersion/2)
	f.tidy()
	if !here(first.Digest) {
		t.Error("an old version is gone at once")
	}
	age(first.Digest, 2*oldVersion)
	f.tidy()
	if here(first.Digest) || !here(mine.Digest) {
		t.Errorf("old version: %v, administrator's: %v", here(first.Digest), here(mine.Digest))
	}
}

// A container image that a job had fetched goes as a copy does, unless somebody gave it a name.
func TestTidyContainers(t *testing.T) {
	s, _ := publish(t, "it", false)
	f := newFleet(t, s)
	tree := t.TempDir()
	if err := os.WriteFile(filepath.Join(tree, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Unused = func() time.Duration { return oldVersion }
	for _, named := range []bool{true, false} {
		i, err := f.Images.FetchReference(t.Context(), vmimage.FetchOptions{Source: "dir:" + tree, Progress: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if named {
			_, err = f.Images.Tag(i.Digest, "ours")
		} else {
			err = f.Images.Remove("ours", nil)
		}
		then := time.Now().Add(-2 * oldVersion)
		if err := errors.Join(err, os.Chtimes(i.Dir, then, then)); err != nil {
			t.Fatal(err)
		}
		f.tidy()
		if _, err := f.Images.Get(i.Digest); (err == nil) != named {
			t.Errorf("named: %v, %v", named, err)
		}
	}
}
