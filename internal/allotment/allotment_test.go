package allotment

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestDaemon holds the rule by which ancestors are believed.
func TestDaemon(t *testing.T) {
	job := person{pid: 30, parent: 20, uid: 1000, start: 300, program: "/bin/bash"}
	init := person{pid: 1, program: "/sbin/init"}
	for name, c := range map[string]struct {
		between person
		want    bool
	}{
		"the daemon": {person{pid: 20, parent: 1, start: 200, program: "/usr/sbin/stepd"}, true},
		"upgraded meanwhile": {person{pid: 20, parent: 1, start: 200, program: "/usr/sbin/stepd (deleted)"},
			true},
		"a user's own": {person{pid: 20, parent: 1, uid: 1000, start: 200, program: "/home/u/stepd"},
			false},
		"a link to sudo by its name": {person{pid: 20, parent: 1, start: 200, program: "/usr/bin/sudo",
			title: "/home/u/stepd"}, false},
		"a hard link to sudo": {person{pid: 20, parent: 1, start: 200, program: "/tmp/stepd", setuid: true},
			false},
		"a number given again": {person{pid: 20, parent: 1, start: 301, program: "/usr/sbin/stepd"}, false},
	} {
		p, err := read(parseTree(t, "").people(init, c.between, job), 30)
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := p.Daemon("stepd"); ok != c.want || ok && a.PID != 20 {
			t.Errorf("%s: %v %+v, want %v", name, ok, a, c.want)
		}
	}
}

func TestReadCuts(t *testing.T) {
	whole := parseTree(t, "").people(person{pid: 1, program: "/sbin/init"},
		person{pid: 30, parent: 1, uid: 1000, start: 3, program: "/bin/sh"})
	if p, err := read(whole, 30); err != nil || p.UID != 1000 || len(p.Ancestors) != 1 ||
		!slices.Equal(p.Groups, []uint32{1000}) {
		t.Errorf("%+v %v", p, err)
	}
	for _, file := range []string{"status", "stat", "cgroup"} {
		broken := parseTree(t, "").people(person{pid: 30, uid: 1000, start: 3})
		delete(broken.MapFS, "proc/30/"+file)
		if p, err := read(broken, 30); err == nil {
			t.Errorf("without %s: %+v", file, p)
		}
	}
	broken := parseTree(t, "").people(person{pid: 30, uid: 1000, start: 3})
	broken.MapFS["proc/30/status"].Data = []byte("Name:\tx\nUid:\t\n")
	if p, err := read(broken, 30); err == nil {
		t.Errorf("a process of no user: %+v", p)
	}
}

// of is Of with all finders that are here.
func of(files fs.FS, pid int) (farm.Allotment, error) {
	return Of(files, pid, []Finder{Slurm, GridEngine, HTCondor, PBS, LSF})
}
