package filesystems

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/mounts"
)

var (
	nfs   = []Used{{}, {Mounts: []mounts.Mount{{Type: "nfs4", Source: "server:/export", Point: "/data"}}}}
	other = []Used{{Mounts: []mounts.Mount{{Type: "ceph", Source: "a:/", Point: "/ceph"}}}}
	many  = []Used{{More: true}}
)

func open(file string) *Drains {
	d := new(Drains)
	d.Open(file, slog.New(slog.DiscardHandler))
	return d
}

func put(t *testing.T, d *Drains, o api.FileSystemDrain) api.FileSystemDrain {
	t.Helper()
	o, err := Complete(o, time.Now())
	if err == nil {
		o, err = d.Put(o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestDrains: a drain holds for those who use the file system, across restarts, until it is ended.
func TestDrains(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drains")
	d := open(file)
	if err := d.Refusal(nfs); err != nil {
		t.Errorf("nothing is drained: %v", err)
	}
	until := time.Date(2026, 11, 26, 18, 0, 0, 0, time.Local)
	first := put(t, d, api.FileSystemDrain{Name: "server:/export", Reason: "new disks", Until: &until, Fleet: true})
	for _, d := range []*Drains{d, open(file)} {
		err := d.Refusal(nfs)
		if !farm.IsCode(err, CodeDrained) || !strings.Contains(err.Error(), "new disks, until about 2026-11-26 18:00") {
			t.Errorf("%v", err)
		}
		if err := d.Refusal(many); err == nil {
			t.Error("one of whom not all is known may start")
		}
		for _, u := range [][]Used{nil, {{}}, other} {
			if err := d.Refusal(u); err != nil {
				t.Errorf("%+v: %v", u, err)
			}
		}
		if err := d.Overdue(nfs, until.Add(time.Hour)); err != nil {
			t.Errorf("without a deadline: %v", err)
		}
	}
	d = open(file)
	second := put(t, d, api.FileSystemDrain{Name: "server:/export", Deadline: &until})
	if !second.Since.Equal(first.Since) || second.Fleet {
		t.Errorf("drained again: %+v", second)
	}
	if d.Overdue(nfs, until.Add(-time.Second)) != nil || d.Overdue(other, until) != nil ||
		!farm.IsKind(d.Overdue(nfs, until), farm.Unavailable) {
		t.Error("the deadline")
	}
	if err := d.End("x"); !farm.IsCode(err, farm.CodeNoFileSystem) {
		t.Errorf("ending what is not: %v", err)
	}
	if err := d.End("server:/export"); err != nil || d.Refusal(nfs) != nil || open(file).Refusal(nfs) != nil {
		t.Errorf("ended: %v", err)
	}
}

// TestServersDrains come and go with the server's list, and are not the host's to end.
func TestServersDrains(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drains")
	d := open(file)
	put(t, d, api.FileSystemDrain{Name: "/ceph"})
	d.FromServer([]api.FileSystemDrain{{Name: "data", Match: api.FileSystemMatch{Type: "nfs4"}}})
	d = open(file)
	if d.Refusal(nfs) == nil || d.Refusal(other) == nil || len(d.List()) != 2 {
		t.Errorf("%+v", d.List())
	}
	if err := d.End("data"); err == nil || !strings.Contains(err.Error(), "server") {
		t.Errorf("the server's, ended here: %v", err)
	}
	d.FromServer(nil)
	d = open(file)
	if d.Refusal(nfs) != nil || d.Refusal(other) == nil {
		t.Errorf("%+v", d.List())
	}
}

// TestUnreadable: what is drained is not known, and so all is, until an administrator ends that.
func TestUnreadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drains")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(file)
	if d.Refusal(nfs) == nil || d.Refusal(other) == nil || d.Refusal([]Used{{}}) != nil {
		t.Errorf("%+v", d.List())
	}
	if err := d.End(unread); err != nil || open(file).Refusal(nfs) != nil {
		t.Errorf("ended: %v", err)
	}
}

func TestComplete(t *testing.T) {
	for name, want := range map[string]api.FileSystemMatch{"server:/export": {Source: "server:/export"},
		"//server/share": {Source: "//server/share"}, "/data": {MountPoint: "/data"}} {
		if d, err := Complete(api.FileSystemDrain{Name: name}, time.Now()); err != nil || d.Match != want {
			t.Errorf("%s: %+v, %v", name, d.Match, err)
		}
	}
	for _, d := range []api.FileSystemDrain{{}, {Name: "a\nb"}, {Name: "a", Reason: strings.Repeat("x", 201)},
		{Name: "a", Match: api.FileSystemMatch{Type: "\x1b"}}} {
		if _, err := Complete(d, time.Now()); !farm.IsCode(err, farm.CodeBadRequest) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}
