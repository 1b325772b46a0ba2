package allotment

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// lsf recognises jobs by the res above them, which sbatchd starts as root for each job, and whose last argument is the
// job's file: HOME/.lsbatch/TIME.JOB, or TIME.JOB.ELEMENT of an array. Where LSF makes control groups
// (LSF_LINUX_CGROUP_ACCT, LSB_RESOURCE_ENFORCE), those limit and account.
func lsf(files fs.FS, p process) (farm.Allotment, error) {
	i := p.daemonAt("res")
	if i < 0 || !slices.ContainsFunc(p.ancestors[i:], func(a ancestor) bool {
		return a.program == "sbatchd" &&
			a.uid == 0 && !a.setuid
	}) {
		return farm.Allotment{}, nil // a res of its own serves lsrun: no batch job
	}
	argv := p.ancestors[i].argv
	at := lsfFile.FindStringSubmatch(argv[len(argv)-1])
	if at == nil {
		return farm.Allotment{}, strangeJob("res, started by sbatchd, names no job's file: " + strings.Join(argv, " "))
	}
	a := farm.Allotment{System: farm.LSF, Job: at[1]}
	if at[2] != "" && at[2] != "0" {
		a.Job += "[" + at[2] + "]"
	}
	p.cgroups = slices.DeleteFunc(slices.Clone(p.cgroups), func(m membership) bool {
		// By the freezer LSF finds whom to send signals to: QEMU would end of the TERM that gives its job time to clean
		// up.
		return slices.Equal(m.controllers, []string{"freezer"})
	})
	for _, m := range p.cgroups {
		group := lsfPath.FindStringSubmatch(m.path)
		if group == nil {
			continue
		}
		dir := m.dir(files, group[1])
		switch {
		case dir == "":
			return farm.Allotment{}, hidden(group[1])
		case !rootsOwn(files, dir):
			return farm.Allotment{},
				strangeJob("control group " + group[1] +
					" is named as one of LSF's, and root alone could not have made it")
		case group[2] != at[1]:
			return farm.Allotment{},
				strangeJob("its control groups are of job " + group[2] + " and its res of job " + at[1])
		}
	}
	var err error
	a.CPUs, a.Memory, a.Cgroups, err = p.confined(files, func(at string) string {
		if m := lsfPath.FindStringSubmatch(at); m != nil {
			return m[1]
		}
		return ""
	})
	return a, err
}

var (
	lsfFile = regexp.MustCompile(`/\.lsbatch/\d+\.(\d+)(?:\.(\d+))?$`)
	// lsfPath is /lsf/CLUSTER/job.JOB.PID.TIME; of an element of an array, job.JOB[ELEMENT] or job.JOB_ELEMENT.
	lsfPath = regexp.MustCompile(`^(/lsf/[^/]+/job\.(\d+)(?:[[_]\d+\]?)?(?:\.[^/]*)?)(?:/.*)?$`)
)
