package allotment

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// Running are the jobs that batch systems confine on this host now: for each its CPUs and memory, as far as they are
// limited. These are jobs on the host and those whose task is a VM's wrapper alike. Only Slurm tells so much of jobs
// whose processes never ask us: by their control groups, which are there from a job's first process to its last. counts
// tells of a slurmd's node name, "" where the groups do not name it, whether its jobs are wanted: there may be several
// on a host.
func Running(files fs.FS, counts func(node string) bool) []farm.Allotment {
	found := map[string]farm.Allotment{}
	for _, root := range slurmRoots(files) {
		if !counts(root.node) || !RootsOwn(files, root.dir) {
			continue
		}
		for _, dir := range jobDirs(files, root) {
			at := slurmPath(strings.TrimPrefix(dir, root.mount))
			old, known := found[at.job]
			if at.job == "" || !known && !populated(files, dir) {
				continue
			}
			a := farm.Allotment{System: farm.Slurm, Job: at.job, CPUs: ownCPUs(files, dir),
				Memory: readMemory(files, dir)}
			if known { // version 1 keeps CPUs and memory in trees of their own
				a.CPUs, a.Memory = a.CPUs.Or(old.CPUs), cmp.Or(a.Memory, old.Memory)
			}
			found[at.job] = a
		}
	}
	var all []farm.Allotment
	for _, a := range found {
		all = append(all, a)
	}
	slices.SortFunc(all, func(x, y farm.Allotment) int { return strings.Compare(x.Job, y.Job) })
	return all
}

// Confines reports whether a batch system confines jobs on this host, so that Running has all of its jobs.
func Confines(files fs.FS, counts func(node string) bool) bool {
	return slices.ContainsFunc(slurmRoots(files), func(r slurmRoot) bool {
		return counts(r.node) &&
			RootsOwn(files, r.dir)
	})
}

// slurmRoot is a directory that Slurm keeps jobs in, and the hierarchy that it is in.
type slurmRoot struct{ mount, dir, node string }

// slurmRoots looks at the places where slurmd makes its groups: /slurm or /slurm_NODE of a hierarchy of version 1,
// slurmstepd.scope or NODE_slurmstepd.scope of version 2, in the slice that systemd keeps services in.
func slurmRoots(files fs.FS) []slurmRoot {
	var roots []slurmRoot
	add := func(mount, parent string, form *lazyregexp.Regexp) {
		entries, _ := fs.ReadDir(files, parent)
		for _, e := range entries {
			if m := form.FindStringSubmatch(e.Name()); m != nil && e.IsDir() {
				roots = append(roots, slurmRoot{mount, path.Join(parent, e.Name()), m[1]})
			}
		}
	}
	for _, controller := range []string{"cpuset", "memory"} {
		mount := path.Join(cgroupRoot, controller)
		add(mount, mount, slurmRootV1)
	}
	for _, mount := range []string{cgroupRoot, path.Join(cgroupRoot, "unified")} {
		add(mount, path.Join(mount, "system.slice"), slurmRootV2)
	}
	return roots
}

var (
	slurmRootV1 = lazyregexp.New(`^slurm(?:_(.+))?$`)
	slurmRootV2 = lazyregexp.New(`^(?:(.+)_)?slurmstepd\.scope$`)
)

// jobDirs are the directories of jobs; in version 1 they lie in one of their user.
func jobDirs(files fs.FS, root slurmRoot) []string {
	var dirs []string
	entries, _ := fs.ReadDir(files, root.dir)
	for _, e := range entries {
		dir := path.Join(root.dir, e.Name())
		switch {
		case !e.IsDir():
		case strings.HasPrefix(e.Name(), "job_"):
			dirs = append(dirs, dir)
		case strings.HasPrefix(e.Name(), "uid_") && RootsOwn(files, dir):
			inner, _ := fs.ReadDir(files, dir)
			for _, job := range inner {
				if job.IsDir() && strings.HasPrefix(job.Name(), "job_") {
					dirs = append(dirs, path.Join(dir, job.Name()))
				}
			}
		}
	}
	return dirs
}

// populated reports whether any process is in the group or below it: a slurmstepd that was killed leaves empty ones
// behind for ever.
func populated(files fs.FS, dir string) bool {
	if events, err := fs.ReadFile(files, path.Join(dir, "cgroup.events")); err == nil {
		return slices.Contains(strings.Split(string(events), "\n"), "populated 1")
	}
	some, seen := false, 0
	fs.WalkDir(files, dir, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil
		}
		procs, err := fs.ReadFile(files, path.Join(at, "cgroup.procs"))
		// the job's user owns its steps' groups in version 1, and may make as many as they like in them
		const most = 500
		if seen++; err == nil && len(procs) > 0 || seen > most {
			some = true
			return fs.SkipAll
		}
		return nil
	})
	return some
}

// ownCPUs are those that the group itself is limited to. What it is limited to by those above it is not the job's: a
// job that Slurm does not confine may use all CPUs, and holds none.
func ownCPUs(files fs.FS, dir string) farm.CPUSet {
	text, err := fs.ReadFile(files, path.Join(dir, "cpuset.cpus"))
	if err != nil {
		return farm.CPUSet{}
	}
	set, err := farm.ParseCPUSet(strings.TrimSpace(string(text)))
	if err != nil {
		return farm.CPUSet{}
	}
	return set
}
