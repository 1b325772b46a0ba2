package allotment

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

const recordedGridEngine = "testdata/gridengine-8.1.9.txt"

func TestGridEngine(t *testing.T) {
	files := readTree(t, recordedGridEngine)
	for pid, want := range map[int]farm.Allotment{
		9468: {System: farm.GridEngine, Job: "5", Slots: 2, Memory: 3 * farm.GiB, Account: "atlas", Queue: "vm.q",
			Group: 65405},
		9469: {System: farm.GridEngine, Job: "6.3", Slots: 1, Queue: "metal.q", Group: 65406},
		9375: {}, // a shepherd itself is no job
	} {
		got, err := of(files, pid)
		if err != nil {
			t.Errorf("%d: %v", pid, err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(farm.CPUSet.Equal)); diff != "" {
			t.Errorf("%d (-want +got):\n%s", pid, diff)
		}
	}
}

// TestGridEngineThreats change one thing each of a recorded host. A job of Grid Engine whose limits cannot be told does
// not run.
func TestGridEngineThreats(t *testing.T) {
	const dir = "var/spool/gridengine/execd/bn1/active_jobs/5.1"
	edit := func(old, new string) func(tree) {
		return func(files tree) {
			f := files.MapFS[dir+"/config"]
			if !strings.Contains(string(f.Data), old) {
				t.Fatalf("no %q in the configuration", old)
			}
			f.Data = []byte(strings.Replace(string(f.Data), old, new, 1))
		}
	}
	for name, c := range map[string]struct {
		change func(tree)
		want   farm.Allotment
		denied bool
	}{
		"the user's configuration": {change: func(
			files tree) {
			files.MapFS[dir+"/config"].Sys.(*syscall.Stat_t).Uid = 65534
		}, denied: true},
		"the user's directory": {change: func(files tree) { files.MapFS[dir].Sys.(*syscall.Stat_t).Uid = 65534 },
			denied: true},
		"anybody's directory": {change: func(files tree) { files.MapFS[dir].Mode = fs.ModeDir | 0o777 },
			denied: true},
		"no configuration":    {change: func(files tree) { delete(files.MapFS, dir+"/config") }, denied: true},
		"no directory":        {change: func(files tree) { delete(files.links, "proc/9375/cwd") }, denied: true},
		"no job":              {change: edit("job_id=5", "job_id="), denied: true},
		"a size that is none": {change: edit("h_vmem=1.5G", "h_vmem=lots"), denied: true},
		"another job's group": {change: edit("add_grp_id=65405", "add_grp_id=65406"), denied: true},
		"a user's own shepherd": {change: func(files tree) {
			files.MapFS["proc/9375/status"].Data = []byte("PPid:\t1\nUid:\t65534 65534 65534 65534\n")
		}},
		"a setuid shepherd": {change: func(files tree) { files.MapFS["proc/9375/exe"].Mode |= fs.ModeSetuid }},
		"no tracking": {change: edit("add_grp_id=65405", "add_grp_id=0"),
			want: farm.Allotment{System: farm.GridEngine, Job: "5", Slots: 2, Memory: 3 * farm.GiB, Account: "atlas",
				Queue: "vm.q"}},
		"memory per job, held for the wrapper": {change: func(files tree) {
			edit("h_vmem=1.5G", "h_vmem=INFINITY\ngrange_h_vmem=1500m")(files)
			edit("h_vmem_is_consumable_job=0", "h_vmem_is_consumable_job=1")(files)
		}, want: farm.Allotment{System: farm.GridEngine, Job: "5", Slots: 2, Memory: 1_500_000_000, Account: "atlas",
			Queue: "vm.q", Group: 65405}},
		"a line in the name of a file": {change: edit("stderr_path=/home/ann/e",
			"stderr_path=/home/ann/e\nh_vmem=INFINITY"), denied: true},
		"another job's configuration": {change: edit("job_id=5", "job_id=6"), denied: true},
		"a project and a task": {change: func(files tree) {
			edit("acct_project=none", "acct_project=cms\npe_task_id=1.bn1")(files)
		}, want: farm.Allotment{System: farm.GridEngine, Job: "5", Step: "1.bn1", Slots: 2, Memory: 3 * farm.GiB,
			Account: "cms", Queue: "vm.q", Group: 65405}},
	} {
		files := readTree(t, recordedGridEngine)
		c.change(files)
		got, err := of(files, 9468)
		if e := new(farm.Error); (err != nil) != c.denied ||
			c.denied && (!errors.As(err, &e) || e.Code != CodeStrangeJob) {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got, cmp.Comparer(farm.CPUSet.Equal)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestGridEngineOutsideTheTree: a process of job 5 that became a child of init, as a daemon does, is of job 5 still.
func TestGridEngineOutsideTheTree(t *testing.T) {
	const dir = "var/spool/gridengine/execd/bn1/active_jobs/5.1"
	for name, c := range map[string]struct {
		change       func(tree)
		none, denied bool
	}{
		"a daemon of the job": {change: func(tree) {}},
		"in no job's group": {change: func(f tree) {
			f.MapFS["proc/9999/status"].Data = []byte("PPid:\t1\nUid:\t65534 0 0 0\nGroups:\t100 65534\n")
		}, none: true},
		"of another user": {change: func(f tree) {
			f.MapFS["proc/9999/status"].Data = []byte("PPid:\t1\nUid:\t1000 0 0 0\nGroups:\t65405\n")
		}, denied: true},
		"in two jobs' groups": {change: func(f tree) {
			f.MapFS["proc/9999/status"].Data = []byte("PPid:\t1\nUid:\t65534 0 0 0\nGroups:\t65405 65406\n")
		}, denied: true},
		"left by an earlier job": {change: func(
			f tree) {
			f.MapFS["proc/9999/stat"].Data = []byte(statOf("2453000"))
		}, denied: true},
		"the job has ended": {change: func(f tree) { f.MapFS[dir+"/job_pid"].Data = []byte("77777\n") },
			denied: true},
		"the job's number is reused": {change: func(f tree) { f.MapFS[dir+"/job_pid"].Data = []byte("9469\n") },
			denied: true},
		"no process of the job": {change: func(f tree) { delete(f.MapFS, dir+"/job_pid") }, denied: true},
		"the user's directory": {change: func(f tree) { f.MapFS[dir].Sys.(*syscall.Stat_t).Uid = 65534 },
			denied: true},
		"a twisted configuration": {change: func(
			f tree) {
			f.MapFS[dir+"/config"].Data = append(f.MapFS[dir+"/config"].Data, "job_id=6\n"...)
		},
			denied: true},
		"the user's own shepherd": {change: func(
			f tree) {
			f.MapFS["proc/9375/status"].Data = []byte("PPid:\t1\nUid:\t65534 0 0 0\n")
		}, none: true},
		"a setuid shepherd": {change: func(f tree) { f.MapFS["proc/9375/exe"].Mode |= fs.ModeSetuid },
			none: true},
	} {
		files := readTree(t, recordedGridEngine)
		files.MapFS["proc/9999/status"] = &fstest.MapFile{Data: []byte(
			"PPid:\t1\nUid:\t65534 65534 65534 65534\nGroups:\t65405 65534\n"), Mode: 0o444}
		files.MapFS["proc/9999/stat"] = &fstest.MapFile{Data: []byte(statOf("2454100")), Mode: 0o444}
		files.MapFS["proc/9999/cgroup"] = &fstest.MapFile{Data: []byte("0::/\n"), Mode: 0o444}
		files.MapFS[dir+"/job_pid"] = &fstest.MapFile{Data: []byte("9468\n"), Mode: 0o444,
			Sys: &syscall.Stat_t{Uid: 104}}
		c.change(files)
		got, err := of(files, 9999)
		if e := new(farm.Error); (err != nil) != c.denied ||
			c.denied && (!errors.As(err, &e) || e.Code != CodeStrangeJob) {
			t.Errorf("%s: %v", name, err)
		}
		if want := map[bool]string{true: "", false: "5"}[c.none || c.denied]; got.Job != want {
			t.Errorf("%s: it is of job %q", name, got.Job)
		}
	}
}

// statOf is a process that started at this tick.
func statOf(start string) string {
	return "9999 (x) S 1 9999 9999 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 " + start + " 0 0\n"
}

func FuzzGridEngineSize(f *testing.F) {
	for _, seed := range []string{"2G", "1.5g", "INFINITY", "NONE", "", "1e3", "-1", "K", "9E99G", "nan"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if size, err := GridEngineSize(text); err == nil && size > 1<<60 {
			t.Errorf("%q is %d bytes", text, size)
		}
	})
}
