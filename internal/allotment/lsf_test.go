package allotment

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

func TestLSF(t *testing.T) {
	const group = "/lsf/c1/job.17.400.1700000000"
	dir := "-- sys/fs/cgroup/memory" + group + "/cgroup.procs --\n-- sys/fs/cgroup/memory" + group +
		"/memory.limit_in_bytes --\n536870912\n"
	sbatchd := person{pid: 10, parent: 1, start: 5, program: "/lsf/etc/sbatchd"}
	res := func(file string) person {
		return person{pid: 15, parent: 10, start: 50, program: "/lsf/etc/res",
			title: "/lsf/etc/res\x00-d\x00/lsf/conf\x00-m\x00n1\x00" + file}
	}
	for name, c := range map[string]struct {
		entries, cgroup string
		people          []person
		want            farm.Allotment
		code            farm.Code
	}{
		"a job": {people: []person{sbatchd, res("/home/u/.lsbatch/1700000000.17")},
			want: farm.Allotment{System: farm.LSF, Job: "17"}},
		"an element": {people: []person{sbatchd, res("/home/u/.lsbatch/1700000000.17.3")},
			want: farm.Allotment{System: farm.LSF, Job: "17[3]"}},
		"confined, and the freezer left alone": {entries: dir,
			cgroup: "5:memory:" + group + "\n4:freezer:" + group + "\n",
			people: []person{sbatchd, res("/home/u/.lsbatch/1700000000.17")},
			want: farm.Allotment{System: farm.LSF, Job: "17", Memory: 512 << 20,
				Cgroups: []string{"memory" + group}}},
		"another job's group": {entries: dir, cgroup: "5:memory:" + group + "\n",
			people: []person{sbatchd, res("/home/u/.lsbatch/1700000000.18")}, code: CodeStrangeJob},
		"a group not to be seen": {cgroup: "5:memory:" + group + "\n",
			people: []person{sbatchd, res("/home/u/.lsbatch/1700000000.17")}, code: CodeHiddenCgroup},
		"no job's file":            {people: []person{sbatchd, res("/tmp/x")}, code: CodeStrangeJob},
		"lsrun: res without a job": {people: []person{res("/home/u/.lsbatch/1700000000.17")}},
		"a user's res": {people: []person{sbatchd,
			{pid: 15, parent: 10, uid: 1000, start: 50, program: "/home/u/res",
				title: "res\x00/home/u/.lsbatch/1.17"}}},
	} {
		files := parseTree(t, c.entries).people(append(c.people,
			person{pid: 20, parent: 15, uid: 1000, start: 60, program: "/bin/sh", cgroup: c.cgroup})...)
		got, err := of(files, 20)
		if e := new(farm.Error); c.code != "" && (!errors.As(err, &e) || e.Code != c.code) ||
			c.code == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if d := cmp.Diff(c.want, got, cmp.Comparer(farm.CPUSet.Equal)); c.code == "" && d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}
