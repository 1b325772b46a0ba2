package filesystems

import (
	"bytes"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/mounts"
)

func TestCount(t *testing.T) {
	nfs := api.BoundBy{FileSystem: &api.FileSystem{Type: "nfs4", Source: "server:/export"}}
	local := api.BoundBy{FileSystem: &api.FileSystem{Type: "ext4", Source: "/dev/vda1"}}
	all := count([]mounts.Mount{
		{Point: "/data", Type: "nfs4", Source: "server:/export"},
		{Point: "/more", Type: "nfs4", Source: "server:/export"},
		{Point: "/data", Type: "nfs4", Source: "server:/export"},
		{Point: "/ceph", Type: "ceph", Source: "a,b:/"},
	}, []api.VM{{Binds: []api.BoundBy{nfs, nfs}}, {Binds: []api.BoundBy{local, nfs}},
		{Binds: []api.BoundBy{{}, local}}, {}})
	var b bytes.Buffer
	if err := write(&b, all); err != nil {
		t.Fatal(err)
	}
	want := `SOURCE          TYPE  MOUNTED AT    VMS
server:/export  nfs4  /data, /more  2
a,b:/           ceph  /ceph         0
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	b.Reset()
	if err := write(&b, count(nil, nil)); err != nil || b.String() != "no network file systems\n" {
		t.Error(b.String(), err)
	}
}
