package allotment

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/procstat"
)

// Codes of errors about what the kernel tells of a batch job; see docs/errors.md.
const (
	CodeHiddenCgroup farm.Code = "hidden-cgroup" // the agent does not see the control groups of its caller's batch job
	CodeStrangeJob   farm.Code = "strange-job"   // what the kernel tells of a batch job contradicts itself
)

// Finder recognises the jobs of one batch system. It returns the zero Allotment for a process that is none of its own,
// and an error only where the process is one of its jobs and what it was given cannot be told: such a job must not run.
type Finder func(files fs.FS, p Process) (farm.Allotment, error)

// Of returns what batch job the process belongs to; finders are asked in turn, and the first that knows the process
// counts. files is the host's root directory, so that recorded trees work. A process of no batch job gets the zero
// Allotment.
func Of(files fs.FS, pid int, finders []Finder) (farm.Allotment, error) {
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

// Process is what the kernel tells of one process and of those it descends from.
type Process struct {
	PID       int
	UID       uint32 // real
	Groups    []uint32
	Cgroups   []Membership
	Ancestors []Ancestor // parent first, up to process 1
}

// DaemonAt is where among the ancestors the nearest of these programs is that root started; -1 for none. See daemon.
func (p Process) DaemonAt(programs ...string) int {
	return slices.IndexFunc(p.Ancestors, func(a Ancestor) bool {
		return a.UID == 0 && !a.Setuid &&
			slices.Contains(programs, a.Program)
	})
}

// Daemon is the nearest ancestor that is one of these programs, started by root. A user can call a program of his what
// he likes, but not make root run it; and one that becomes root by its file's mode is found out by that mode.
func (p Process) Daemon(programs ...string) (Ancestor, bool) {
	for _, a := range p.Ancestors {
		if a.UID == 0 && !a.Setuid && slices.Contains(programs, a.Program) {
			return a, true
		}
	}
	return Ancestor{}, false
}

// Ancestor is a process that a batch system's daemon may be. See Process.Daemon for when to believe it.
type Ancestor struct {
	PID     int
	UID     uint32   // real; effective ones change while a daemon acts for its user
	Program string   // base name of the file that it runs, links followed; "" when that is not to be seen
	Setuid  bool     // that file is set-user-ID or set-group-ID: whoever started it chose its arguments
	Argv    []string // as it set them itself: daemons tell here what they are for
}

// maxAncestors bounds the way up: a process table that changes under us must not hold us.
const maxAncestors = 64

func read(files fs.FS, pid int) (Process, error) {
	status, err := readStatus(files, pid)
	if err != nil {
		return Process{}, err
	}
	p := Process{PID: pid, UID: status.UID, Groups: status.Groups}
	if p.Cgroups, err = readCgroups(files, pid); err != nil {
		return Process{}, err
	}
	born, err := StartOf(files, pid)
	if err != nil {
		return Process{}, err
	}
	for parent := status.parent; parent > 0 && len(p.Ancestors) < maxAncestors; {
		start, err := StartOf(files, parent)
		if err != nil || start > born {
			break // it ended meanwhile; whoever has its number now is no parent of ours
		}
		s, err := readStatus(files, parent)
		if err != nil {
			break
		}
		a := Ancestor{PID: parent, UID: s.UID, Setuid: true} // unless we see that it is not
		if link, err := fs.ReadLink(files, fmt.Sprintf("proc/%d/exe", parent)); err == nil {
			a.Program = path.Base(strings.TrimSuffix(link, " (deleted)")) // by an upgrade of its package
		}
		if info, err := fs.Stat(files, fmt.Sprintf("proc/%d/exe", parent)); err == nil {
			a.Setuid = info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0
		}
		argv, _ := fs.ReadFile(files, fmt.Sprintf("proc/%d/cmdline", parent))
		a.Argv = strings.Split(strings.TrimRight(string(argv), "\x00"), "\x00")
		if again, err := StartOf(files, parent); err != nil || again != start {
			break
		}
		p.Ancestors = append(p.Ancestors, a)
		born, parent = start, s.parent
	}
	return p, nil
}

type status struct {
	parent int
	UID    uint32 // real
	Groups []uint32
}

func readStatus(files fs.FS, pid int) (status, error) {
	text, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/status", pid))
	if err != nil {
		return status{}, err
	}
	var s status
	known := false
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		fields := strings.Fields(value)
		switch {
		case key == "PPid" && len(fields) == 1:
			s.parent, _ = strconv.Atoi(fields[0])
		case key == "Uid" && len(fields) == 4:
			s.UID, known = number(fields[0]), true
		case key == "Groups":
			for _, f := range fields {
				s.Groups = append(s.Groups, number(f))
			}
		}
	}
	if !known {
		return status{}, fmt.Errorf("proc/%d/status names no user", pid)
	}
	return s, nil
}

// number of a user or group. What is not a number is nobody's: it must not become root's.
func number(text string) uint32 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 1<<32 - 1
	}
	return uint32(n)
}

// StartOf is when the process started, in clock ticks since boot.
func StartOf(files fs.FS, pid int) (uint64, error) {
	text, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return procstat.Parse(text).Started()
}
