package allotment

import (
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
)

// TestExternOf are hosts on which a step looks for the extern step of its allocation.
func TestExternOf(t *testing.T) {
	const scope = "/system.slice/slurmstepd.scope/"
	const other = "/system.slice/b_slurmstepd.scope/"
	stepd := person{pid: 20, parent: 1, start: 200, program: "/usr/sbin/slurmstepd", title: "slurmstepd: [5.extern]"}
	task := person{pid: 21, parent: 20, start: 210, program: "/usr/bin/sleep", title: "sleep 100000000",
		cgroup: "0::" + scope + "job_5/step_extern/user/task_special\n"}
	change := func(p person, f func(p *person)) person { f(&p); return p }
	step := farm.Allotment{System: farm.Slurm, Job: "5", Step: "0",
		Cgroups: []string{"system.slice/slurmstepd.scope/job_5/step_0/user/task_0"}}
	for name, c := range map[string]struct {
		people []person
		want   bool
	}{
		"its extern step": {[]person{stepd, task}, true},
		"none":            {nil, false},
		"of another job": {[]person{change(stepd, func(p *person) { p.title = "slurmstepd: [6.extern]" }),
			change(task, func(p *person) {
				p.cgroup = "0::" + scope + "job_6/step_extern/user/task_special\n"
			})}, false},
		"another step of the job": {[]person{change(stepd, func(p *person) { p.title = "slurmstepd: [5.1]" }),
			change(task, func(p *person) { p.cgroup = "0::" + scope + "job_5/step_1/user/task_0\n" })}, false},
		"of another cluster's job of this number": {[]person{stepd,
			change(task, func(p *person) {
				p.cgroup = "0::" + other + "job_5/step_extern/user/task_special\n"
			})}, false},
		"a user's process of that title": {[]person{
			change(stepd, func(p *person) { p.uid, p.program = 1000, "/home/u/slurmstepd" }), task}, false},
		"a login that was put into the step": {[]person{stepd, change(task, func(p *person) { p.parent = 1 })}, false},
		"a step whose task has ended":        {[]person{stepd}, false},
	} {
		files := parseTree(t, "").people(append(c.people, person{pid: 1, program: "/sbin/init"})...)
		for _, root := range []string{scope, other} {
			for _, group := range []string{"job_5/step_extern/user/task_special", "job_5", "job_5/step_1/user/task_0",
				"job_6/step_extern/user/task_special", "job_6"} {
				files.MapFS["sys/fs/cgroup"+root+group+"/cgroup.procs"] = &fstest.MapFile{Mode: 0o644,
					Sys: &syscall.Stat_t{}}
			}
		}
		got, ok := ExternOf(files, step)
		if ok != c.want || ok && got != (SlurmExtern{Daemon: 20, Task: 21}) {
			t.Errorf("%s: %+v %v", name, got, ok)
		}
	}
}
