package allotment

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
)

// fuzzedTrees are hosts with a job of each batch system, and a process of it.
func fuzzedTrees(t *testing.T) map[farm.BatchSystem]struct {
	files tree
	pid   int
} {
	t.Helper()
	const pbsGroup, lsfGroup = "/pbs_jobs.service/jobid/7[2].head", "/lsf/c1/job.17.400.1700000000"
	limited := func(group string) string {
		return "-- sys/fs/cgroup/memory" + group + "/cgroup.procs --\n-- sys/fs/cgroup/memory" + group +
			"/memory.limit_in_bytes --\n536870912\n"
	}
	return map[farm.BatchSystem]struct {
		files tree
		pid   int
	}{
		farm.HTCondor: {readTree(t, condorTree), condorJobPID},
		farm.PBS:      {pbsTree(t, pbsRecorded+limited(pbsGroup), "5:memory:"+pbsGroup+"\n"), 30},
		farm.LSF: {parseTree(t, limited(lsfGroup)).people(
			person{pid: 10, parent: 1, start: 5, program: "/lsf/etc/sbatchd"},
			person{pid: 15, parent: 10, start: 50, program: "/lsf/etc/res",
				title: "/lsf/etc/res\x00-d\x00/lsf/conf\x00-m\x00n1\x00/home/u/.lsbatch/1700000000.17"},
			person{pid: 20, parent: 15, uid: 1000, start: 60, program: "/bin/sh",
				cgroup: "5:memory:" + lsfGroup + "\n"}), 20},
	}
}

// FuzzOf: whatever one file says that is read on the way, a process is of no job, of one that makes sense, or refused.
func FuzzOf(f *testing.F) {
	systems := []farm.BatchSystem{farm.HTCondor, farm.PBS, farm.LSF}
	for i := range systems {
		for file := range 10 {
			for _, text := range []string{"", "-1\n", "0::/../..\n", "{\"cpus\": -1}", "Cpus = 99999999999\n",
				"9 (a) b) S 9 9\n", "PPid:\t0\nUid:\t0\t0\t0\t0\n"} {
				f.Add(byte(i), uint16(file), text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, system byte, file uint16, text string) {
		host := fuzzedTrees(t)[systems[int(system)%len(systems)]]
		names := slices.Sorted(maps.Keys(host.files.MapFS))
		name := names[int(file)%len(names)]
		changed := *host.files.MapFS[name]
		changed.Data = []byte(text)
		files := tree{fstest.MapFS(maps.Clone(host.files.MapFS)), host.files.links}
		files.MapFS[name] = &changed
		a, err := of(files, host.pid)
		if err != nil || a.System == "" {
			return
		}
		if a.Job == "" || strings.ContainsAny(a.Job, "/\n") || a.Slots < 0 {
			t.Errorf("%s is %q: %+v", name, text, a)
		}
		for _, group := range a.Cgroups {
			if path.IsAbs(group) || path.Clean(group) != group || strings.HasPrefix(group, "..") {
				t.Errorf("%s is %q: control group %q", name, text, group)
			}
		}
	})
}
