package allotment

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

func TestSlurm(t *testing.T) {
	v1 := func(step string, controllers ...string) (dirs []string) {
		for _, c := range controllers {
			dirs = append(dirs, c+"/slurm_bn1/uid_65534/job_1/"+step)
		}
		return dirs
	}
	for file, c := range map[string]struct {
		pid  int
		want farm.Allotment
	}{
		"slurm-22.05-v1.txt": {4343,
			farm.Allotment{System: farm.Slurm, Job: "1", Step: "batch", CPUs: farm.NewCPUSet(0), Memory: 300 * farm.MiB,
				Cgroups: []string{v1("step_batch", "freezer")[0], v1("step_batch/task_0", "memory")[0],
					v1("step_batch", "cpuset")[0], v1("step_batch/task_0", "cpuacct")[0]}}},
		"slurm-22.05-linuxproc.txt": {7080, farm.Allotment{System: farm.Slurm, Job: "1", Step: "batch"}},
		// By hand, after src/plugins/cgroup/v2 of 23.11 and its documentation: no unified host was at hand.
		"slurm-23.11-v2.txt": {900, farm.Allotment{System: farm.Slurm, Job: "42", Step: "batch",
			CPUs: farm.NewCPUSet(2, 3), Memory: 2000 * farm.MiB,
			Cgroups: []string{"system.slice/slurmstepd.scope/job_42/step_batch/user/task_0"}}},
	} {
		got, err := of(readTree(t, "testdata/"+file), c.pid)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if diff := cmp.Diff(c.want, got, cmp.Comparer(farm.CPUSet.Equal)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// TestSlurmThreats are hosts on which a user tries to pass for a job, or is in an odd one.
func TestSlurmThreats(t *testing.T) {
	const user = 1000
	init := person{pid: 1, program: "/sbin/init"}
	stepd := person{pid: 20, parent: 1, start: 200, program: "/usr/sbin/slurmstepd", title: "slurmstepd: [5.batch]"}
	shell := person{pid: 30, parent: 20, uid: user, start: 300, program: "/bin/bash"}
	in := func(p person, group string) person { p.cgroup = group; return p }
	under := func(p person, parent int) person { p.parent = parent; return p }
	type group struct {
		dir string
		uid uint32
	}
	const scope = "/system.slice/slurmstepd.scope/"
	const own = "/user.slice/user-1000.slice/user@1000.service"
	for name, c := range map[string]struct {
		people []person
		groups []group
		job    string
		step   string
		refuse farm.Code
	}{
		"a job": {[]person{init, stepd, shell}, nil, "5", "batch", ""},
		"a user's own slurmstepd": {[]person{init,
			{pid: 20, parent: 1, uid: user, start: 200, program: "/home/u/slurmstepd", title: "slurmstepd: [5.batch]"},
			shell}, nil, "", "", ""},
		"sudo by the name of slurmstepd": {[]person{init,
			{pid: 20, parent: 1, start: 200, program: "/usr/bin/sudo", title: "slurmstepd: [5.batch]", setuid: true},
			shell}, nil, "", "", ""},
		"a daemon left over, without groups": {[]person{init, under(shell, 1)}, nil, "", "", ""},
		"a daemon left over, and its parent's number is a slurmstepd of another": {
			[]person{init, {pid: 20, parent: 1, start: 900, program: "/usr/sbin/slurmstepd",
				title: "slurmstepd: [9.0]"}, shell}, nil, "", "", ""},
		"a daemon that left its parents, still in its job's groups": {
			[]person{init, in(under(shell, 1), "0::"+scope+"job_5/step_3/user/task_1\n")},
			[]group{{scope + "job_5/step_3/user/task_1", 0}}, "5", "3", ""},
		"a slurmd that has not told its step yet": {[]person{init,
			{pid: 20, parent: 1, start: 200, program: "/usr/sbin/slurmstepd", title: "/usr/sbin/slurmstepd"}, shell},
			nil, "", "", ""},
		"a step of a heterogeneous job": {[]person{init,
			{pid: 20, parent: 1, start: 200, program: "/usr/sbin/slurmstepd", title: "slurmstepd: [7+1.0]"}, shell},
			nil, "7", "0", ""},
		"a job started from a job": {[]person{init, stepd,
			{pid: 25, parent: 20, uid: user, start: 250, program: "/usr/bin/srun"},
			{pid: 40, parent: 1, start: 260, program: "/usr/sbin/slurmstepd", title: "slurmstepd: [6.0]"},
			under(shell, 40)}, nil, "6", "0", ""},
		"look-alike groups in a user's own subtree": {[]person{init,
			in(under(shell, 1), "0::"+own+"/slurmstepd.scope/job_7/step_0\n")},
			[]group{{own, user}, {own + "/slurmstepd.scope", user}, {own + "/slurmstepd.scope/job_7", user},
				{own + "/slurmstepd.scope/job_7/step_0", user}}, "", "", CodeStrangeJob},
		"look-alike groups below a job's own": {[]person{init, stepd,
			in(shell, "0::"+scope+"job_5/step_batch/user/task_0/slurmstepd.scope/job_7/step_0\n")},
			[]group{{scope + "job_5/step_batch", user},
				{scope + "job_5/step_batch/user/task_0/slurmstepd.scope/job_7/step_0", user}}, "5", "batch", ""},
		"a container of the job's, its runtime's group below the job's": {[]person{init, stepd,
			in(shell, "0::"+scope+"job_5/step_batch/user/task_0/c\n")},
			[]group{{scope + "job_5/step_batch/user/task_0/c", user}}, "5", "batch", ""},
		"a group that is not to be seen": {[]person{init, stepd,
			in(shell, "0::"+scope+"job_5/step_batch/user/task_0\n")}, nil, "", "", CodeHiddenCgroup},
		"beyond our cgroup namespace": {[]person{init, stepd,
			in(shell, "0::/../.."+scope+"job_5/step_batch/user/task_0\n")}, nil, "", "", CodeHiddenCgroup},
		"two jobs at once": {[]person{init, stepd,
			in(shell, "3:cpuset:/slurm/uid_1000/job_5/step_0\n2:memory:/slurm/uid_1000/job_6/step_0\n")},
			[]group{{"/cpuset/slurm/uid_1000/job_5/step_0", 0}, {"/memory/slurm/uid_1000/job_6/step_0", 0}}, "", "",
			CodeStrangeJob},
		"groups of another job than its slurmstepd": {[]person{init, stepd, in(shell, "0::"+scope+"job_6/step_0\n")},
			[]group{{scope + "job_6/step_0", 0}}, "", "", CodeStrangeJob},
		"several controllers in one hierarchy": {[]person{init,
			in(under(shell, 1), "3:cpu,cpuacct:/slurm/uid_1000/job_5/step_0\n1:name=systemd:/user.slice\n")},
			[]group{{"/cpu,cpuacct/slurm/uid_1000/job_5/step_0", 0}}, "5", "0", ""},
		"a group below no job": {[]person{init, in(under(shell, 1), "0::"+scope+"system\n")},
			[]group{{scope + "system", 0}}, "", "", ""},
	} {
		files := parseTree(t, "").people(c.people...)
		for _, g := range c.groups {
			files.MapFS[strings.TrimPrefix(cgroupRoot+g.dir, "/")] = &fstest.MapFile{Mode: 0o755 | 1<<31,
				Sys: &syscall.Stat_t{Uid: g.uid}}
			files.MapFS[cgroupRoot+g.dir+"/cgroup.procs"] = &fstest.MapFile{Mode: 0o644}
			for dir := g.dir; dir != ""; dir = dir[:strings.LastIndex(dir, "/")] { // as the kernel, on the way up
				files.MapFS[cgroupRoot+dir+"/cgroup.procs"] = &fstest.MapFile{Mode: 0o644}
			}
		}
		got, err := of(files, 30)
		var refused *farm.Error
		if errors.As(err, &refused); (refused == nil) != (c.refuse == "") || refused != nil &&
			refused.Code != c.refuse {
			t.Errorf("%s: error %v, want code %q", name, err, c.refuse)
		}
		if err == nil && (got.Job != c.job || got.Step != c.step) {
			t.Errorf("%s: job %q step %q, want %q %q", name, got.Job, got.Step, c.job, c.step)
		}
	}
}

// FuzzSlurmPath holds that a path is either taken apart whole or not at all.
func FuzzSlurmPath(f *testing.F) {
	f.Add("/slurm_n1/uid_1/job_5/step_batch/task_0")
	f.Add("/system.slice/n1_slurmstepd.scope/job_5/step_extern/user/task_special")
	f.Add("/slurm/uid_1/job_5/../job_6")
	f.Fuzz(func(t *testing.T, at string) {
		p := slurmPath(at)
		if p.job == "" {
			return
		}
		if strings.Contains(at, "..") && strings.Contains(at, "/../") || !strings.HasPrefix(at, p.top) ||
			!strings.HasSuffix(p.top, "/job_"+p.job) {
			t.Errorf("%q: %+v", at, p)
		}
		if p.step != "" && !strings.HasPrefix(at, fmt.Sprintf("%s/step_%s", p.top, p.step)) {
			t.Errorf("%q: %+v", at, p)
		}
	})
}
