package mounts

import (
	"strings"
	"testing"
)

const table = `22 28 0:21 / /proc rw,nosuid shared:5 - proc proc rw
28 1 253:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 28 0:50 / /data rw shared:9 master:2 - nfs4 server:/export rw,vers=4.2
41 40 0:51 / /data rw - ceph a,b:/ rw
42 28 0:52 / /with\040space\134 rw - fuse.cvmfs2 cvmfs2 ro
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
		{28, Mount{"/", "ext4", "/dev/vda1"}, false},
		{40, Mount{"/data", "nfs4", "server:/export"}, true}, // another lies over it, and it is open nevertheless
		{41, Mount{"/data", "ceph", "a,b:/"}, true},
		{42, Mount{`/with space\`, "fuse.cvmfs2", "cvmfs2"}, true},
		{44, Mount{"/empty", "tmpfs", ""}, false},
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
