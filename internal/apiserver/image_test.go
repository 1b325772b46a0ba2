package apiserver

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/images"
	"github.com/grange-project/grange/internal/store"
)

// disk is a raw disk with a partition table, of several pieces of an upload.
func disk(seed byte) []byte {
	b := bytes.Repeat([]byte{seed, 1, 2, 3}, 9<<18)
	copy(b[510:], "\x55\xaa")
	return b
}

func sumOf(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// problemCode is the code of a refusal; "" of none.
func problemCode(err error) farm.Code {
	p := new(api.Problem)
	if errors.As(err, &p) {
		return farm.Code(strings.TrimPrefix(p.Type, "grange:"))
	}
	if err != nil {
		return farm.Code(err.Error())
	}
	return ""
}

// breaking fails behind some bytes, once.
type breaking struct {
	io.ReaderAt
	behind int64
}

func (b *breaking) ReadAt(p []byte, at int64) (int, error) {
	if b.behind >= 0 && at >= b.behind {
		b.behind = -1
		return 0, errors.New("the disk was pulled out")
	}
	return b.ReaderAt.ReadAt(p, at)
}

func TestUpload(t *testing.T) {
	l := newLab(t)
	c, content := l.root().Images, disk(1)
	sum, size := sumOf(content), int64(len(disk(1)))
	var from []int64
	progress := func(n int64) { from = append(from, n) }
	file := &breaking{bytes.NewReader(content), fleet.UploadPiece}
	if err := c.Upload(t.Context(), file, sum, size, progress); err == nil {
		t.Fatal("an upload of a file that cannot be read")
	}
	from = nil
	if err := c.Upload(t.Context(), file, sum, size, progress); err != nil || from[0] != fleet.UploadPiece {
		t.Fatalf("it did not go on where it ended: %v %v", from, err)
	}
	if err := c.Upload(t.Context(), file, sum, size, func(int64) {}); err != nil {
		t.Errorf("once more: %v", err)
	}
	d, err := c.Add(t.Context(), fleet.ImageRequest{Name: "debian", Files: []fleet.UploadedFile{{Name: "disk",
		SHA256: sum}}, OS: "Debian 12", MinMemory: 1 << 30, Properties: map[string]string{"hw_cpu_sockets": "1"}},
		func(string) {})
	if err != nil || d.Digest != "sha256:"+sum || d.Kind != "disk" || d.State != "active" || d.Verdict != "uploaded" ||
		d.By != "root" {
		t.Fatalf("%+v %v", d, err)
	}
	if n, err := l.server.Images.Received(t.Context(), root, sum); n != 0 || err != nil {
		t.Errorf("the upload stays: %v %v", n, err)
	}
	list, err := l.root().Images.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "debian" || list[0].OS != "Debian 12" || !list[0].Catalogue {
		t.Errorf("%+v %v", list, err)
	}
}

var root = farm.Identity{Root: true, Means: "socket", Source: "0"}

// What does not fit together is refused, with a reason, and leaves nothing.
func TestUploadRefused(t *testing.T) {
	l := newLab(t)
	c, content := l.root().Images, disk(1)
	size := int64(len(content))
	wrong := sumOf([]byte("other"))
	err := c.Upload(t.Context(), bytes.NewReader(content), wrong, size, func(int64) {})
	if problemCode(err) != images.CodeUpload {
		t.Errorf("another checksum: %v", err)
	}
	if n, err := l.server.Images.Received(t.Context(), root, wrong); n != 0 || err != nil {
		t.Errorf("it stays: %v %v", n, err)
	}
	_, err = l.server.Images.Receive(t.Context(), root, wrong, 7, 100, []byte("x"))
	if !farm.IsCode(err, images.CodeUpload) {
		t.Errorf("a piece behind a gap: %v", err)
	}
	_, err = l.server.Images.Receive(t.Context(), root, wrong, 0, 1, []byte("xx"))
	if !farm.IsCode(err, images.CodeUpload) {
		t.Errorf("more than was announced: %v", err)
	}
	_, err = l.server.Images.Receive(t.Context(), root, wrong, 0, 33*farm.MiB, []byte("xx"))
	if !farm.IsCode(err, images.CodeCatalogueFull) {
		t.Errorf("more than there is room for: %v", err)
	}
	if _, err := l.server.Images.Receive(t.Context(), root, wrong, 0, farm.MiB, []byte("xx")); err != nil {
		t.Fatal(err)
	}
	for _, size := range []farm.Bytes{33 * farm.MiB, 1<<64 - 1} {
		_, err = l.server.Images.Receive(t.Context(), root, wrong, 2, size, []byte("xx"))
		if !farm.IsCode(err, images.CodeCatalogueFull) {
			t.Errorf("a size of %d after one that fits: %v", uint64(size), err)
		}
	}
	if err := l.ann().Images.Upload(t.Context(), bytes.NewReader(content), sumOf(content), size,
		func(int64) {}); problemCode(err) != farm.CodeNotYours && problemCode(err) != "no-role" {
		t.Errorf("a member: %v", err)
	}
	add := func(r fleet.ImageRequest) farm.Code {
		_, err := c.Add(t.Context(), r, func(string) {})
		return problemCode(err)
	}
	garbage := bytes.Repeat([]byte("x"), 4096)
	if err := c.Upload(t.Context(), bytes.NewReader(garbage), sumOf(garbage), 4096, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	file := func(name string, b []byte) []fleet.UploadedFile {
		return []fleet.UploadedFile{{Name: name, SHA256: sumOf(b)}}
	}
	for what, r := range map[string]struct {
		fleet.ImageRequest
		code farm.Code
	}{
		"no disk":            {fleet.ImageRequest{Name: "a", Files: file("disk", garbage)}, farm.CodeBadImage},
		"not uploaded":       {fleet.ImageRequest{Name: "a", Files: file("disk", content)}, images.CodeUpload},
		"nothing":            {fleet.ImageRequest{Name: "a"}, images.CodeBadImage},
		"a name":             {fleet.ImageRequest{Name: "A B", Files: file("disk", garbage)}, "bad-image-name"},
		"a path as a name":   {fleet.ImageRequest{Name: "a", Files: file("../a", garbage)}, images.CodeBadImage},
		"an empty property":  {fleet.ImageRequest{Name: "a", Source: "https://x/y", Properties: map[string]string{"hw_video_model": "x"}}, images.CodeBadImage},
		"a source not there": {fleet.ImageRequest{Name: "a", Source: "ftp://x/y"}, "bad-image-source"},
	} {
		if code := add(r.ImageRequest); code != r.code {
			t.Errorf("%s: %s, not %s", what, code, r.code)
		}
	}
	list, err := l.root().Images.List(t.Context())
	if err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

// A URL is fetched by the server. What takes more room than there is is refused, and leaves nothing.
func TestAddFromURL(t *testing.T) {
	l := newLab(t)
	content := disk(3)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/big" {
			w.Header().Set("Content-Length", fmt.Sprint(64<<20))
			return
		}
		w.Write(content)
	}))
	defer web.Close()
	c := l.root().Images
	d, err := c.Add(t.Context(), fleet.ImageRequest{Name: "web", Source: web.URL + "/disk", Sum: sumOf(content)},
		func(string) {})
	if err != nil || d.Digest != "sha256:"+sumOf(content) || !strings.HasPrefix(d.Verdict, "checksum ") {
		t.Fatalf("%+v %v", d, err)
	}
	_, err = c.Add(t.Context(), fleet.ImageRequest{Name: "other", Source: web.URL + "/other", Sum: sumOf(nil)},
		func(string) {})
	if problemCode(err) != "image-unverified" {
		t.Errorf("another checksum: %v", err)
	}
	if _, err = c.Add(t.Context(), fleet.ImageRequest{Name: "big", Source: web.URL + "/big"},
		func(string) {}); problemCode(err) != "image-too-big" {
		t.Errorf("more than there is room for: %v", err)
	}
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutUser(farm.User{Name: "boss", Subjects: []string{"CN=Boss,O=Grid"}}),
			tx.PutGrant(farm.Grant{User: "boss", Role: farm.RoleAdmin}))
	})
	boss := farm.Identity{User: "boss", Means: "certificate"}
	if _, err := l.server.Images.Add(t.Context(), boss, images.Request{Name: "x", Source: "/etc/shadow"},
		func(string) {}); !farm.IsCode(err, farm.CodeNotYours) {
		t.Errorf("a file of the server: %v", err)
	}
}

