package hostfacts

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
		"/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on -uuid AB -smp 4,sockets=2": {Name: "web",
			UUID: "ab", CPUs: 4, Named: true},
		"/usr/libexec/qemu-kvm -name web,process=x -smp cpus=8,maxcpus=16": {Name: "web",
			CPUs: 8},
		"qemu-system-x86_64 --name a,,b --machine none":      {Name: "a,b"},
		"qemu-system-aarch64 -M virt -smp sockets=2,cores=2": {},
		"qemu-system-x86_64 -S -name":                        {},
	} {
		got, ok := parseCommand([]byte(strings.ReplaceAll(line, " ", "\x00") + "\x00"))
		if diff := cmp.Diff(want, got, sameSets); diff != "" || !ok {
			t.Errorf("%s: %v\n%s", line, ok, diff)
		}
	}
	for _, line := range []string{"", "/bin/sh -name x", "qemu-img convert -m 4 a b",
		"/usr/bin/qemu-ga -m virtio-serial", "qemu-system-x86_64 --version"} {
		if p, ok := parseCommand([]byte(strings.ReplaceAll(line, " ", "\x00"))); ok {
			t.Errorf("%q runs a VM: %+v", line, p)
		}
	}
}

var sameSets = cmp.Comparer(func(a, b farm.CPUSet) bool { return a.Equal(b) })

