package allotment

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// finder recognises the jobs of one batch system. It returns the zero Allotment for a process that is none of its own, and an error
// only where the process is one of its jobs and what it was given cannot be told: such a job must not run.
type finder func(files fs.FS, p process) (farm.Allotment, error)

// finders are asked in turn; the first that knows the process counts.
var finders = []finder{}

// Of tells what batch job the process belongs to. files is the host's root directory, so that recorded trees work. A process of
// no batch job gets the zero Allotment.
func Of(files fs.FS, pid int) (farm.Allotment, error) {
	p, err := read(files, pid)
	if err != nil {
		return farm.Allotment{}, err
	}
	for _, find := range finders {
		a, err := find(files, p)
		if err != nil || a.System != "" {
			return a, err
		}
	}
	return farm.Allotment{}, nil
}

// process is what the kernel tells of one process and of those it descends from.
type process struct {
	pid       int
	uid       uint32 // real
	groups    []uint32
	cgroups   map[string]string // path by controller; "" stands for the unified hierarchy
	ancestors []ancestor        // parent first, up to process 1
}

// ancestor is a process that a batch system's daemon may be. Its name and command line count only where its user is no ordinary one:
// anybody can call a program slurmstepd.
type ancestor struct {
	pid  int
	uid  uint32   // real
	euid uint32   // effective
	name string   // comm: at most 15 bytes
	argv []string // as it set them itself
}

// maxAncestors bounds the way up: a process table that changes under us must not hold us.
const maxAncestors = 64

func read(files fs.FS, pid int) (process, error) {
	status, err := readStatus(files, pid)
	if err != nil {
		return process{}, err
	}
	p := process{pid: pid, uid: status.uid, groups: status.groups}
	if p.cgroups, err = readCgroups(files, pid); err != nil {
		return process{}, err
	}
	for parent := status.parent; parent > 0 && len(p.ancestors) < maxAncestors; {
		s, err := readStatus(files, parent)
		if err != nil {
			break // it ended meanwhile
		}
		argv, _ := fs.ReadFile(files, fmt.Sprintf("proc/%d/cmdline", parent))
		p.ancestors = append(p.ancestors, ancestor{parent, s.uid, s.euid, s.name, strings.Split(strings.TrimRight(string(argv), "\x00"), "\x00")})
		parent = s.parent
	}
	return p, nil
}

type status struct {
	name      string
	parent    int
	uid, euid uint32
	groups    []uint32
}

func readStatus(files fs.FS, pid int) (status, error) {
	text, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/status", pid))
	if err != nil {
		return status{}, err
	}
	var s status
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		fields := strings.Fields(value)
		switch {
		case key == "Name":
			s.name = strings.TrimSpace(value)
		case key == "PPid" && len(fields) == 1:
			s.parent, _ = strconv.Atoi(fields[0])
		case key == "Uid" && len(fields) == 4:
			s.uid, s.euid = number(fields[0]), number(fields[1])
		case key == "Groups":
			for _, f := range fields {
				s.groups = append(s.groups, number(f))
			}
		}
	}
	return s, nil
}

func number(text string) uint32 {
	n, _ := strconv.ParseUint(text, 10, 32)
	return uint32(n)
}

func readCgroups(files fs.FS, pid int) (map[string]string, error) {
	text, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/cgroup", pid))
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			found[controller] = path.Clean("/" + parts[2])
		}
	}
	return found, nil
}
