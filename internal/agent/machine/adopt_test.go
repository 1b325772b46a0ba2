package machine

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/procstat"
)

// TestAdopt writes into a host made of files: the kernel's part is e2e's.
func TestAdopt(t *testing.T) {
	pid := os.Getpid()
	started, err := procstat.Started(pid)
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
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte(text), 0o644)); err != nil {
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
		err := Adopt(root, c.groups, pid, started)
		if e := new(farm.Error); (err != nil) != c.fails ||
			err != nil && (!errors.As(err, &e) || e.Code != CodeNotAdopted) {
			t.Errorf("%s: %v", name, err)
		}
		if !c.fails && c.groups != nil {
			if text, _ := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", group,
				"cgroup.procs")); string(text) != strconv.Itoa(pid) {
				t.Errorf("%s: %q was written", name, text)
			}
		}
	}
	if err := Adopt(host(in), []string{group}, 1<<22+1, started); err == nil {
		t.Error("a process that never was is adopted")
	}
	root := host(in)
	if err := Adopt(root, []string{group}, pid, started-1); err == nil {
		t.Error("a later process with QEMU's number is adopted")
	}
	if text, _ := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", group, "cgroup.procs")); len(text) > 0 {
		t.Errorf("%q was written for a process that is not QEMU", text)
	}
}

// TestLibvirtMoves: what the kernel shows of QEMU's process just before it is QEMU, for each way libvirt may be
// configured.
func TestLibvirtMoves(t *testing.T) {
	const scope = "machine.slice/machine-qemu\\x2d1\\x2dgrange.scope"
	for name, c := range map[string]struct {
		member  string            // of the process
		control map[string]string // of groups
		want    bool
	}{
		"cgroup_controllers = []": {"0::/system.slice/libvirtd.service\n",
			map[string]string{"system.slice": "cpuset cpu io memory pids\n"}, false},
		"libvirt's default": {"0::/" + scope + "/libvirt/emulator\n",
			map[string]string{"machine.slice": "cpuset cpu memory\n", scope: "cpuset cpu io memory\n",
				scope + "/libvirt": "cpuset cpu io memory\n"}, true},
		"devices alone": {"0::/" + scope + "\n",
			map[string]string{"machine.slice": "cpuset cpu memory\n", scope: "memory\n"}, false},
		"version 1":  {"5:cpuset:/machine/qemu-1\n4:memory:/\n", nil, false},
		"hybrid":     {"5:cpuset:/machine/qemu-1\n0::/system.slice/libvirtd.service\n", nil, false},
		"at the top": {"0::/\n", map[string]string{"": "cpuset cpu\n"}, false},
	} {
		files := fstest.MapFS{"proc/7/cgroup": {Data: []byte(c.member)}}
		for group, text := range c.control {
			files[path.Join("sys/fs/cgroup", group, "cgroup.subtree_control")] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := LibvirtMoves(files, 7); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !LibvirtMoves(fstest.MapFS{}, 7) {
		t.Error("a process that is not to be seen is left alone")
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
