package allotment

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/procstat"
)

// Membership is one line of /proc/PID/cgroup: the process's place in one hierarchy.
type Membership struct {
	Controllers []string // none in the unified hierarchy; "name=systemd" for one without controllers
	Path        string   // from the hierarchy's root; it may begin with "/.." where that is beyond what we see
}

func (m Membership) unified() bool { return len(m.Controllers) == 0 }

func (m Membership) has(controller string) bool { return slices.Contains(m.Controllers, controller) }

// Dir is where the hierarchy's group at that path (the process's own, or one above it) is, below the host's root; ""
// when it is not to be seen.
func (m Membership) Dir(files fs.FS, at string) string {
	for part := range strings.SplitSeq(at, "/") {
		if part == ".." {
			return "" // outside of our own cgroup namespace
		}
	}
	roots := []string{strings.Join(m.Controllers, ",")}
	roots = append(roots, m.Controllers...) // a controller alone is a link to the mount point of all
	if m.unified() {
		roots = []string{".", "unified"} // hybrid hosts keep it beside those of version 1
	}
	for _, root := range roots {
		dir := path.Join(cgroupRoot, strings.TrimPrefix(root, "name="), at)
		if info, err := fs.Stat(files, dir+"/cgroup.procs"); err == nil && info.Mode().IsRegular() {
			return dir
		}
	}
	return ""
}

const cgroupRoot = "sys/fs/cgroup"

func readCgroups(files fs.FS, pid int) ([]Membership, error) {
	text, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/cgroup", pid))
	if err != nil {
		return nil, err
	}
	var found []Membership
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		m := Membership{Path: parts[2]}
		if parts[1] != "" {
			m.Controllers = strings.Split(parts[1], ",")
		}
		found = append(found, m)
	}
	return found, nil
}

// RootsOwn reports whether root alone could have made the directory: it and all above it, up to the hierarchy's own,
// belong to root, and nobody else may write into them. A user who was handed a subtree can make groups of any name in
// it.
func RootsOwn(files fs.FS, dir string) bool {
	for ; dir != cgroupRoot && strings.HasPrefix(dir, cgroupRoot+"/"); dir = path.Dir(dir) {
		info, err := fs.Stat(files, dir)
		if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
			return false
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 {
			return false
		}
	}
	return dir == cgroupRoot
}

// Confined is what the job's cgroups allow: the CPUs of the groups that its processes are in, and the least memory
// limit from there up to the job's own group. top tells, of a path in a hierarchy, the path of the job's own group; ""
// where it is none of the job's. dirs are the groups themselves, as farm.Allotment.Cgroups has them. It is an error
// when one of them is not to be seen: a VM that is not put there would have more than its job.
func (p Process) Confined(files fs.FS, top func(path string) string) (cpus farm.CPUSet, memory farm.Bytes,
	dirs []string, err error) {
	for _, m := range p.Cgroups {
		job := top(m.Path)
		if job == "" {
			continue
		}
		dir := m.Dir(files, m.Path)
		if dir == "" {
			return cpus, 0, nil, Hidden(m.Path)
		}
		if rel := strings.TrimPrefix(dir, cgroupRoot+"/"); !slices.Contains(dirs, rel) {
			dirs = append(dirs, rel)
		}
		if m.has("cpuset") || m.unified() {
			if set, ok := readCPUs(files, dir); ok {
				cpus = set
			}
		}
		if m.has("memory") || m.unified() {
			for at := m.Path; ; at = path.Dir(at) {
				if limit := readMemory(files, m.Dir(files, at)); limit > 0 && (memory == 0 || limit < memory) {
					memory = limit
				}
				if at == job || at == "/" {
					break
				}
			}
		}
	}
	return cpus, memory, dirs, nil
}

func Hidden(group string) error {
	return &farm.Error{Kind: farm.Denied, Code: CodeHiddenCgroup,
		Message: "the agent does not see the job's control group " + group,
		Hint:    "run the agent in the host's own cgroup namespace, with /sys/fs/cgroup mounted"}
}

// readCPUs reads what a group of either version really allows.
func readCPUs(files fs.FS, dir string) (farm.CPUSet, bool) {
	for _, name := range []string{"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"} {
		text, err := fs.ReadFile(files, path.Join(dir, name))
		if err != nil || strings.TrimSpace(string(text)) == "" {
			continue
		}
		set, err := farm.ParseCPUSet(strings.TrimSpace(string(text)))
		return set, err == nil
	}
	return farm.CPUSet{}, false
}

// readMemory reads the limit of a group of either version; 0 means none. "No limit" is "max" in version 2 and a number
// near 2^63 in version 1.
func readMemory(files fs.FS, dir string) farm.Bytes {
	for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
		text, err := fs.ReadFile(files, path.Join(dir, name))
		if err != nil {
			continue
		}
		v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || v >= 1<<60 {
			return 0
		}
		return farm.Bytes(v)
	}
	return 0
}

// Within reports whether the process is in a control group, or in one below it. dir is below /sys/fs/cgroup, as in
// farm.Allotment.
func Within(files fs.FS, pid int, dir string) (bool, error) {
	all, err := readCgroups(files, pid)
	if err != nil {
		return false, err
	}
	dir = path.Join(cgroupRoot, dir)
	for _, m := range all {
		if in := m.Dir(files, m.Path); in == dir || strings.HasPrefix(in, dir+"/") {
			return true, nil
		}
	}
	return false, nil
}

// Frozen reports whether the process does not run because its control group is frozen or it was stopped by a signal.
// Nobody should ask such a process for an answer.
func Frozen(files fs.FS, pid int) bool {
	if stopped(files, pid) {
		return true
	}
	all, err := readCgroups(files, pid)
	if err != nil {
		return false
	}
	for _, m := range all {
		dir := m.Dir(files, m.Path)
		switch {
		case dir == "":
		case m.has("freezer"):
			// Of the group itself and of those above it.
			state, err := fs.ReadFile(files, path.Join(dir, "freezer.state"))
			if err == nil && strings.TrimSpace(string(state)) != "THAWED" {
				return true
			}
		case m.unified():
			events, err := fs.ReadFile(files, path.Join(dir, "cgroup.events"))
			if err == nil && slices.Contains(strings.Split(string(events), "\n"), "frozen 1") {
				return true
			}
		}
	}
	return false
}

// stopped reads field 3 of stat.
func stopped(files fs.FS, pid int) bool {
	text, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/stat", pid))
	if err != nil {
		return false
	}
	is := procstat.Parse(text).Field(3)
	return is == "T" || is == "t"
}
