package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// adopt puts the VM's process where the batch system limits, accounts, freezes and kills the job: when the VM is made,
// before the guest's memory is touched; and again when the task whose groups it sits in has ended before the others. A
// VM that cannot be put there must not run: it would have more than its job was given. 0 is the process of a hypervisor
// that has none.
func (j *job) adopt(q hyper.Applied) error {
	if q.PID == 0 {
		return nil
	}
	return adopt("/", j.caller.Batch.Cgroups, q.PID, q.Started)
}

// enters is what has a process that is about to become QEMU put into the job's control groups; nil where the job has
// none. In groups of version 2 memory stays with the group that it was first charged to, so what is adopted later
// leaves all that QEMU took at its start with libvirt's group: some 70 MiB, and its huge pages where those count. adopt
// comes all the same: it finds QEMU there, or brings it.
func (j *job) enters(log *slog.Logger) func(pid int) {
	groups := j.caller.Batch.Cgroups
	if len(groups) == 0 {
		return nil
	}
	return func(pid int) {
		// libvirt waits for QEMU's first words, which one that is frozen would not say.
		if machine.Frozen(j.caller.PID) || libvirtMoves(os.DirFS("/"), pid) {
			return
		}
		pins := new(unix.CPUSet)
		unpinned := unix.SchedGetaffinity(pid, pins)
		if err := enter("/", groups, pid); err != nil {
			log.Warn("QEMU starts outside of its job's control groups", "vm", j.vm.recordNow().Name, "error", err)
		}
		if unpinned == nil { // see repin; adopt refuses what cannot be
			unix.SchedSetaffinity(pid, pins)
		}
	}
}

// libvirtMoves reports whether libvirt is about to move single threads of a process that is now where libvirt has put
// it: it does where it has the controllers cpu or cpuset. The kernel refuses that for a process that has been moved
// elsewhere in a hierarchy of version 2, and the start would fail.
func libvirtMoves(files fs.FS, pid int) bool {
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

// enter writes a process into control groups of the host at root.
func enter(root string, groups []string, pid int) error {
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

// adopt writes the process that started then into control groups of the host at root, and reads back that it is there.
// A later process with its number is somebody else's: it would leave its own limits for the job's.
func adopt(root string, groups []string, pid int, started uint64) error {
	if len(groups) == 0 {
		return nil
	}
	lives := func() error {
		if start, err := startOf(pid); err != nil || start != started {
			return notAdopted(err, "QEMU (process %d) has ended", pid)
		}
		return nil
	}
	if err := lives(); err != nil {
		return err
	}
	pins, err := affinities(pid)
	if err != nil {
		return notAdopted(err, "the threads of QEMU (process %d) are not to be seen", pid)
	}
	for _, group := range groups {
		if err := lives(); err != nil {
			return err
		}
		if err := enter(root, []string{group}, pid); err != nil {
			return err
		}
	}
	for _, group := range groups {
		in, err := allotment.Within(os.DirFS(root), pid, group)
		if err != nil || !in {
			return notAdopted(err, "QEMU is not in the batch system's control group %s, although the kernel took it",
				group)
		}
	}
	if err := repin(pid, pins); err != nil {
		return err
	}
	return lives()
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
