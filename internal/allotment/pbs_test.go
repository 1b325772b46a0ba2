package allotment

import (
	"errors"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// job is a tree with a job's processes: wrapper 30 below shell 20, which mom 10 started; and what root wrote.
func pbsTree(t *testing.T, entries, cgroup string) tree {
	t.Helper()
	files := parseTree(t, entries)
	files.MapFS["proc/stat"] = &fstest.MapFile{Data: []byte("cpu 1 2\nbtime 1700000000\n")}
	return files.people(
		person{pid: 1, program: "/sbin/init"},
		person{pid: 10, parent: 1, start: 5, program: "/opt/pbs/sbin/pbs_mom", title: "/opt/pbs/sbin/pbs_mom"},
		person{pid: 20, parent: 10, uid: 1000, start: 6000, program: "/bin/bash", title: "-bash", cgroup: cgroup},
		person{pid: 30, parent: 20, uid: 1000, start: 6100, program: "/usr/bin/grange", cgroup: cgroup})
}

const pbsRecorded = "-- run/grange/pbs/20 --\n" +
	`{"job": "7[2].head", "start": 6000, "queue": "long", "account": "atlas", "cpus": 2, "memory": 1073741824, "walltime": 60}` + "\n"

func TestPBS(t *testing.T) {
	boot := time.Unix(1700000000, 0)
	want := farm.Allotment{System: farm.PBS, Job: "7[2].head", Slots: 2, Memory: 1 << 30, Queue: "long",
		Account: "atlas", Ends: boot.Add(2 * time.Minute)}
	confined := want
	confined.Memory, confined.CPUs = 512<<20, farm.NewCPUSet(1)
	confined.Cgroups = []string{"memory/pbs_jobs.service/jobid/7[2].head", "cpuset/pbs_jobs.service/jobid/7[2].head"}
	const dir = "/pbs_jobs.service/jobid/7[2].head"
	groups := "-- sys/fs/cgroup/memory" + dir + "/cgroup.procs --\n-- sys/fs/cgroup/memory" + dir +
		"/memory.limit_in_bytes --\n536870912\n" + "-- sys/fs/cgroup/cpuset" + dir +
		"/cgroup.procs --\n-- sys/fs/cgroup/cpuset" + dir + "/cpuset.cpus --\n1\n"
	for name, c := range map[string]struct {
		entries, cgroup string
		want            farm.Allotment
		code            farm.Code
	}{
		"recorded": {entries: pbsRecorded, cgroup: "0::/\n", want: want},
		"confined": {entries: pbsRecorded + groups, cgroup: "5:memory:" + dir + "\n4:cpuset:" + dir + "\n0::/\n",
			want: confined},
		"no hook": {cgroup: "0::/\n", code: CodeStrangeJob},
		"a stale record": {entries: "-- run/grange/pbs/20 --\n" + `{"job": "6.head", "start": 4000}`,
			code: CodeStrangeJob},
		"a user's record": {entries: "-- run/grange/pbs/20 uid=1000 --\n" + `{"job": "6.head", "start": 6000}`,
			code: CodeStrangeJob},
		"all may write": {entries: "-- run/grange/pbs/ mode=1777 --\n" + pbsRecorded, code: CodeStrangeJob},
		"garbage":       {entries: "-- run/grange/pbs/20 --\nno json\n", code: CodeStrangeJob},
		"another's group": {entries: pbsRecorded + groups, cgroup: "5:memory:/pbs_jobs.service/jobid/8.head\n",
			code: CodeHiddenCgroup},
	} {
		files := pbsTree(t, c.entries, c.cgroup)
		for _, pid := range []int{20, 30} {
			got, err := of(files, pid)
			if e := new(farm.Error); c.code != "" && (!errors.As(err, &e) || e.Code != c.code) ||
				c.code == "" && err != nil {
				t.Errorf("%s, process %d: %v", name, pid, err)
			} else if d := cmp.Diff(c.want, got, cmp.Comparer(farm.CPUSet.Equal)); c.code == "" && d != "" {
				t.Errorf("%s, process %d:\n%s", name, pid, d)
			}
		}
	}
}

// A program that a user calls pbs_mom, or that has root's rights by its mode, is none.
func TestNoMom(t *testing.T) {
	for name, mom := range map[string]person{
		"a user's": {pid: 10, parent: 1, uid: 1000, start: 5, program: "/home/u/pbs_mom"},
		"set-uid":  {pid: 10, parent: 1, start: 5, program: "/opt/pbs_mom", setuid: true},
	} {
		files := parseTree(t, pbsRecorded).people(mom,
			person{pid: 20, parent: 10, uid: 1000, start: 6000, program: "/bin/sh"})
		if got, err := of(files, 20); err != nil || got.System != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
