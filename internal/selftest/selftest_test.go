package selftest

import (
	"bufio"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
)

func TestOwnMemory(t *testing.T) {
	const smaps = `7f0000000000-7f0010000000 rw-p 00000000 00:00 0
Size:             262144 kB
Private_Dirty:    100000 kB
7f0020000000-7f0020100000 rw-p 00000000 00:00 0
Size:               1024 kB
Pss:                 512 kB
Shared_Clean:          0 kB
Shared_Dirty:        128 kB
Private_Clean:         0 kB
Private_Dirty:       384 kB
7f0028000000-7f0028100000 r-xp 00000000 00:00 0 /usr/bin/qemu
Size:               9000 kB
Pss:                8000 kB
Shared_Clean:       1000 kB
Private_Clean:      7000 kB
Private_Dirty:         0 kB
7f0030000000-7f0040000000 rw-p 00000000 00:00 0
Size:             262144 kB
Private_Dirty:        64 kB
`
	cell := 256 * farm.MiB
	for _, c := range []struct {
		cells []farm.Bytes
		own   farm.Bytes
		guest bool
	}{
		{[]farm.Bytes{cell, cell}, 512 * farm.KiB, true},
		{[]farm.Bytes{cell}, (512 + 64) * farm.KiB, true}, // another mapping that is as large is QEMU's own
		{[]farm.Bytes{2 * cell}, (100000 + 512 + 64) * farm.KiB, false},
	} {
		if own, guest := ownMemory(bufio.NewScanner(strings.NewReader(smaps)), c.cells); own != c.own ||
			guest != c.guest {
			t.Errorf("cells %v: %v, %v, want %v, %v", c.cells, own, guest, c.own, c.guest)
		}
	}
}

func TestSecurityModule(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for want, sys := range map[string]fstest.MapFS{
		"":              {},
		"apparmor true": {"module/apparmor/parameters/enabled": file("Y\n")},
		"selinux true":  {"fs/selinux/enforce": file("1"), "module/apparmor/parameters/enabled": file("N\n")},
		"selinux false": {"fs/selinux/enforce": file("0")},
	} {
		name, enforcing := securityModule(sys)
		got := name
		if name != "" {
			got += map[bool]string{true: " true", false: " false"}[enforcing]
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestGroups(t *testing.T) {
	if g := groups(fstest.MapFS{"cgroup.controllers": {Data: []byte("cpuset cpu memory\n")}}); g.Version != 2 ||
		len(g.Controllers) != 3 {
		t.Errorf("%+v", g)
	}
	if g := groups(fstest.MapFS{"memory/memory.stat": {}}); g.Version != 1 {
		t.Errorf("%+v", g)
	}
	if g := groups(fstest.MapFS{}); g.Version != 0 {
		t.Errorf("%+v", g)
	}
}

// TestRules: the same rule in two chains is two, and one more of it in either is seen.
func TestRules(t *testing.T) {
	const text = "table inet grange {\n\tset vms {\n\t\telements = { 1, 2 }\n\t}\n\tchain out " +
		"{\n\t\tdrop\n\t}\n\tchain in {\n\t\tdrop\n\t}\n}\n"
	want := []string{"table inet grange {", "table inet grange { set vms {",
		"table inet grange { set vms { elements = { 1, 2 }", "table inet grange { chain out {",
		"table inet grange { chain out { drop", "table inet grange { chain in {", "table inet grange { chain in { drop"}
	if got := rules(text); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
