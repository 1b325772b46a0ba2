package vmimage

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

func TestWithdrawn(t *testing.T) {
	s, disk := testStore(t), rawDisk(t, "withdrawn")
	mustImport(t, s, "a", disk)
	i, err := s.SetMark("a", func(m *Mark) {
		m.State, m.Successor, m.Reason = Withdrawn, "b", "its sshd has a hole"
	})
	if err != nil || i.Mark.State != Withdrawn {
		t.Fatal(i.Mark, err)
	}
	_, _, err = s.Acquire("a")
	if e := wantCode(t, err, farm.CodeWithdrawn); e.Hint != "use b" || !strings.Contains(e.Message, "hole") {
		t.Error(e)
	}
	if err := s.Verify(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if list, err := s.List(); err != nil || list[0].Mark.Successor != "b" {
		t.Error(list, err)
	}
	// The same content, by another name or a new import, stays withdrawn.
	if err := s.Remove("a", nil); err != nil {
		t.Fatal(err)
	}
	mustImport(t, s, "again", disk)
	_, _, err = s.Acquire("again")
	wantCode(t, err, farm.CodeWithdrawn)
	if _, err := s.SetMark("again", func(m *Mark) { *m = Mark{State: Active} }); err != nil {
		t.Fatal(err)
	}
	if _, release, err := s.Acquire("again"); err != nil {
		t.Error(err)
	} else {
		release()
	}
}

// TestDamagedMark: what cannot be read is not taken for active.
func TestDamagedMark(t *testing.T) {
	s := testStore(t)
	i := mustImport(t, s, "a", rawDisk(t, "damaged mark"))
	writeFile(t, filepath.Join(s.dir, marksDir, blobName(i.Digest)), []byte("{"))
	_, _, err := s.Acquire("a")
	wantCode(t, err, farm.CodeImageStore)
	if gone, err := s.Purge(PurgeOptions{Unused: time.Nanosecond}); err != nil || len(gone) > 0 {
		t.Error(gone, err)
	}
}

func TestDeprecated(t *testing.T) {
	s := testStore(t)
	mustImport(t, s, "a", rawDisk(t, "deprecated"))
	if _, err := s.SetMark("a", func(m *Mark) { m.State, m.Successor = Deprecated, "b" }); err != nil {
		t.Fatal(err)
	}
	i, release, err := s.Acquire("a")
	if err != nil || i.Warning() != "image a is deprecated; use b" {
		t.Fatal(i.Warning(), err)
	}
	release()
}

func TestTag(t *testing.T) {
	s := testStore(t)
	one := mustImport(t, s, "a", rawDisk(t, "one"))
	two := mustImport(t, s, "a", rawDisk(t, "two"))
	if i, err := s.Tag("a", "stable"); err != nil || i.Name != "stable" || i.Digest != two.Digest {
		t.Error(i, err)
	}
	if _, err := s.Tag(one.Digest, "a"); err != nil { // back
		t.Error(err)
	}
	if _, err := s.Tag("a", "a"); err != nil { // no new version
		t.Error(err)
	}
	history, err := s.History("a")
	var digests []string
	for _, v := range history {
		digests = append(digests, v.Digest)
	}
	if want := []string{one.Digest, two.Digest, one.Digest}; err != nil || !slices.Equal(digests, want) {
		t.Errorf("%v, %v; wanted %v", digests, err, want)
	}
	_, err = s.Tag("nothing", "b")
	wantCode(t, err, farm.CodeNoImage)
	_, err = s.Tag("a", "../b")
	wantCode(t, err, CodeBadImageName)
}

func TestNearest(t *testing.T) {
	s := testStore(t)
	for _, name := range []string{"debian-12", "debian-13", "alma-9", "micro"} {
		mustImport(t, s, name, rawDisk(t, name))
	}
	for name, want := range map[string]string{"debain-12": "debian-12", "debian": "debian-12 or debian-13", "mikro": "micro",
		"alma9": "alma-9"} {
		_, err := s.Get(name)
		if e := wantCode(t, err, farm.CodeNoImage); !strings.HasPrefix(e.Hint, "did you mean "+want) {
			t.Errorf("%s: %s", name, e.Hint)
		}
	}
	_, err := s.Get("something-else")
	if e := wantCode(t, err, farm.CodeNoImage); e.Hint != "see `grange image list`" {
		t.Error(e.Hint)
	}
}

func TestPurge(t *testing.T) {
	s := testStore(t)
	age := func(i Image, days int) {
		then := time.Now().AddDate(0, 0, -days)
		if err := os.Chtimes(i.Dir, then, then); err != nil {
			t.Fatal(err)
		}
	}
	old := mustImport(t, s, "moved", rawDisk(t, "old version"))
	mustImport(t, s, "moved", rawDisk(t, "new version"))
	unused := mustImport(t, s, "unused", rawDisk(t, "unused"))
	pinned, used := mustImport(t, s, "pinned", rawDisk(t, "pinned")), mustImport(t, s, "used", rawDisk(t, "used"))
	for _, i := range []Image{unused, pinned, used} {
		age(i, 40)
	}
	if _, err := s.SetMark("pinned", func(m *Mark) { m.Pinned = true }); err != nil {
		t.Fatal(err)
	}
	held := mustImport(t, s, "held", rawDisk(t, "held"))
	_, release, err := s.Acquire("held")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	age(held, 40)
	o := PurgeOptions{Unused: 30 * 24 * time.Hour, DryRun: true, InUse: func(d string) bool { return d == used.Digest }}
	for _, o.DryRun = range []bool{true, false} {
		gone, err := s.Purge(o)
		if err != nil || len(gone) != 2 || gone[0].Digest != old.Digest || gone[1].Digest != unused.Digest {
			t.Errorf("%+v, %v", gone, err)
		}
	}
	if names, _ := s.List(); len(names) != 4 {
		t.Error(names)
	}
	if left := entries(t, s, "blobs"); len(left) != 4 {
		t.Error(left)
	}
}

// TestMakeRoom: as many go as it takes, of those that may; none where all of them would not do.
func TestMakeRoom(t *testing.T) {
	s := testStore(t)
	var all []Image
	for n := range 4 {
		file := filepath.Join(t.TempDir(), "disk")
		content := bytes.Repeat([]byte{byte(n + 1)}, 1<<20)
		copy(content[510:], "\x55\xaa")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		i := mustImport(t, s, fmt.Sprint("i", n), file)
		then := time.Now().AddDate(0, 0, n-10)
		if err := os.Chtimes(i.Dir, then, then); err != nil {
			t.Fatal(err)
		}
		all = append(all, i)
	}
	SetQuota(s, spare+5*farm.MiB) // 1 MiB of it is left
	if left, err := free(s); err != nil || left < spare+farm.MiB/2 {
		t.Skip("less than 1 GiB is free here")
	}
	o := PurgeOptions{Only: func(digest string) bool { return digest != all[0].Digest },
		InUse: func(digest string) bool { return digest == all[1].Digest }}
	for _, c := range []struct {
		size farm.Bytes
		want []Image
	}{{farm.MiB / 2, nil}, {4 * farm.MiB, nil}, {1 << 63, nil}, {math.MaxUint64, nil}, {farm.MiB * 3 / 2, all[2:3]},
		{farm.MiB * 3 / 2, nil}, {farm.MiB * 5 / 2, all[3:]}} {
		if c.size < farm.GiB && !clones(s) { // it will lie there twice
			c.size /= 2
		}
		gone, err := Exchange{s}.MakeRoom(c.size, o)
		if err != nil || !slices.EqualFunc(gone, c.want, func(p Purged, i Image) bool { return p.Digest == i.Digest }) {
			t.Errorf("%d bytes: %+v, %v", uint64(c.size), gone, err)
		}
	}
}

// TestQuotaOfImports: a file of the same file system, which may be cloned, counts too.
func TestQuotaOfImports(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	file := filepath.Join(dir, "disk")
	content := bytes.Repeat([]byte{1}, 2<<20)
	copy(content[510:], "\x55\xaa")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	SetQuota(s, 3*farm.MiB)
	mustImport(t, s, "first", file)
	content[0]++
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.Import(t.Context(), "second", file, nil)
	wantCode(t, err, farm.CodeDiskFull)
	if left := entries(t, s, "tmp"); len(left) > 0 {
		t.Error(left)
	}
}

// TestGrace: an image without a name stays as long as that.
func TestGrace(t *testing.T) {
	now := time.Now()
	all := []Purged{{Digest: "a", LastUsed: now.Add(-time.Hour)}, {Digest: "b", LastUsed: now.Add(-3 * time.Hour)}}
	if gone := choose(all, PurgeOptions{Grace: 2 * time.Hour}, 0, now); len(gone) != 1 || gone[0].Digest != "b" {
		t.Errorf("%+v", gone)
	}
}

// TestManifestSizes: sizes that would wrap around are no image's.
func TestManifestSizes(t *testing.T) {
	s := testStore(t)
	i := mustImport(t, s, "it", rawDisk(t, "content"))
	for _, size := range []farm.Bytes{1 << 47, 1 << 63, math.MaxUint64} {
		bad := i
		bad.Files = slices.Clone(i.Files)
		bad.Files[0].Size = size
		text, err := bad.marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseManifest(text); !farm.IsCode(err, farm.CodeBadImage) {
			t.Errorf("%s is taken: %v", text, err)
		}
	}
}

// TestChoose: what is short of space loses what was unused longest, and no more than is needed.
func TestChoose(t *testing.T) {
	now := time.Now()
	day := func(n int) time.Time { return now.AddDate(0, 0, -n) }
	all := []Purged{{Names: []string{"a"}, Size: 10, LastUsed: day(1)},
		{Names: []string{"b"}, Size: 10, LastUsed: day(3)}, {Size: 5, LastUsed: day(0)},
		{Names: []string{"c"}, Size: 10, LastUsed: day(2)}}
	for _, c := range []struct {
		free, want farm.Bytes
		gone       string
	}{{0, 0, ""}, {0, 5, ""}, {0, 6, "b"}, {0, 15, "b"}, {0, 16, "b c"}, {100, 50, ""}, {0, 1000, "b c a"}} {
		var names []string
		for _, p := range choose(slices.Clone(all), PurgeOptions{Free: c.want}, c.free, now) {
			names = append(names, p.Names...)
		}
		if got := strings.Join(names, " "); got != c.gone {
			t.Errorf("free %d, wanted %d: %q went, wanted %q", c.free, c.want, got, c.gone)
		}
	}
}
