package vmimage

import (
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