func TestVCPUNumber(t *testing.T) {
	for name, want := range map[string]int{"CPU 0/TCG": 0, "CPU 31/KVM": 31, "ALL CPUs/TCG": 0, "CPU x/KVM": -1,
		"IO iothread1": -1, "worker": -1, "CPU 3": -1, "CPU -1/KVM": -1, "CPU 99999999/KV": -1} {
		if got := vcpuNumber(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}

// TestProcesses reads libvirt's groups of version 1 and 2, and a process that a person started.
func TestProcesses(t *testing.T) {
	stat := "12 (CPU 0/KVM) S" + strings.Repeat(" 0", 35) + " 7 0 0"
	got, _, err := processes(tree(map[string]string{
		"proc/1/cmdline": "/sbin/init\x00", "proc/self/cmdline": "grange\x00", "proc/cpuinfo": "",
		"proc/10/cmdline": "/usr/bin/qemu-system-x86_64\x00-name\x00guest=grange-1a,debug-threads=on\x00-uuid\x00u1\x00-smp\x001\x00",
		"proc/10/numa_maps": "7f bind:0-1 anon=3 N0=2 N1=1 kernelpagesize_kB=4\n" +
			"7c bind=static:2 anon=1 N2=1 kernelpagesize_kB=4\n7b bind:0-1 anon=1 N0=1 kernelpagesize_kB=4\n7a default " +
			"anon=1 N0=1 kernelpagesize_kB=4\n55 default file=/usr/bin/qemu mapped=9 N0=9 kernelpagesize_kB=4\n7e " +
			"prefer:1 file=/dev/hugepages/a huge dirty=3 N1=3 kernelpagesize_kB=2048\n",
		"proc/10/cgroup":         "0::/machine.slice/machine-qemu\\x2d1.scope/libvirt/emulator\n",
		"proc/10/task/10/status": status("qemu-system-x86", "0"),
		"proc/10/task/10/cgroup": "0::/machine.slice/machine-qemu\\x2d1.scope/libvirt/emulator\n",
		"proc/10/task/12/status": status("CPU 0/KVM", "4"),
		"proc/10/task/12/cgroup": "0::/machine.slice/machine-qemu\\x2d1.scope/libvirt/vcpu0\n",
		"proc/10/task/12/stat":   stat,
		"sys/fs/cgroup/machine.slice/machine-qemu\\x2d1.scope/libvirt/vcpu0/cpuset.cpus.effective": "4\n",
		"sys/fs/cgroup/machine.slice/cpuset.cpus.effective":                                        "2-7\n",
		"proc/20/cmdline": "qemu-kvm\x00-S\x00", "proc/20/task/20/status": status("qemu-kvm", "0-3"),
		"proc/20/cgroup": "5:cpu,cpuset:/vm/emulator\n",
		"sys/fs/cgroup/cpu,cpuset/vm/cpuset.cpus": "0-3\n",
		"proc/30/cmdline":                         "qemu-kvm\x00-S\x00", // has ended meanwhile: it has no threads
	}))
	want := []farm.Process{
		{PID: 10, Name: "grange-1a", UUID: "u1", Ours: true, CPUs: 1, Named: true,
			Cpuset: farm.NewCPUSet(2, 3, 4, 5, 6, 7),
			Memory: farm.NodeMemory{Resident: map[int]farm.Bytes{0: 16 * farm.KiB, 1: 4*farm.KiB + 6*farm.MiB,
				2: 4 * farm.KiB}, Bound: []farm.BoundMemory{
				{Nodes: farm.NewCPUSet(0, 1), Resident: map[int]farm.Bytes{0: 12 * farm.KiB, 1: 4 * farm.KiB}},
				{Nodes: farm.NewCPUSet(2), Resident: map[int]farm.Bytes{2: 4 * farm.KiB}},
			}}, Threads: []farm.Thread{
				{ID: 10, Name: "qemu-system-x86", VCPU: -1, Allowed: farm.NewCPUSet(0), LastCPU: -1, State: "S",
					Cpuset: farm.NewCPUSet(2, 3, 4, 5, 6, 7)},
				{ID: 12, Name: "CPU 0/KVM", Allowed: farm.NewCPUSet(4), LastCPU: 7, State: "S",
					Cpuset: farm.NewCPUSet(4)},
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
		if p, _, err := processes(files); err == nil {
			t.Errorf("%s: read as %+v", name, p)
		}
	}
	files := tree(base)
	files["proc/9/cgroup"] = &fstest.MapFile{Data: []byte("0::/../../etc\n")}
	if p, _, err := processes(files); err != nil || !p[0].Cpuset.Empty() {
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

func domainOf(name, uuid, metadata, more string) string {
	return fmt.Sprintf("<domstatus state='running'>%s<domain "+
		"type='kvm'><name>%s</name><uuid>%s</uuid>%s<vcpu>1</vcpu></domain></domstatus>", more, name, uuid, metadata)
}

func TestReadMachines(t *testing.T) {
	record := func(text string) string {
		return "<metadata><a:vm xmlns:a='https://grange.dev/xmlns/vm/1'>" +
			base64.StdEncoding.EncodeToString([]byte(text)) + "</a:vm></metadata>"
	}
	files := tree(map[string]string{
		"good.xml": domainOf("good", "g",
			record(
				`{"Version":1,"Plan":{"VCPUs":["4","5"],"Emulator":"0","Cells":[{"VCPUs":"0-1","Memory":1024,"Node":1}]}}`),
			""),
		"bad.xml":  domainOf("bad", "b", record(`{"Plan":{"VCPUs":["x"]}}`), ""),
		"none.xml": domainOf("none", "n", record(`{}`), ""), "text.xml": "no XML",
		"old.xml": domainOf("old", "o", "",
			"<vcpus><vcpu id='0' pid='73'/><vcpu id='1' pid='74'/><vcpu id='99999' pid='71'/></vcpus>"),
		"proc/71/cmdline":        "/usr/libexec/qemu-kvm\x00-name\x00old\x00-uuid\x00o\x00-smp\x002\x00",
		"proc/71/task/71/status": status("qemu-kvm", "0-7"), "proc/71/task/73/status": status("qemu-kvm", "1"),
		"proc/71/task/74/status": status("qemu-kvm", "2"),
	})
	got, err := ReadMachines(files, []farm.Domain{
		{Name: "good", UUID: "g", Running: true, Ours: true, Path: "good.xml"},
		{Name: "bad", UUID: "b", Running: true, Ours: true, Path: "bad.xml"},
		{Name: "none", UUID: "n", Running: true, Ours: true, Path: "none.xml"},
		{Name: "text", UUID: "t", Running: true, Ours: true, Path: "text.xml"},
		{Name: "gone", UUID: "x", Running: true, Ours: true, Path: "gone.xml"},
		{Name: "off", UUID: "f", Ours: true, Path: "good.xml"},
		{Name: "old", UUID: "o", Running: true, Path: "old.xml"},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Plans["g"]; len(got.Plans) != 1 || p.CPUs().String() != "4-5" || p.Cells[0].Node != 1 ||
		p.Emulator.String() != "0" {
		t.Errorf("plans %+v", got.Plans)
	}
	if len(got.Unread) != 5 || !strings.Contains(got.Unread[0], "takes root") {
		t.Errorf("unread: %q", got.Unread)
	}
	var unseen []string
	for _, p := range got.Unseen {
		unseen = append(unseen, p.Name)
	}
	if want := []string{"good", "bad", "none", "text"}; !slices.Equal(unseen, want) { // gone has ended meanwhile
		t.Errorf("unseen: %q, want %q", unseen, want)
	}
	if v := got.Processes[0].VCPUs(); len(v) != 2 || v[0].ID != 73 || v[1].ID != 74 || v[1].VCPU != 1 {
		t.Errorf("threads that QEMU does not name: %+v", got.Processes[0].Threads)
	}
}

// TestHiddenDomains: what a process sees of its libvirt counts for the VM that it runs, and on a live host only.
func TestHiddenDomains(t *testing.T) {
	files := fstest.MapFS{}
	for _, pid := range []string{"7", "8"} {
		files["proc/"+pid+"/root/run/libvirt/qemu/web.xml"] = &fstest.MapFile{Data: []byte(domainOf("web",
			"u", "", ""))}
	}
	for pid, args := range map[string]string{"7": "-name web -uuid u", "8": "-name web -uuid other",
		"9": "-name ../x -uuid v"} {
		files["proc/"+pid+"/cmdline"] = &fstest.MapFile{Data: []byte("qemu-kvm\x00" + strings.ReplaceAll(args,
			" ", "\x00"))}
		files["proc/"+pid+"/task/"+pid+"/status"] = &fstest.MapFile{Data: []byte(status("qemu-kvm", "0"))}
	}
	for _, live := range []bool{true, false} {
		got, err := ReadMachines(files, nil, live)
		if err != nil || len(got.Processes) != 3 {
			t.Fatalf("%+v, %v", got.Processes, err)
		}
		if n := len(got.Domains); live &&
			(n != 1 || got.Domains[0].UUID != "u" || got.Domains[0].Path != "proc/7/root/run/libvirt/qemu/web.xml") ||
			!live && n != 0 {
			t.Errorf("live %v: %+v", live, got.Domains)
		}
	}
	known := []farm.Domain{{UUID: "u"}}
	if got, err := ReadMachines(files, known, true); err != nil || len(got.Domains) != 1 {
		t.Errorf("known already: %+v, %v", got.Domains, err)
	}
}

// TestPretenders: of two processes that say they are one VM, the one that libvirt started is.
func TestPretenders(t *testing.T) {
	domain := strings.Replace(domainOf("web", "u", "", ""), "<domstatus ", "<domstatus pid='8' ", 1)
	files := fstest.MapFS{"web.xml": &fstest.MapFile{Data: []byte(domain)}}
	for pid, cpus := range map[string]string{"7": "0", "8": "1", "9": "2"} {
		files["proc/"+pid+"/cmdline"] = &fstest.MapFile{Data: []byte("qemu-kvm\x00-name\x00web\x00-uuid\x00u")}
		files["proc/"+pid+"/task/"+pid+"/status"] = &fstest.MapFile{Data: []byte(status("CPU 0/KVM", cpus))}
	}
	known := []farm.Domain{{Name: "web", UUID: "u", Running: true, Path: "web.xml"}}
	got, err := ReadMachines(files, known, false)
	if err != nil || len(got.Processes) != 1 || got.Processes[0].PID != 8 || len(got.Unread) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	delete(files, "proc/8/cmdline") // libvirt's numbers are not ours
	if got, err := ReadMachines(files, known, false); err != nil || len(got.Processes) != 2 {
		t.Errorf("nobody has libvirt's number: %+v, %v", got, err)
	}
}

// TestHiddenDomainOfOthers: what an account shows in a mount namespace of its own is not libvirt's.
func TestHiddenDomainOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skip hidden domains: files of other users take root")
	}
	dir := t.TempDir()
	file := "proc/7/root/run/libvirt/qemu/web.xml"
	for name, text := range map[string]string{"proc/7/cmdline": "qemu-kvm\x00-name\x00web\x00-uuid\x00u",
		"proc/7/task/7/status": status("CPU 0/KVM", "0"), file: domainOf("web", "u", "", "")} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for uid, want := range map[int]int{0: 1, 61991: 0} {
		if err := os.Chown(filepath.Join(dir, file), uid, -1); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadMachines(os.DirFS(dir), nil, true); err != nil || len(got.Domains) != want {
			t.Errorf("of user %d: %+v, %v; want %d", uid, got.Domains, err, want)
		}
	}
}
