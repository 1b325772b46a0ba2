package hostfacts_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
)

// whole is a host that has something to say of every kind.
var whole = map[string]string{
	"sys/devices/system/cpu/online":                             "0-1\n",
	"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0\n",
	"sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "1\n",

	"proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel name : X\nflags : " +
		"fpu hypervisor\n",
	"proc/meminfo": "MemTotal: 8388608 kB\nMemFree: 4194304 kB\nMemAvailable: 5000 kB\nAnonHugePages: " +
		"2048 kB\nSwapTotal: 1024 kB\nSwapFree: 512 kB\nHugePages_Total: 3\nHugepagesize: 2048 kB\n",
	"proc/cmdline":             "quiet isolcpus=managed_irq,domain,1 nohz_full=1\n",
	"proc/sys/kernel/hostname": "node17\n", "proc/sys/kernel/osrelease": "3.10.0-229.el7.x86_64\n",
	"proc/sys/vm/swappiness": "60\n", "proc/sys/kernel/sched_min_granularity_ns": "10000000\n",
	"proc/swaps": "Filename Type Size Used Priority\n/dev/dm-1 partition 1024 512 -1\n/a\\040b file 10 0 " +
		"-2\n",
	"proc/vmstat": "pswpin 7\npswpout 18446744073709551615\n",
	"proc/stat":   "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3\n",
	"proc/pressure/memory": "some avg10=1.50 avg60=2.00 avg300=3.00 total=9\nfull avg10=0.50 avg60=0.00 avg300=0.00 " +
		"total=1\n",
	"proc/self/mounts": "/dev/sda1 / ext4 rw,noatime 0 0\n/dev/sdb1 /var/my\\040disk xfs ro 0 0\n",
	"proc/1/comm":      "systemd\n", "proc/77/comm": "numad\n", "proc/78/comm": "power-profiles-\n",

	"sys/devices/system/clocksource/clocksource0/current_clocksource":   "tsc\n",
	"sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm \n",
	"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":              "powersave\n",
	"sys/devices/system/cpu/cpu0/cpufreq/scaling_driver":                "intel_pstate\n",
	"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor":              "performance\n",
	"sys/devices/system/cpu/cpu0/cpuidle/state0/name":                   "C6\n",
	"sys/devices/system/cpu/cpu0/cpuidle/state0/latency":                "133\n",
	"sys/devices/system/cpu/cpu0/cpuidle/state0/disable":                "0\n",
	"sys/devices/system/cpu/cpu1/cpuidle/state0/name":                   "C6\n",
	"sys/devices/system/cpu/cpu1/cpuidle/state0/latency":                "133\n",
	"sys/devices/system/cpu/cpu1/cpuidle/state0/disable":                "1\n",
	"sys/devices/system/cpu/nohz_full":                                  "(null)\n",
	"sys/devices/system/cpu/smt/control":                                "on\n",
	"sys/devices/system/cpu/vulnerabilities/l1tf":                       "Mitigation: PTE Inversion\n",

	"sys/module/kvm/parameters/halt_poll_ns":     "200000\n",
	"sys/module/kvm_intel/parameters/enable_ept": "N\n",
	"etc/modprobe.d/kvm.conf": "# options kvm_intel nested=0\noptions kvm-intel ept=0 \\\n  " +
		"nested=1 # both\noptions e1000 x=1\n",
	"usr/lib/modprobe.d/kvm.conf": "options kvm_intel ept=1\n",
	"usr/lib/modprobe.d/z.conf":   "options kvm ignore_msrs=1\n",

	"sys/kernel/mm/ksm/run": "1\n", "sys/kernel/mm/ksm/pages_shared": "10\n", "sys/kernel/mm/ksm/pages_sharing": "90\n",
	"sys/kernel/mm/ksm/merge_across_nodes":                       "1\n",
	"sys/kernel/mm/transparent_hugepage/enabled":                 "always [madvise] never\n",
	"sys/kernel/mm/transparent_hugepage/defrag":                  "[always] never\n",
	"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages":   "4\n",
	"sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages": "1\n",
	"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":      "9\n",
	"sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages":    "2\n",
	"sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages": "3\n",

	"sys/fs/cgroup/cgroup.controllers":                 "cpuset\n",
	"sys/fs/cgroup/vms.slice/cpuset.cpus.partition":    "isolated\n",
	"sys/fs/cgroup/vms.slice/cpuset.cpus.effective":    "1\n",
	"sys/fs/cgroup/system.slice/cpuset.cpus.partition": "member\n",
	"sys/fs/cgroup/old.slice/cpuset.cpus.partition": "root invalid (Cpu list in cpuset.cpus not " +
		"exclusive)\n",
	"sys/block/sda/queue/rotational":                              "1\n",
	"sys/block/sda/queue/scheduler":                               "noop deadline [cfq]\n",
	"sys/block/nvme0n1/queue/scheduler":                           "none\n",
	"sys/block/loop0/queue/rotational":                            "1\n",
	"etc/systemd/system/multi-user.target.wants/ksmtuned.service": "",
	"etc/systemd/system/multi-user.target.wants/chrony.service":   "",
	"etc/systemd/system/sockets.target.wants/virtqemud.socket":    "",
	"etc/tuned/active_profile":                                    "virtual-host\n",
	"etc/security/limits.conf": "# core\n* hard core 5\n* soft core 0\nroot " +
		"soft core unlimited\n",
	"etc/security/limits.d/90-cores.conf": "* - core 1024 # KiB\n",
	"etc/os-release":                      "ID=\"centos\"\nVERSION_ID=\"7\"\nPRETTY_NAME='CentOS Linux 7'\n",
	"etc/default/grub": "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX=\"a=1 " +
		"b=\\\"2 3\\\"\"\n",
	"etc/default/grub.d/10-more.cfg": "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX c\"\n",
	"etc/default/grub.d/20-last.cfg": "GRUB_CMDLINE_LINUX_DEFAULT='d  e'\nif [ x ]; " +
		"then :; fi\nexport X=y GRUB_CMDLINE_LINUX=${GRUB_CMDLINE_LINUX}' f'\n",
	"grange/versions.json":                                           `{"qemu":"7.2.19","libvirt":"9.0.0"}`,
	"grange/filesystems.json":                                        `[{"path":"/var/my disk","size":100,"free":200}]`,
	"proc/sys/vm/not-asked-for":                                      "1\n",
	"sys/fs/cgroup/vms.slice/a.scope/cpuset.cpus":                    "1\n",
	"sys/devices/system/cpu/cpu0/cpuidle/state1/time":                "1\n",
	"sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_ignored": "1\n",
}

