package hostfacts

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// cgroups reads which CPUs control groups allow, of both versions.
type cgroups struct {
	fsys  fs.FS
	known map[string]farm.CPUSet // by directory: the groups of many threads are the same
}

// of is the CPUs of the group that a file such as proc/1/cgroup names; empty when it cannot be known.
func (c cgroups) of(file string) farm.CPUSet {
	return c.cpus(c.directories(file))
}

// ofMachine is the CPUs of the group that holds a whole VM: libvirt gives vCPUs, I/O threads and the rest groups of
// their own below.
func (c cgroups) ofMachine(file string) farm.CPUSet {
	tops, group := c.directories(file)
	for partOfMachine.MatchString(path.Base(group)) {
		group = path.Dir(group)
	}
	return c.cpus(tops, group)
}

var partOfMachine = lazyregexp.New(`^(emulator|libvirt|vcpu[0-9]+|iothread[0-9]+)$`)

// directories reads where the group of the cpuset controller is: the places its version is mounted at, and the group
// below.
func (c cgroups) directories(file string) (tops []string, group string) {
	text, err := readSome(c.fsys, file, maxStatus)
	if err != nil {
		return nil, ""
	}
	for line := range strings.Lines(string(text)) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, name, ok := strings.Cut(rest, ":")
		if !ok || strings.Contains(name, "..") {
			continue // a path through ".." is outside of the recorder's own cgroup namespace
		}
		switch {
		case slices.Contains(strings.Split(controllers, ","), "cpuset"):
			return []string{"sys/fs/cgroup/cpuset", "sys/fs/cgroup/" + controllers}, path.Clean("/" + name)
		case number == "0" && controllers == "":
			tops, group = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}, path.Clean("/"+name)
		}
	}
	return tops, group
}

// cpus reads the group's CPUs, or those of the nearest group above that has the controller.
func (c cgroups) cpus(tops []string, group string) farm.CPUSet {
	if group == "" {
		return farm.CPUSet{}
	}
	for at := group; ; at = path.Dir(at) {
		for _, top := range tops {
			if set := c.read(path.Join(top, at)); !set.Empty() {
				return set
			}
		}
		if at == "/" {
			return farm.CPUSet{}
		}
	}
}

func (c cgroups) read(dir string) farm.CPUSet {
	if set, ok := c.known[dir]; ok {
		return set
	}
	var set farm.CPUSet
	if fs.ValidPath(dir) {
		// Version 2, version 1, and version 1 before Linux 3.17.
		for _, name := range []string{"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"} {
			text, err := readSome(c.fsys, path.Join(dir, name), maxStatus)
			if err != nil {
				continue
			}
			if set, err = farm.ParseCPUSet(string(text)); err == nil && !set.Empty() {
				break
			}
		}
	}
	c.known[dir] = set
	return set
}
