package filesystems

import (
	"bytes"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/mounts"
)

func TestCount(t *testing.T) {
	nfs := api.BoundBy{FileSystem: &api.FileSystem{Type: "nfs4", Source: "server:/export"}}
	atlas := api.BoundBy{FileSystem: &api.FileSystem{Type: "fuse", Source: "cvmfs2", Device: "0:60"}}
	local := api.BoundBy{FileSystem: &api.FileSystem{Type: "ext4", Source: "/dev/vda1"}}
	all := count([]mounts.Mount{
		{Point: "/data", Type: "nfs4", Source: "server:/export"},
		{Point: "/more", Type: "nfs4", Source: "server:/export"},
		{Point: "/data", Type: "nfs4", Source: "server:/export"},
		{Point: "/ceph", Type: "ceph", Source: "a,b:/"},
		{Point: "/cvmfs/atlas.cern.ch", Type: "fuse", Source: "cvmfs2", Device: "0:60"},
		{Point: "/cvmfs/cms.cern.ch", Type: "fuse", Source: "cvmfs2", Device: "0:61"},
	}, []api.VM{{Binds: []api.BoundBy{nfs, nfs}}, {Binds: []api.BoundBy{local, nfs}},
		{Binds: []api.BoundBy{{}, local}}, {Binds: []api.BoundBy{atlas}}, {}},
		[]api.FileSystemDrain{{Name: "data", Match: api.FileSystemMatch{MountPoint: "/more"}},
			{Name: "local", Match: api.FileSystemMatch{Source: "/dev/*"}}})
	var b bytes.Buffer
	if err := write(&b, all); err != nil {
		t.Fatal(err)
	}
	want := `SOURCE          TYPE  MOUNTED AT            VMS  DRAINED
server:/export  nfs4  /data, /more          2    data
a,b:/           ceph  /ceph                 0    -
cvmfs2          fuse  /cvmfs/atlas.cern.ch  1    -
cvmfs2          fuse  /cvmfs/cms.cern.ch    0    -
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	b.Reset()
	if err := write(&b, count(nil, nil, nil)); err != nil || b.String() != "no network file systems\n" {
		t.Error(b.String(), err)
	}
}