func TestImageVerbs(t *testing.T) {
	l := newLab(t)
	c := l.root().Images
	for seed := range byte(2) {
		content := disk(seed)
		if err := c.Upload(t.Context(), bytes.NewReader(content), sumOf(content), int64(len(content)),
			func(int64) {}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Add(t.Context(), fleet.ImageRequest{Name: "debian", Files: []fleet.UploadedFile{{Name: "disk",
			SHA256: sumOf(content)}}}, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := "sha256:"+sumOf(disk(0)), "sha256:"+sumOf(disk(1))
	d, err := c.Tag(t.Context(), first, "old")
	if err != nil || !slices.Equal(d.Names, []string{"old"}) {
		t.Fatalf("%+v %v", d, err)
	}
	d, err = c.Get(t.Context(), "debian")
	if err != nil || d.Digest != second || len(d.Versions) != 2 || d.Versions[0].Digest != first ||
		!d.Versions[0].Stored {
		t.Fatalf("%+v %v", d, err)
	}
	_, err = c.Get(t.Context(), "debain")
	if p := new(api.Problem); !errors.As(err, &p) || !strings.HasPrefix(p.Hint, "did you mean debian?") {
		t.Errorf("a name that is not there: %v", err)
	}
	state, reason := "withdrawn", "a hole"
	if d, err = c.Mark(t.Context(), "old", fleet.ImageMark{State: &state, Reason: &reason}); err != nil ||
		d.State != state || d.Reason != reason {
		t.Fatalf("%+v %v", d, err)
	}
	if err := c.Remove(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	if d, err = c.Get(t.Context(), first); err != nil || !d.Removed || d.State != state {
		t.Errorf("what was withdrawn is forgotten: %+v %v", d, err)
	}
	if _, err := c.Tag(t.Context(), first, "again"); problemCode(err) != farm.CodeNoImage {
		t.Errorf("it gets a name: %v", err)
	}
	content := disk(0)
	if err := c.Upload(t.Context(), bytes.NewReader(content), sumOf(content), int64(len(content)),
		func(int64) {}); err != nil {
		t.Fatal(err)
	}
	_, err = c.Add(t.Context(), fleet.ImageRequest{Name: "back", Files: []fleet.UploadedFile{{Name: "disk",
		SHA256: sumOf(content)}}}, func(string) {})
	if problemCode(err) != farm.CodeWithdrawn {
		t.Errorf("it comes back by another way: %v", err)
	}
	if err := c.Remove(t.Context(), "debian"); err != nil {
		t.Fatal(err)
	}
	files, err := l.server.Images.Files()
	if err != nil {
		t.Fatal(err)
	}
	if left, err := files.Digests(); err != nil || len(left) != 0 {
		t.Errorf("files stay: %v %v", left, err)
	}
	if _, err := l.ann().Images.Mark(t.Context(), second, fleet.ImageMark{State: &state}); err == nil {
		t.Error("a member withdraws an image")
	}
}
