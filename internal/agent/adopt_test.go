package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

// TestAdopt writes into a host made of files: the kernel's part is e2e's.
func TestAdopt(t *testing.T) {
	pid := os.Getpid()
	started, err := startOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	const group = "memory/slurm/uid_1/job_1/step_0"
	host := func(member string) string {
		root := t.TempDir()
		for path, text := range map[string]string{
			"proc/" + strconv.Itoa(pid) + "/cgroup":         "4:memory:/" + member + "\n",
			"sys/fs/cgroup/" + group + "/cgroup.procs":      "",
			"sys/fs/cgroup/memory/elsewhere/cgroup.procs":   "",
			"sys/fs/cgroup/memory/slurm/uid_1/cgroup.procs": "",
		} {
			path = filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		return root
	}
	in := strings.TrimPrefix(group, "memory/")
	for name, c := range map[string]struct {
		member string
		groups []string
		fails  bool
	}{
		"no groups":               {"elsewhere", nil, false},
		"there":                   {in, []string{group}, false},
		"the kernel put it aside": {"elsewhere", []string{group}, true},
		"a group that has gone":   {in, []string{group, "memory/gone"}, true},
		"a path that climbs":      {in, []string{"../../../etc"}, true},
	} {
		root := host(c.member)
		err := adopt(root, c.groups, pid, started)
		if e := new(farm.Error); (err != nil) != c.fails || err != nil && (!errors.As(err, &e) || e.Code != farm.CodeNotAdopted) {
			t.Errorf("%s: %v", name, err)
		}
		if !c.fails && c.groups != nil {
			if text, _ := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", group, "cgroup.procs")); string(text) != strconv.Itoa(pid) {
				t.Errorf("%s: %q was written", name, text)
			}
		}
	}
	if err := adopt(host(in), []string{group}, 1<<22+1, started); err == nil {
		t.Error("a process that never was is adopted")
	}
	root := host(in)
	if err := adopt(root, []string{group}, pid, started-1); err == nil {
		t.Error("a later process with QEMU's number is adopted")
	}
	if text, _ := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", group, "cgroup.procs")); len(text) > 0 {
		t.Errorf("%q was written for a process that is not QEMU", text)
	}
}

// TestRepin does to a thread of ours what a cpuset of an older kernel does.
func TestRepin(t *testing.T) {
	pid := os.Getpid()
	before, err := affinities(pid)
	if err != nil || len(before) == 0 {
		t.Fatal(before, err)
	}
	cpus := cpusOf(before[pid])
	if cpus.Len() < 2 {
		t.Skip("skip repin: one CPU")
	}
	var one unix.CPUSet
	one.Set(cpus.List()[0])
	if err := unix.SchedSetaffinity(pid, &one); err != nil {
		t.Fatal(err)
	}
	if err := repin(pid, before); err != nil {
		t.Error(err)
	}
	if after, err := affinities(pid); err != nil || after[pid] != before[pid] {
		t.Errorf("the thread may run on %v, not %v; %v", cpusOf(after[pid]), cpus, err)
	}
	var none unix.CPUSet
	none.Set(1000)
	before[pid] = none
	if err := repin(pid, before); err == nil {
		t.Error("a thread is pinned to a CPU that is not there")
	}
}
