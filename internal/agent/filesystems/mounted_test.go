package filesystems

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/mounts"
)

func TestMounted(t *testing.T) {
	d := open(filepath.Join(t.TempDir(), "drains"))
	put(t, d, api.FileSystemDrain{Name: "own", Match: api.FileSystemMatch{Type: "nfs4"}})
	d.FromServer([]api.FileSystemDrain{{Name: "data", Match: api.FileSystemMatch{Source: "server:*"}}})
	got := count([]mounts.Mount{{Type: "nfs4", Source: "server:/export", Point: "/data"},
		{Type: "nfs4", Source: "server:/export", Point: "/again"}, {Type: "ceph", Source: "a:/", Point: "/ceph"}},
		d.List(), [][]Used{nfs, append(nfs, other...), nil})
	want := []farm.HostFileSystem{
		{Source: "server:/export", Type: "nfs4", MountPoint: "/data", VMs: 2, Drains: []string{"data"}},
		{Source: "server:/export", Type: "nfs4", MountPoint: "/again", VMs: 2, Drains: []string{"data"}},
		{Source: "a:/", Type: "ceph", MountPoint: "/ceph", VMs: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
