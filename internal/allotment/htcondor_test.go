package allotment

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

const (
	condorTree    = "testdata/htcondor-23.9-v1.txt"
	condorJobPID  = 30258
	condorStarter = "proc/30064/"
	condorGroup   = "sys/fs/cgroup/memory/htcondor/condor_var_lib_condor_execute_slot1_1@ex1"
)

func condorWant() farm.Allotment {
	a := farm.Allotment{System: farm.HTCondor, Job: "ex1#7.0", Slots: 2, Memory: 384 * farm.MiB, Account: "group_x",
		Ends: time.Unix(1795247341+60, 0)}
	for _, c := range []string{"freezer", "devices", "memory", "cpuacct"} {
		a.Cgroups = append(a.Cgroups, c+"/htcondor/condor_var_lib_condor_execute_slot1_1@ex1")
	}
	return a
}

func TestHTCondor(t *testing.T) {
	got, err := of(readTree(t, condorTree), condorJobPID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(condorWant(), got, cmp.Comparer(farm.CPUSet.Equal)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHTCondorThreats are what a job's user may do to the files in their own scratch directory, and what else may be
// odd.
func TestHTCondorThreats(t *testing.T) {
	const machine, job = condorStarter + "cwd/.machine.ad", condorStarter + "cwd/.job.ad"
	replace := func(name, old, new string) func(tree) {
		return func(f tree) {
			text := string(f.MapFS[name].Data)
			if !strings.Contains(text, old) {
				panic(name + " has no " + old)
			}
			f.MapFS[name].Data = []byte(strings.ReplaceAll(text, old, new))
		}
	}
	handed := fstest.MapFile{Mode: fs.ModeDir | 0o755, Sys: &syscall.Stat_t{Uid: 65534}}
	for name, c := range map[string]struct {
		do     func(tree)
		want   func(*farm.Allotment) // nil: it is refused
		refuse string
	}{
		"a slot's ad of the user's own": {do: func(f tree) { f.MapFS[machine].Sys = &syscall.Stat_t{Uid: 65534} },
			refuse: "belongs to user 65534"},
		"one that another user made": {do: func(f tree) { f.MapFS[machine].Sys = &syscall.Stat_t{Uid: 1001} },
			refuse: "belongs to user 1001"},
		"a second name of another file": {do: func(f tree) {
			f.MapFS[machine].Sys = &syscall.Stat_t{Uid: 100,
				Nlink: 2}
		}, refuse: "not an ordinary file"},
		"a slot's ad that all can write": {do: func(f tree) { f.MapFS[machine].Mode = 0o666 },
			refuse: "others can write"},
		"a pipe": {do: func(f tree) { f.MapFS[machine].Mode = fs.ModeNamedPipe | 0o644 },
			refuse: "not an ordinary file"},
		"no slot's ad": {do: func(f tree) { delete(f.MapFS, machine) }, refuse: "not exist"},
		"the ad of another slot": {do: replace(machine, `Name = "slot1_1@ex1"`, `Name = "slot1_2@ex1"`),
			refuse: "slot1_2@ex1"},
		"an old ad of the same slot": {do: func(
			f tree) {
			f.MapFS[machine].ModTime = f.MapFS[machine].ModTime.Add(-time.Minute)
		}, refuse: "older"},
		"an ad of another claim": {do: replace(machine, "#1795245133#", "#1795245134#"),
			refuse: "different claims"},
		"the job's ad as that of a slot": {do: func(f tree) { f.MapFS[machine] = f.MapFS[job] },
			refuse: "ad of a job"},
		"the ad of another job": {do: replace(job, `RemoteHost = "slot1_1@ex1"`,
			`RemoteHost = "slot1_3@ex1"`), refuse: "slot1_3@ex1"},
		"an ad that is none": {do: func(f tree) { f.MapFS[machine].Data = []byte("Cpus\n") },
			refuse: "invalid ClassAd attribute"},
		"a slot without CPUs": {do: replace(machine, "\nCpus = 2\n", "\nCpus = 0\n"), refuse: "0 CPUs"},
		"a slot of any memory": {do: replace(machine, "\nMemory = 384\n", "\nMemory = undefined\n"),
			refuse: "undefined"},
		"a starter without a slot": {do: replace(condorStarter+"cmdline", "slot1_1", "../x"),
			refuse: "names no slot"},
		"a starter of another slot": {do: replace(condorStarter+"cmdline", "slot1_1", "slot1_4"),
			refuse: "its control group is of slot1_1"},
		"a user's own starter": {do: replace(condorStarter+"status", "Uid:\t0", "Uid:\t65534"),
			refuse: "below no condor_starter"},
		"a job that left its parents": {do: replace("proc/30258/status", "PPid:\t30064", "PPid:\t1"),
			refuse: "below no condor_starter"},
		"groups that a user was handed": {do: func(
			f tree) {
			f.MapFS[condorGroup[:strings.LastIndex(condorGroup, "/")]] = &handed
		}, refuse: "root alone"},
		"a starter of root's, files as well": {do: func(
			f tree) {
			f.MapFS[machine].Sys = &syscall.Stat_t{}
			f.MapFS[job].Sys = &syscall.Stat_t{}
		},
			want: func(*farm.Allotment) {}},
		"CONDOR_IDS": {do: func(f tree) {
			f.MapFS[machine].Sys, f.MapFS[job].Sys = &syscall.Stat_t{Uid: 777}, &syscall.Stat_t{Uid: 777}
			replace("proc/32183/status", "Uid:\t0\t100", "Uid:\t0\t777")(f)
		}, want: func(*farm.Allotment) {}},
		"a user without a group": {do: replace(machine, `AccountingGroup = "group_x.nobody@lab.test"`,
			`AccountingGroup = "nobody@lab.test"`),
			want: func(a *farm.Allotment) { a.Account = "" }},
		"a limit of the group alone": {do: func(f tree) {
			f.MapFS[condorGroup+"/memory.limit_in_bytes"].Data = []byte(
				"209715200\n")
		}, want: func(a *farm.Allotment) { a.Memory = 200 * farm.MiB }},
		"no time limit": {do: replace(job, "AllowedExecuteDuration = 60\n", ""),
			want: func(a *farm.Allotment) { a.Ends = time.Time{} }},
		"a startd that ends": {do: replace(machine, "TimeToLive = 2147483647", "TimeToLive = 30"),
			want: func(a *farm.Allotment) { a.Ends = time.Unix(1795247341+30, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := readTree(t, condorTree)
			c.do(f)
			got, err := of(f, condorJobPID)
			if c.want != nil {
				want := condorWant()
				c.want(&want)
				if diff := cmp.Diff(want, got, cmp.Comparer(farm.CPUSet.Equal)); diff != "" || err != nil {
					t.Errorf("%v\n(-want +got):\n%s", err, diff)
				}
				return
			}
			if e := new(farm.Error); !errors.As(err, &e) || e.Code != CodeStrangeJob ||
				!strings.Contains(e.Message, c.refuse) {
				t.Errorf("%+v, %v; wanted a refusal that says %q", got, err, c.refuse)
			}
		})
	}
}

// TestHTCondorWithoutGroups: HTCondor tracks by parentage and by the user where control groups cannot be used.
func TestHTCondorWithoutGroups(t *testing.T) {
	f := readTree(t, condorTree)
	f.MapFS["proc/30258/cgroup"].Data = []byte("0::/\n")
	want := condorWant()
	want.Cgroups = nil
	got, err := of(f, condorJobPID)
	if diff := cmp.Diff(want, got, cmp.Comparer(farm.CPUSet.Equal)); diff != "" || err != nil {
		t.Errorf("%v\n(-want +got):\n%s", err, diff)
	}
	f.MapFS["proc/30258/status"].Data = []byte(strings.ReplaceAll(string(f.MapFS["proc/30258/status"].Data),
		"PPid:\t30064", "PPid:\t1"))
	if got, err := of(f, condorJobPID); err != nil || got.System != "" {
		t.Errorf("a process that left its starter: %+v, %v", got, err)
	}
}

// TestPipeDoesNotHold: whoever opens a pipe that nobody writes waits for ever.
func TestPipeDoesNotHold(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"pipe": func(path string) error { return syscall.Mkfifo(path, 0o644) },
		"link": func(path string) error { return os.Symlink("/etc/passwd", path) },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if _, _, err := readForeign(Host(), path[1:], func(uint32) bool { return true }); err == nil {
			t.Errorf("a %s was read", name)
		}
	}
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, _, err := readForeign(Host(), path[1:], func(uint32) bool { return true }); err != nil ||
		string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
}
