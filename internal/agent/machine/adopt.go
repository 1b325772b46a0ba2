package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/procstat"
)

// LibvirtMoves reports whether libvirt is about to move single threads of a process that is now where libvirt has put
// it: it does where it has the controllers cpu or cpuset. The kernel refuses that for a process that has been moved
// elsewhere in a hierarchy of version 2, and the start would fail.
func LibvirtMoves(files fs.FS, pid int) bool {
	text, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/cgroup", pid))
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(text)) {
		at, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !unified {
			continue
		}
		// Slices have these controllers for what is in them, whoever made it.
		for at = strings.Trim(at, "/"); at != "" && at != "." && !strings.HasSuffix(at, ".slice"); at = path.Dir(at) {
			has, _ := fs.ReadFile(files, path.Join("sys/fs/cgroup", at, "cgroup.subtree_control"))
			if words := strings.Fields(string(has)); slices.Contains(words, "cpu") || slices.Contains(words, "cpuset") {
				return true
			}
		}
	}
	return false
}

// Enter writes a process into control groups of the host at root.
func Enter(root string, groups []string, pid int) error {
	for _, group := range groups {
		if !fs.ValidPath(group) { // it came from the kernel; an old record may hold anything
			return notAdopted(nil, "%q is not a control group", group)
		}
		if err := os.WriteFile(filepath.Join(root, "sys/fs/cgroup", group, "cgroup.procs"), []byte(strconv.Itoa(pid)),
			0); err != nil {
			return notAdopted(err, "the batch system's control group %s does not take QEMU", group)
		}
	}
	return nil
}

// Adopt writes the process that started then into control groups of the host at root, and reads back that it is there.
// A later process with its number is somebody else's: it would leave its own limits for the job's.
func Adopt(root string, groups []string, pid int, started uint64) error {
	if len(groups) == 0 {
		return nil
	}
	if err := lives(pid, started); err != nil {
		return err
	}
	pins, err := affinities(pid)
	if err != nil {
		return notAdopted(err, "the threads of QEMU (process %d) are not to be seen", pid)
	}
	if err := join(root, groups, pid, started); err != nil {
		return err
	}
	if err := repin(pid, pins); err != nil {
		return err
	}
	return lives(pid, started)
}

// lives returns an error where the process that started then has ended.
func lives(pid int, started uint64) error {
	if start, err := procstat.Started(pid); err != nil || start != started {
		return notAdopted(err, "process %d, of the VM, has ended", pid)
	}
	return nil
}

// join is Adopt of a process that nobody has pinned: it may run on what CPUs the groups allow.
func join(root string, groups []string, pid int, started uint64) error {
	for _, group := range groups {
		if err := lives(pid, started); err != nil {
			return err
		}
		if err := Enter(root, []string{group}, pid); err != nil {
			return err
		}
	}
	for _, group := range groups {
		in, err := allotment.Within(os.DirFS(root), pid, group)
		if err != nil || !in {
			return notAdopted(err, "process %d is not in the batch system's control group %s, although the kernel "+
				"took it", pid, group)
		}
	}
	return nil
}

func notAdopted(err error, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if err != nil {
		text += ": " + err.Error()
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeNotAdopted, Message: text, Err: err,
		Hint: "has the batch job just ended? If not, look at its control group"}
}

// affinities are the CPUs that each thread of a process may run on.
func affinities(pid int) (map[int]unix.CPUSet, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	found := map[int]unix.CPUSet{}
	for _, e := range entries {
		thread, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(thread, &set); errors.Is(err, unix.ESRCH) {
			continue // a worker that has just ended
		} else if err != nil {
			return nil, err
		}
		found[thread] = set
	}
	return found, nil
}

// repin gives threads back the CPUs they had. Before Linux 6.2 a thread that enters a cpuset may run on all of the
// set's CPUs, whatever it was pinned to; and after it, where the set has none of the thread's.
func repin(pid int, before map[int]unix.CPUSet) error {
	now, err := affinities(pid)
	if err != nil {
		return notAdopted(err, "the threads of QEMU (process %d) are not to be seen", pid)
	}
	for thread, set := range now {
		want, ok := before[thread]
		if !ok {
			want = before[pid] // a worker that came meanwhile
		}
		if set == want {
			continue
		}
		if err := unix.SchedSetaffinity(thread, &want); err != nil && !errors.Is(err, unix.ESRCH) {
			return notAdopted(err, "the batch system's control group does not allow the CPUs %v that a thread of "+
				"QEMU was pinned to", cpusOf(want))
		}
		if got := new(unix.CPUSet); unix.SchedGetaffinity(thread, got) == nil && *got != want {
			return notAdopted(nil, "the batch system's control group allows a thread of QEMU CPUs %v of the %v it "+
				"was pinned to", cpusOf(*got), cpusOf(want))
		}
	}
	return nil
}

func cpusOf(set unix.CPUSet) farm.CPUSet {
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return farm.NewCPUSet(cpus...)
}

// CodeNotAdopted is of a QEMU that could not be put where the batch system keeps its job.
const CodeNotAdopted farm.Code = "not-adopted"
