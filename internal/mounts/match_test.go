package mounts

import "testing"

func TestMatch(t *testing.T) {
	nfs := Mount{Type: "nfs4", Source: "server:/export/a", Point: "/data"}
	atlas := Mount{Type: "fuse", Source: "cvmfs2", Point: "/cvmfs/atlas.cern.ch"}
	auto := Mount{Type: "autofs", Source: "/etc/auto.cvmfs", Point: "/cvmfs"}
	for _, c := range []struct {
		match Match
		is    Mount
		want  bool
	}{
		{Match{}, nfs, false},
		{Match{Source: "server:/export/a"}, nfs, true},
		{Match{Source: "server:/export"}, nfs, false},
		{Match{Source: "server:/export/*"}, nfs, true},
		{Match{Source: "*:/*/a"}, nfs, true},
		{Match{Source: "*:/*/b"}, nfs, false},
		{Match{Source: "ser*ver*:/export/a"}, nfs, true},
		{Match{Source: "server:/export/a*a"}, nfs, false},
		{Match{Source: "server:*", Type: "ceph"}, nfs, false},
		{Match{Type: "nfs*"}, nfs, true},
		{Match{Type: "fuse", MountPoint: "/cvmfs/atlas.cern.ch"}, atlas, true},
		{Match{MountPoint: "/cvmfs/cms.*"}, atlas, false},
		{Match{MountPoint: "/cvmfs/*"}, auto, true},
		{Match{Type: "fuse", MountPoint: "/cvmfs/atlas.cern.ch"}, auto, true},
		{Match{MountPoint: "/home/*"}, auto, false},
		{Match{Source: "*"}, auto, false},
	} {
		if got := c.match.Has(c.is); got != c.want {
			t.Errorf("%+v, %+v: %v", c.match, c.is, got)
		}
	}
}
