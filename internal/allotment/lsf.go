package allotment

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// LSF recognises jobs by the res above them, which sbatchd starts as root for each job, and whose last argument is the
// job's file: HOME/.lsbatch/TIME.JOB, or TIME.JOB.ELEMENT of an array. Where LSF makes control groups
// (LSF_LINUX_CGROUP_ACCT, LSB_RESOURCE_ENFORCE), those limit and account.
func LSF(files fs.FS, p Process) (farm.Allotment, error) {
	i := p.DaemonAt("res")
	if i < 0 || !slices.ContainsFunc(p.Ancestors[i:], func(a Ancestor) bool {
		return a.Program == "sbatchd" &&
			a.UID == 0 && !a.Setuid
	}) {
		return farm.Allotment{}, nil // a res of its own serves lsrun: no batch job
	}
	argv := p.Ancestors[i].Argv
	at := lsfFile.FindStringSubmatch(argv[len(argv)-1])
	if at == nil {
		return farm.Allotment{}, Strange("res, started by sbatchd, names no job's file: " + strings.Join(argv, " "))
	}
	a := farm.Allotment{System: farm.LSF, Job: at[1]}
	if at[2] != "" && at[2] != "0" {
		a.Job += "[" + at[2] + "]"
	}
	p.Cgroups = slices.DeleteFunc(slices.Clone(p.Cgroups), func(m Membership) bool {
		// By the freezer LSF finds whom to send signals to: QEMU would end of the TERM that gives its job time to clean
		// up.
		return slices.Equal(m.Controllers, []string{"freezer"})
	})
	for _, m := range p.Cgroups {
		group := lsfPath.FindStringSubmatch(m.Path)
		if group == nil {
			continue
		}
		dir := m.Dir(files, group[1])
		switch {
		case dir == "":
			return farm.Allotment{}, Hidden(group[1])
		case !RootsOwn(files, dir):
			return farm.Allotment{},
				Strange("control group " + group[1] +
					" is named as one of LSF's, and root alone could not have made it")
		case group[2] != at[1]:
			return farm.Allotment{},
				Strange("its control groups are of job " + group[2] + " and its res of job " + at[1])
		}
	}
	var err error
	a.CPUs, a.Memory, a.Cgroups, err = p.Confined(files, func(at string) string {
		if m := lsfPath.FindStringSubmatch(at); m != nil {
			return m[1]
		}
		return ""
	})
	return a, err
}

var (
	lsfFile = lazyregexp.New(`/\.lsbatch/\d+\.(\d+)(?:\.(\d+))?$`)
	// lsfPath is /lsf/CLUSTER/job.JOB.PID.TIME; of an element of an array, job.JOB[ELEMENT] or job.JOB_ELEMENT.
	lsfPath = lazyregexp.New(`^(/lsf/[^/]+/job\.(\d+)(?:[[_]\d+\]?)?(?:\.[^/]*)?)(?:/.*)?$`)
)
