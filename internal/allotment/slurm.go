package allotment

import (
	"io/fs"
	"path"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// Slurm recognises jobs by their control groups where Slurm makes them (proctrack/cgroup, task/cgroup,
// jobacct_gather/cgroup), and by the title of the slurmstepd above them, which is there always. A process that left its
// parents is known by its groups alone; where there are none (proctrack/linuxproc) Slurm itself does not know it any
// more, and neither do we.
func Slurm(files fs.FS, p Process) (farm.Allotment, error) {
	byGroup, err := p.slurmGroup(files)
	if err != nil {
		return farm.Allotment{}, err
	}
	byTitle := p.slurmTitle()
	a := farm.Allotment{System: farm.Slurm}
	switch {
	case byGroup.job == "" && byTitle.job == "":
		return farm.Allotment{}, nil
	case byGroup.job == "":
		a.Job, a.Step = byTitle.job, byTitle.step
	case byTitle.job != "" && byTitle.job != byGroup.job:
		return farm.Allotment{}, Strange("its control groups are of job " + byGroup.job +
			" and its slurmstepd of job " + byTitle.job)
	default:
		a.Job, a.Step = byGroup.job, byGroup.step
	}
	a.CPUs, a.Memory, a.Cgroups, err = p.Confined(files, func(at string) string {
		if byGroup.job == "" {
			return ""
		}
		return slurmPath(at).top
	})
	return a, err
}

// slurmPlace is a job and a step in it; top is the path of the job's own control group.
type slurmPlace struct{ job, step, top string }

// slurmPath takes the path of a control group apart: /slurm/uid_U/job_J/step_S/task_T in version 1 (with several
// slurmds on a host, /slurm_NODE), system.slice/slurmstepd.scope/job_J/step_S/user/task_T in version 2
// (NODE_slurmstepd.scope), as the cgroup plug-ins of Slurm 22.05 to 24.11 write them.
var slurmPaths = []*lazyregexp.Regexp{
	lazyregexp.New(`^(/slurm(?:_[^/]+)?/uid_\d+/job_(\d+))(?:/step_(\w+))?(?:/.*)?$`),
	lazyregexp.New(`^((?:/[^/]+)*?/(?:[^/]+_)?slurmstepd\.scope/job_(\d+))(?:/step_(\w+))?(?:/.*)?$`),
}

func slurmPath(at string) slurmPlace {
	if path.Clean(at) != at {
		return slurmPlace{}
	}
	for _, form := range slurmPaths {
		if m := form.FindStringSubmatch(at); m != nil {
			return slurmPlace{job: m[2], step: m[3], top: m[1]}
		}
	}
	return slurmPlace{}
}

// slurmGroup is what the process's control groups say. A group of such a name that a user could have made is none of
// Slurm's: who was handed a subtree (a user's systemd, a rootless container) may call what he makes in it job_1.
func (p Process) slurmGroup(files fs.FS) (found slurmPlace, err error) {
	for _, m := range p.Cgroups {
		inside := m.Path
		for strings.HasPrefix(inside, "/../") {
			inside = inside[len("/.."):]
		}
		at := slurmPath(inside)
		if at.job == "" {
			continue
		}
		if inside != m.Path { // beyond our own cgroup namespace
			return slurmPlace{}, Hidden(m.Path)
		}
		dir := m.Dir(files, at.top) // below it the step's user may own groups, which changes nothing
		switch {
		case dir == "":
			return slurmPlace{}, Hidden(at.top)
		case !RootsOwn(files, dir):
			return slurmPlace{}, Strange("control group " + at.top +
				" is named as one of Slurm's, and root alone could not have made it")
		case found.job != "" && found.job != at.job:
			return slurmPlace{}, Strange("its control groups are of jobs " + found.job + " and " + at.job)
		case found.step != "" && at.step != "" && found.step != at.step:
			return slurmPlace{}, Strange("its control groups are of steps " + found.step + " and " + at.step)
		case found.job == "" || found.step == "":
			found = at
		}
	}
	return found, nil
}

func Strange(what string) error {
	return &farm.Error{Kind: farm.Denied, Code: CodeStrangeJob,
		Message: "the batch job of the calling process contradicts itself: " + what,
		Hint:    "see /proc/PID/cgroup of the job's processes"}
}

// slurmstepd are the names of the program; Debian keeps the real one behind a link of alternatives.
var slurmstepd = []string{"slurmstepd", "slurmstepd-wlm"}

// slurmTitle reads what the nearest slurmstepd calls itself: "slurmstepd: [5.batch]", of a heterogeneous job "[5+0.0]".
func (p Process) slurmTitle() slurmPlace {
	stepd, ok := p.Daemon(slurmstepd...)
	if !ok {
		return slurmPlace{}
	}
	if m := slurmStep.FindStringSubmatch(strings.TrimSpace(strings.Join(stepd.Argv, " "))); m != nil {
		return slurmPlace{job: m[1], step: m[2]}
	}
	return slurmPlace{}
}

var slurmStep = lazyregexp.New(`^slurmstepd: \[(\d+)(?:\+\d+)?\.(\w+)\]`)
