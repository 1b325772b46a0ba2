package mounts

import (
	"strings"
	"testing"
)

const table = `22 28 0:21 / /proc rw,nosuid shared:5 - proc proc rw
28 1 253:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 28 0:50 / /data rw shared:9 master:2 - nfs4 server:/export rw,vers=4.2
41 40 0:51 / /data rw - ceph a,b:/ rw
42 28 0:52 / /with\040space\134 ro - fuse.cvmfs2 cvmfs2 ro
broken line
43 28 0:53 / /cut rw
44 28 0:54 / /empty rw - tmpfs  rw
`

func TestFind(t *testing.T) {
	for _, c := range []struct {
		id      int
		want    Mount
		network bool
	}{
		{28, Mount{Point: "/", Type: "ext4", Source: "/dev/vda1", Device: "253:1"}, false},
		// another lies over it, and it is open nevertheless
		{40, Mount{Point: "/data", Type: "nfs4", Source: "server:/export", Device: "0:50"}, true},
		{41, Mount{Point: "/data", Type: "ceph", Source: "a,b:/", Device: "0:51"}, true},
		{42, Mount{Point: `/with space\`, Type: "fuse.cvmfs2", Source: "cvmfs2", Device: "0:52", ReadOnly: true},
			true},
		{44, Mount{Point: "/empty", Type: "tmpfs", Device: "0:54"}, false},
	} {
		m, found, err := Find(strings.NewReader(table), c.id)
		if err != nil || !found || m != c.want || m.Network() != c.network {
			t.Errorf("%d: %+v, %v, %v", c.id, m, found, err)
		}
	}
	for _, id := range []int{0, 43, 99} {
		if m, found, err := Find(strings.NewReader(table), id); found || err != nil {
			t.Errorf("%d: %+v, %v", id, m, err)
		}
	}
	if _, _, err := Find(strings.NewReader(strings.Repeat("x", maxLine+1)), 1); err == nil {
		t.Error("a line without end is read")
	}
}

func TestNetworked(t *testing.T) {
	all, err := Networked(strings.NewReader(table))
	if err != nil || len(all) != 3 || all[0].Type != "nfs4" || all[1].Type != "ceph" || all[2].Type != "fuse.cvmfs2" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{`a\011b`: "a\tb", `\`: `\`, `\04`: `\04`, `\999`: `\999`, `\777`: `\777`,
		`\040`: " "} {
		if got := Unescape(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestID(t *testing.T) {
	if id, ok := ID("pos:\t0\nflags:\t012200000\nmnt_id:\t40\nino:\t2\n"); !ok || id != 40 {
		t.Error(id, ok)
	}
	for _, s := range []string{"", "pos:\t0\n", "mnt_id:\tx\n"} {
		if id, ok := ID(s); ok {
			t.Error(s, id)
		}
	}
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		a, b Mount
		want bool
	}{
		{Mount{Type: "nfs4", Source: "server:/x", Device: "0:1"}, Mount{Type: "nfs4", Source: "server:/x", Device: "0:2"},
			true},
		{Mount{Type: "cifs", Source: "//server/x", Device: "0:1"}, Mount{Type: "cifs", Source: "//server/x", Device: "0:2"},
			true},
		{Mount{Type: "nfs4", Source: "server:/x"}, Mount{Type: "nfs4", Source: "server:/y"}, false},
		{Mount{Type: "fuse", Source: "cvmfs2", Device: "0:1"}, Mount{Type: "fuse", Source: "cvmfs2", Device: "0:2"}, false},
		{Mount{Type: "fuse", Source: "cvmfs2", Device: "0:1"}, Mount{Type: "fuse", Source: "cvmfs2", Device: "0:1"}, true},
		{Mount{Type: "beegfs", Source: "beegfs_nodev", Device: "0:1"},
			Mount{Type: "beegfs", Source: "beegfs_nodev", Device: "0:2"}, false},
	} {
		if c.a.Same(c.b) != c.want || c.b.Same(c.a) != c.want {
			t.Errorf("%+v, %+v", c.a, c.b)
		}
	}
}

func TestOver(t *testing.T) {
	all, err := All(strings.NewReader(table))
	if err != nil || len(all) != 6 {
		t.Fatalf("%+v, %v", all, err)
	}
	for path, want := range map[string]string{"/": "ext4", "/data": "ceph", "/data/x": "ceph", "/database": "ext4",
		"/proc/1": "proc"} {
		if m, ok := Over(all, path); !ok || m.Type != want {
			t.Errorf("%s: %+v", path, m)
		}
	}
	if m, ok := Over(nil, "/"); ok {
		t.Errorf("%+v", m)
	}
}

func TestNotLocal(t *testing.T) {
	for number, want := range map[int64]string{0x6969: "NFS", -0xacb2be: "CIFS", 0x65735546: "FUSE", 0xef53: "", 0: ""} {
		if got := NotLocal(number); got != want {
			t.Errorf("%#x: %q", number, got)
		}
	}
}