func tree(files map[string]string, more ...string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = &fstest.MapFile{Data: []byte(more[i+1])}
	}
	return out
}

func read(t *testing.T, files fstest.MapFS) farm.HostFacts {
	t.Helper()
	h, err := hostfacts.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestReadWhole(t *testing.T) {
	got := read(t, tree(whole))
	set := farm.NewCPUSet
	want := farm.HostFacts{
		Name: "node17", Virtual: true, OS: farm.OSRelease{ID: "centos", Version: "7", Name: "CentOS Linux 7"},
		Versions: farm.Versions{QEMU: "7.2.19", Libvirt: "9.0.0"},
		Topology: got.Topology,
		Kernel: farm.Kernel{Release: "3.10.0-229.el7.x86_64",
			Command: "quiet isolcpus=managed_irq,domain,1 nohz_full=1", Clock: "tsc",
			Clocks: []string{"tsc", "hpet", "acpi_pm"}, BootFile: "etc/default/grub", NextBoot: `a=1 b="2 3" c f d e`},
		KVM: farm.KVM{Loaded: true, Params: map[string]string{"kvm.halt_poll_ns": "200000",
			"kvm_intel.enable_ept": "N"},
			Options: []farm.ModuleOption{{Path: "etc/modprobe.d/kvm.conf", Module: "kvm_intel", Name: "ept",
				Value: "0"}, {Path: "etc/modprobe.d/kvm.conf", Module: "kvm_intel", Name: "nested", Value: "1"},
				{Path: "usr/lib/modprobe.d/z.conf", Module: "kvm", Name: "ignore_msrs", Value: "1"}}},
		KSM: farm.KSM{Known: true, Run: 1, Shared: 10, Sharing: 90, MergeAcrossNodes: "1"},
		THP: farm.THP{Enabled: "madvise", Defrag: "always"},
		Memory: farm.MemoryFacts{DefaultPage: 2 * farm.MiB,
			Total: 8 * farm.GiB, Free: 4 * farm.GiB, Available: 5000 * farm.KiB,
			AnonHuge: 2 * farm.MiB, SwapTotal: farm.MiB, SwapFree: 512 * farm.KiB},
		Pages: []farm.PagePool{{Size: 2 * farm.MiB, Total: 9, Reserved: 2, Surplus: 3},
			{Size: farm.GiB, Total: 4, Free: 1}},
		Sysctl:   map[string]string{"vm.swappiness": "60", "kernel.sched_min_granularity_ns": "10000000"},
		Counters: map[string]int64{"pswpin": 7, "pswpout": 1<<63 - 1},
		CPUTime:  farm.CPUTime{User: 1, Nice: 2, System: 16, Idle: 4, IOWait: 5, Steal: 8, Guest: 19},
		Pressure: map[string]farm.Pressure{"memory": {Some10: 1.5, Some60: 2, Some300: 3, Full10: 0.5,
			SomeTotal: 9 * time.Microsecond, FullTotal: time.Microsecond}},
		Swaps: []farm.Swap{{Path: "/dev/dm-1", Size: farm.MiB, Used: 512 * farm.KiB},
			{Path: "/a b", Size: 10 * farm.KiB}},
		Clocks: []farm.Governor{{CPUs: set(0), Name: "powersave", Driver: "intel_pstate"},
			{CPUs: set(1), Name: "performance"}},
		Idle:            []farm.IdleState{{Name: "C6", LatencyMicros: 133, Enabled: set(0)}},
		Vulnerabilities: map[string]string{"l1tf": "Mitigation: PTE Inversion"},
		SMT:             "on", Isolated: set(1),
		Partitions: []farm.Partition{{Path: "/vms.slice", CPUs: set(1), Kind: "isolated"}},
		Services: map[string]farm.Service{"numad": {Running: true}, "power-profiles-daemon": {Running: true},
			"ksmtuned": {Enabled: true}, "chronyd": {Enabled: true}, "virtqemud": {Enabled: true}},
		TunedProfile: "virtual-host",
		Disks: []farm.BlockDevice{{Name: "nvme0n1", Scheduler: "none", Schedulers: []string{"none"}},
			{Name: "sda", Rotational: true, Scheduler: "cfq", Schedulers: []string{"noop", "deadline", "cfq"}}},
		Mounts: []farm.Mount{{Source: "/dev/sda1", Path: "/", Type: "ext4", Options: []string{"rw", "noatime"}},
			{Source: "/dev/sdb1", Path: "/var/my disk", Type: "xfs", Options: []string{"ro"}, Size: 100, Free: 100}},
		CoreLimit: "1048576",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestReadLittle: a host of a kernel that tells nothing but its CPUs is a host all the same.
func TestReadLittle(t *testing.T) {
	h := read(t, tree(map[string]string{"proc/cpuinfo": "processor : 0\n"}))
	if h.Topology.Online.Len() != 1 || h.KSM.Known || h.KVM.Loaded || h.THP.Enabled != "" || len(h.Unread) > 0 {
		t.Errorf("%+v", h)
	}
}

// Debian's GRUB reads the files of grub.d also where there is no /etc/default/grub.
func TestGrubWithoutDefaults(t *testing.T) {
	files := tree(whole)
	delete(files, "etc/default/grub")
	if k := read(t, files).Kernel; k.BootFile != "etc/default/grub.d" || k.NextBoot != "c f d e" {
		t.Errorf("%q: %q", k.BootFile, k.NextBoot)
	}
}

// TestReadVariants has what other kernels and distributions write.
func TestReadVariants(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		get   func(farm.HostFacts) any
		want  any
	}{
		"CPUs isolated, as the kernel says": {[]string{"sys/devices/system/cpu/isolated", "0\n"},
			func(h farm.HostFacts) any { return h.Isolated.String() }, "0"},
		"kernel-install's command line": {[]string{"etc/kernel/cmdline", "x  y\n"},
			func(h farm.HostFacts) any { return h.Kernel.BootFile + ": " + h.Kernel.NextBoot },
			"etc/kernel/cmdline: x y"},
		"words that are no assignment": {[]string{"etc/default/grub",
			"source /etc/x\nif true; then\n  export\nGRUB_CMDLINE_LINUX=a\n"},
			func(h farm.HostFacts) any { return h.Kernel.NextBoot }, "a c f d e"},
		"THP of Red Hat's 2.6.32": {[]string{"sys/kernel/mm/transparent_hugepage/enabled", "",
			"sys/kernel/mm/redhat_transparent_hugepage/enabled", "[always] never\n"},
			func(h farm.HostFacts) any { return h.THP.Enabled }, "always"},
		"limits of systemd": {[]string{"etc/security/limits.conf", "", "etc/security/limits.d/90-cores.conf", "",
			"etc/systemd/system.conf", "#DefaultLimitCORE=1\nDefaultLimitCORE=infinity:infinity\n"},
			func(h farm.HostFacts) any { return h.CoreLimit }, "unlimited"},
		"limits of the first process": {[]string{"etc/security/limits.conf", "", "etc/security/limits.d/90-cores.conf",
			"", "proc/1/limits", "Limit Soft Hard Units\nMax core file size        0                    unlimited    " +
				"        bytes\n"}, func(h farm.HostFacts) any { return h.CoreLimit }, "0"},
		"services of System V": {[]string{"etc/rc.d/rc3.d/S85ksmtuned", "", "etc/rc.d/rc3.d/K10numad", ""},
			func(h farm.HostFacts) any { return h.Services["ksmtuned"].Enabled }, true},
		"exclusive cpuset of version 1": {[]string{"sys/fs/cgroup/cpuset/a/cpuset.cpu_exclusive", "1\n",
			"sys/fs/cgroup/cpuset/a/cpuset.cpus", "0\n"},
			func(h farm.HostFacts) any { return fmt.Sprint(h.Partitions) },
			"[{/vms.slice 1 isolated} {/a 0 exclusive}]"},
		"parameter of AMD": {[]string{"sys/module/kvm_intel/parameters/enable_ept", "",
			"sys/module/kvm_amd/parameters/npt", "1\n"},
			func(h farm.HostFacts) any { return h.KVM.Params["kvm_amd.npt"] }, "1"},
		"first process's mounts go before": {[]string{"proc/1/mounts", "a /b xfs rw 0 0\n"},
			func(h farm.HostFacts) any { return h.Mounts[0].Path }, "/b"},
		"a variable that repeats itself": {[]string{"etc/default/grub",
			"A=" + strings.Repeat("x", 60000) + "\n" + strings.Repeat("A=$A$A$A\n", 50)},
			func(h farm.HostFacts) any { return len(h.Kernel.NextBoot) < 1<<20 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.get(read(t, tree(whole, c.files...))); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestMaskedService: a unit that is linked to /dev/null starts for nobody.
func TestMaskedService(t *testing.T) {
	files := tree(whole)
	files["etc/systemd/system/ksmtuned.service"] = &fstest.MapFile{Data: []byte("/dev/null"), Mode: 0o777 | 1<<27}
	if read(t, files).Services["ksmtuned"].Enabled {
		t.Error("a masked service counts as enabled")
	}
}

// TestReadOldBoot has what is looked at where no tool's own file is.
func TestReadOldBoot(t *testing.T) {
	files := map[string]string{"proc/cpuinfo": "processor : 0\n",
		"boot/grub2/grub.cfg": "set x=y\nmenuentry 'Old' {\n linux16 /vmlinuz-3.10 root=/dev/sda1 ro\n}\nmenuentry " +
			"'Older' {\n linux16 /vmlinuz-2.6 ro\n}\n",
		"etc/redhat-release": "Scientific Linux CERN SLC release 6.7 (Carbon)\n"}
	h := read(t, tree(files))
	if h.Kernel.BootFile != "boot/grub2/grub.cfg" || h.Kernel.NextBoot != "root=/dev/sda1 ro" {
		t.Errorf("boot %+v", h.Kernel)
	}
	if want := (farm.OSRelease{ID: "scientific", Version: "6.7",
		Name: "Scientific Linux CERN SLC release 6.7 (Carbon)"}); h.OS != want {
		t.Errorf("OS %+v", h.OS)
	}
}

// TestReadRefuses: a fact that would be wrong is an error that names its file.
func TestReadRefuses(t *testing.T) {
	for path, text := range map[string]string{
		"proc/meminfo":                     "MemTotal: lots kB\n",
		"proc/swaps":                       "head\n/dev/a partition 10 20 -1\n",
		"proc/vmstat":                      "pswpin minus\n",
		"proc/stat":                        "cpu 1 two 3\n",
		"proc/pressure/memory":             "some avg10=1000 avg60=0 avg300=0\n",
		"sys/kernel/mm/ksm/run":            "7\n",
		"grange/versions.json":             "{",
		"sys/devices/system/cpu/nohz_full": "1-x\n",
		"sys/fs/cgroup/vms.slice/cpuset.cpus.effective":         "99999\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "-7\n",
	} {
		t.Run(path, func(t *testing.T) {
			_, err := hostfacts.Read(tree(whole, path, text))
			var e *farm.Error
			if !errors.As(err, &e) || e.Code != farm.CodeBadTree || !strings.Contains(e.Message, path) {
				t.Errorf("got %v, want %s of %s", err, farm.CodeBadTree, path)
			}
		})
	}
}

// FuzzRead puts hostile text into two files of a sound tree: the answer is facts, or an error that a user may read.
func FuzzRead(f *testing.F) {
	paths := slices.Sorted(maps.Keys(whole))
	paths = append(paths, "etc/libvirt/qemu/a.xml", "run/libvirt/qemu/b.xml", "etc/kernel/cmdline",
		"boot/grub/grub.conf", "etc/systemd/system.conf")
	f.Add(uint8(0), "0-1", uint8(3), "A=$A")
	f.Add(uint8(len(paths)-5), fullDomain, uint8(9), "\\")
	f.Add(uint8(7), "source -", uint8(8), "source -")
	f.Add(uint8(7), "GRUB_CMDLINE_LINUX='", uint8(12), "\"${")
	f.Fuzz(func(t *testing.T, a uint8, one string, b uint8, two string) {
		_, err := hostfacts.Read(tree(whole, paths[int(a)%len(paths)], one, paths[int(b)%len(paths)], two))
		var e *farm.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%v is not a farm.Error", err)
		}
	})
}
