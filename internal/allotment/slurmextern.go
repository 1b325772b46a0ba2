package allotment

import (
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// SlurmExtern is the step that Slurm keeps on a host from the beginning to the end of an allocation: its "extern" step,
// which PrologFlags=Contain makes.
type SlurmExtern struct {
	Daemon int // slurmstepd of the step: it lives as long as the allocation does on this host
	Task   int // its only task, which is in the step's control groups
}

// ExternOf finds the extern step of the allocation that a step belongs to; ok is false where there is none. A host may
// have slurmds of several clusters, whose jobs have the same numbers: the step and its extern step are in the control
// groups of one job.
func ExternOf(files fs.FS, step farm.Allotment) (found SlurmExtern, ok bool) {
	for _, pid := range children(files, externDaemons(files, step.Job)) {
		p, err := read(files, pid)
		if err != nil {
			continue
		}
		a, err := Slurm(files, p)
		stepd, isTask := p.Daemon(slurmstepd...)
		if err == nil && isTask && a.Job == step.Job && a.Step == "extern" && sameJob(a.Cgroups, step.Cgroups) {
			return SlurmExtern{Daemon: stepd.PID, Task: pid}, true
		}
	}
	return SlurmExtern{}, false
}

// externDaemons are the processes that have the title of a job's extern step. Who may have it is for the caller to find
// out.
func externDaemons(files fs.FS, job string) (pids []int) {
	all, _ := processes(files)
	for _, pid := range all {
		argv, err := fs.ReadFile(files, "proc/"+strconv.Itoa(pid)+"/cmdline")
		if err != nil {
			continue
		}
		title := strings.TrimSpace(strings.ReplaceAll(string(argv), "\x00", " "))
		if m := slurmStep.FindStringSubmatch(title); m != nil && m[1] == job && m[2] == "extern" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// children are the processes that any of these started.
func children(files fs.FS, parents []int) (pids []int) {
	if len(parents) == 0 {
		return nil
	}
	all, _ := processes(files)
	for _, pid := range all {
		if s, err := readStatus(files, pid); err == nil && slices.Contains(parents, s.parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processes are all of the host.
func processes(files fs.FS) (pids []int, err error) {
	entries, err := fs.ReadDir(files, "proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// sameJob reports whether the control groups of two steps are in the same groups of a job.
func sameJob(a, b []string) bool {
	return slices.Equal(jobGroups(a), jobGroups(b))
}

func jobGroups(steps []string) (jobs []string) {
	for _, group := range steps {
		job, _, _ := strings.Cut(group, "/step_")
		jobs = append(jobs, job)
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}
