package hostfacts

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

func tree(files map[string]string) fstest.MapFS {
	t := fstest.MapFS{}
	for name, text := range files {
		t[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return t
}

func status(name, cpus string) string {
	return "Name:\t" + name + "\nState:\tS (sleeping)\nCpus_allowed:\tff\nCpus_allowed_list:\t" + cpus + "\n"
}

func TestParseCommand(t *testing.T) {
	for line, want := range map[string]farm.Process{
		"/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on -uuid AB -smp 4,sockets=2": {Name: "web", UUID: "ab", CPUs: 4},
		"/usr/libexec/qemu-kvm -name web,process=x -smp cpus=8,maxcpus=16":                       {Name: "web", CPUs: 8},
		"qemu-system-x86_64 --name a,,b --machine none":                                          {Name: "a,b"},
		"qemu-system-aarch64 -M virt -smp sockets=2,cores=2":                                     {},
		"qemu-system-x86_64 -S -name":                                                            {},
	} {
		got, ok := parseCommand([]byte(strings.ReplaceAll(line, " ", "\x00") + "\x00"))
		if diff := cmp.Diff(want, got, sameSets); diff != "" || !ok {
			t.Errorf("%s: %v\n%s", line, ok, diff)
		}
	}
	for _, line := range []string{"", "/bin/sh -name x", "qemu-img convert -m 4 a b", "/usr/bin/qemu-ga -m virtio-serial", "qemu-system-x86_64 --version"} {
		if p, ok := parseCommand([]byte(strings.ReplaceAll(line, " ", "\x00"))); ok {
			t.Errorf("%q runs a VM: %+v", line, p)
		}
	}
}

var sameSets = cmp.Comparer(func(a, b farm.CPUSet) bool { return a.Equal(b) })

func TestVCPUNumber(t *testing.T) {
	for name, want := range map[string]int{"CPU 0/TCG": 0, "CPU 31/KVM": 31, "ALL CPUs/TCG": 0, "CPU x/KVM": -1, "IO iothread1": -1, "worker": -1,
		"CPU 3": -1, "CPU -1/KVM": -1, "CPU 99999999/KV": -1} {
		if got := vcpuNumber(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}

// TestProcesses reads libvirt's groups of version 1 and 2, and a process that a person started.
func TestProcesses(t *testing.T) {
	stat := "12 (CPU 0/KVM) S" + strings.Repeat(" 0", 35) + " 7 0 0"
	got, err := Processes(tree(map[string]string{
		"proc/1/cmdline": "/sbin/init\x00", "proc/self/cmdline": "grange\x00", "proc/cpuinfo": "",
		"proc/10/cmdline":        "/usr/bin/qemu-system-x86_64\x00-name\x00guest=grange-1a,debug-threads=on\x00-uuid\x00u1\x00-smp\x001\x00",
		"proc/10/numa_maps":      "7f bind:0-1 anon=3 N0=2 N1=1 kernelpagesize_kB=4\n55 default file=/usr/bin/qemu mapped=9 N0=9 kernelpagesize_kB=4\n7e prefer:1 file=/dev/hugepages/a huge dirty=3 N1=3 kernelpagesize_kB=2048\n",
		"proc/10/cgroup":         "0::/machine.slice/machine-qemu\\x2d1.scope/libvirt/emulator\n",
		"proc/10/task/10/status": status("qemu-system-x86", "0"), "proc/10/task/10/cgroup": "0::/machine.slice/machine-qemu\\x2d1.scope/libvirt/emulator\n",
		"proc/10/task/12/status": status("CPU 0/KVM", "4"), "proc/10/task/12/cgroup": "0::/machine.slice/machine-qemu\\x2d1.scope/libvirt/vcpu0\n",
		"proc/10/task/12/stat": stat,
		"sys/fs/cgroup/machine.slice/machine-qemu\\x2d1.scope/libvirt/vcpu0/cpuset.cpus.effective": "4\n",
		"sys/fs/cgroup/machine.slice/cpuset.cpus.effective":                                        "2-7\n",
		"proc/20/cmdline": "qemu-kvm\x00-S\x00", "proc/20/task/20/status": status("qemu-kvm", "0-3"), "proc/20/cgroup": "5:cpu,cpuset:/vm/emulator\n",
		"sys/fs/cgroup/cpu,cpuset/vm/cpuset.cpus": "0-3\n",
		"proc/30/cmdline":                         "qemu-kvm\x00-S\x00", // has ended meanwhile: it has no threads
	}))
	want := []farm.Process{
		{PID: 10, Name: "grange-1a", UUID: "u1", Ours: true, CPUs: 1, Bound: farm.NewCPUSet(0, 1), Cpuset: farm.NewCPUSet(2, 3, 4, 5, 6, 7),
			Resident: map[int]farm.Bytes{0: 8 * farm.KiB, 1: 4*farm.KiB + 6*farm.MiB}, Threads: []farm.Thread{
				{ID: 10, Name: "qemu-system-x86", VCPU: -1, Allowed: farm.NewCPUSet(0), LastCPU: -1, State: "S", Cpuset: farm.NewCPUSet(2, 3, 4, 5, 6, 7)},
				{ID: 12, Name: "CPU 0/KVM", Allowed: farm.NewCPUSet(4), LastCPU: 7, State: "S", Cpuset: farm.NewCPUSet(4)},
			}},
		{PID: 20, Cpuset: farm.NewCPUSet(0, 1, 2, 3), Threads: []farm.Thread{
			{ID: 20, Name: "qemu-kvm", VCPU: -1, Allowed: farm.NewCPUSet(0, 1, 2, 3), LastCPU: -1, State: "S"},
		}},
	}
	if diff := cmp.Diff(want, got, sameSets); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestHostileProcesses: what no kernel writes is an error, and never an allocation.
func TestHostileProcesses(t *testing.T) {
	base := map[string]string{"proc/9/cmdline": "qemu-kvm\x00-S\x00", "proc/9/task/9/status": status("qemu-kvm", "0")}
	for name, change := range map[string][2]string{
		"CPU numbers":      {"proc/9/task/9/status", status("x", "0-4294967295")},
		"node numbers":     {"proc/9/numa_maps", "7f default anon=1 N4096=1 kernelpagesize_kB=4"},
		"counts":           {"proc/9/numa_maps", "7f default anon=1 N0=99999999999999999999 kernelpagesize_kB=4"},
		"too much memory":  {"proc/9/numa_maps", "7f default anon=1 N0=17592186044415 kernelpagesize_kB=16777216"},
		"page sizes":       {"proc/9/numa_maps", "7f default anon=1 N0=1 kernelpagesize_kB=-4"},
		"a line for ever":  {"proc/9/numa_maps", strings.Repeat("x", maxMapping+1)},
		"a node list":      {"proc/9/numa_maps", "7f bind:0-99999999 anon=1 N0=1"},
		"too many numbers": {"proc/9/numa_maps", strings.Repeat("7f\n", maxMappings)},
	} {
		files := tree(base)
		files[change[0]] = &fstest.MapFile{Data: []byte(change[1])}
		if p, err := Processes(files); err == nil {
			t.Errorf("%s: read as %+v", name, p)
		}
	}
	files := tree(base)
	files["proc/9/cgroup"] = &fstest.MapFile{Data: []byte("0::/../../etc\n")}
	if p, err := Processes(files); err != nil || !p[0].Cpuset.Empty() {
		t.Errorf("a group outside: %+v, %v", p, err)
	}
}

func FuzzMapping(f *testing.F) {
	f.Add("7f bind:0 file=/memfd:x huge anon=3 N0=3 kernelpagesize_kB=2048")
	f.Fuzz(func(t *testing.T, line string) {
		m, err := parseMapping(line)
		for node, size := range m.resident {
			if err == nil && (node < 0 || node > maxNode || size > 16*farm.MaxMemory) {
				t.Errorf("%v on node %d", size, node)
			}
		}
	})
}

func TestPlans(t *testing.T) {
	domain := func(record string) string {
		return fmt.Sprintf("<domstatus><domain><metadata><a:vm xmlns:a='https://grange.dev/xmlns/vm/1'>%s</a:vm></metadata></domain></domstatus>",
			base64.StdEncoding.EncodeToString([]byte(record)))
	}
	files := tree(map[string]string{
		"good.xml": domain(`{"Version":1,"Plan":{"VCPUs":["4","5"],"Emulator":"0","Cells":[{"VCPUs":"0-1","Memory":1024,"Node":1}]}}`),
		"bad.xml":  domain(`{"Plan":{"VCPUs":["x"]}}`), "none.xml": domain(`{}`), "text.xml": "no XML",
	})
	plans, unread := Plans(files, []farm.Domain{
		{Name: "good", UUID: "g", Ours: true, Path: "good.xml"}, {Name: "bad", UUID: "b", Ours: true, Path: "bad.xml"},
		{Name: "none", UUID: "n", Ours: true, Path: "none.xml"}, {Name: "text", UUID: "t", Ours: true, Path: "text.xml"},
		{Name: "gone", UUID: "x", Ours: true, Path: "gone.xml"}, {Name: "foreign", UUID: "f", Path: "good.xml"},
	})
	if p := plans["g"]; len(plans) != 1 || p.CPUs().String() != "4-5" || p.Cells[0].Node != 1 || p.Emulator.String() != "0" {
		t.Errorf("plans %+v", plans)
	}
	if len(unread) != 4 {
		t.Errorf("unread: %q", unread)
	}
}

func TestHiddenDomains(t *testing.T) {
	text := "<domstatus state='running'><domain type='kvm'><name>web</name><uuid>u</uuid><vcpu>1</vcpu></domain></domstatus>"
	files := tree(map[string]string{"proc/7/root/run/libvirt/qemu/web.xml": text, "proc/8/root/run/libvirt/qemu/web.xml": text})
	procs := []farm.Process{{PID: 7, Name: "web", UUID: "u"}, {PID: 8, Name: "web", UUID: "other"}, {PID: 9, Name: "../x", UUID: "v"}}
	if got := HiddenDomains(files, nil, procs); len(got) != 1 || got[0].UUID != "u" || got[0].Path != "proc/7/root/run/libvirt/qemu/web.xml" {
		t.Errorf("%+v", got)
	}
	if got := HiddenDomains(files, []farm.Domain{{UUID: "u"}}, procs); len(got) != 0 {
		t.Errorf("known already: %+v", got)
	}
}
