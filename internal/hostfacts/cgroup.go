package hostfacts

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Bounds of the walk through control groups.
const (
	maxGroupDepth = 8
	maxGroups     = 4096
)

// partitions finds control groups that have CPUs of their own: partitions of version 2, exclusive cpusets of version 1.
func (r *reader) partitions() []farm.Partition {
	var out []farm.Partition
	left := maxGroups
	for _, root := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
		if r.Exists(root + "/cgroup.controllers") {
			r.groups(root, "", maxGroupDepth, &left, func(dir, path string) {
				// a partition that lost its CPUs reads "root invalid (why)"
				if kind := r.word(dir + "/cpuset.cpus.partition"); kind == "root" || kind == "isolated" {
					cpus, _ := r.List(dir + "/cpuset.cpus.effective")
					out = append(out, farm.Partition{Path: path, CPUs: cpus, Kind: kind})
				}
			})
		}
	}
	for _, root := range []string{"sys/fs/cgroup/cpuset", "cgroup/cpuset"} { // the second is that of before systemd
		r.groups(root, "", maxGroupDepth, &left, func(dir, path string) {
			if r.word(dir+"/cpuset.cpu_exclusive") == "1" {
				cpus, _ := r.List(dir + "/cpuset.cpus")
				out = append(out, farm.Partition{Path: path, CPUs: cpus, Kind: "exclusive"})
			}
		})
	}
	return out
}

// groups calls look for every control group below dir, but not for dir itself: the root has all CPUs.
func (r *reader) groups(dir, path string, depth int, left *int, look func(dir, path string)) {
	for _, name := range r.Names(dir) {
		if *left == 0 || depth == 0 {
			return
		}
		// A file of a control group has its controller's name in front, a directory of systemd its kind behind.
		if isControl(name) || len(r.Names(dir+"/"+name)) == 0 {
			continue
		}
		*left--
		look(dir+"/"+name, path+"/"+name)
		r.groups(dir+"/"+name, path+"/"+name, depth-1, left, look)
	}
}

func isControl(name string) bool {
	controller, _, ok := strings.Cut(name, ".")
	switch controller {
	case "cgroup", "cpuset", "cpu", "cpuacct", "memory", "io", "pids", "hugetlb", "rdma", "misc", "irq", "dmem":
		return ok
	}
	return name == "tasks" || name == "notify_on_release" || name == "release_agent"
}
