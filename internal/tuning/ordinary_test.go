package tuning

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// ordinary is a host as a distribution leaves it: nodes of some cores with two threads each, the first threads numbered
// first.
func ordinary(nodes, cores int, memory farm.Bytes) farm.HostFacts {
	h := farm.HostFacts{Name: "ordinary", SMT: "on", CoreLimit: "0",
		OS:       farm.OSRelease{ID: "debian", Version: "12"},
		Versions: farm.Versions{QEMU: "7.2.15", Libvirt: "9.0.0"},
		Kernel: farm.Kernel{Release: "6.1.0-28-amd64", Command: "ro quiet", BootFile: "etc/default/grub",
			NextBoot: "quiet", Clock: "tsc", Clocks: []string{"tsc", "hpet", "acpi_pm"}},
		KVM: farm.KVM{Loaded: true, Params: map[string]string{"kvm_intel.ept": "Y", "kvm_intel.nested": "Y",
			"kvm.halt_poll_ns": "200000"}}, KSM: farm.KSM{Known: true, MergeAcrossNodes: "1"},
		THP: farm.THP{Enabled: "always", Defrag: "madvise"},
		Memory: farm.MemoryFacts{Total: memory * farm.Bytes(nodes), Free: memory * farm.Bytes(nodes) / 2,
			Available: memory * farm.Bytes(nodes) / 2, SwapTotal: 8 * farm.GiB, SwapFree: 8 * farm.GiB},
		Sysctl: map[string]string{"vm.swappiness": "60", "vm.overcommit_memory": "0", "vm.zone_reclaim_mode": "0",
			"kernel.numa_balancing": "0", "kernel.core_pattern": "core"},
		Pages: []farm.PagePool{{Size: 2 * farm.MiB}, {Size: farm.GiB}},
		Mounts: []farm.Mount{{Source: "hugetlbfs", Path: "/dev/hugepages", Type: "hugetlbfs",
			Options: []string{"rw", "pagesize=2M"}}}}
	h.Topology.CPU = farm.CPUModel{Vendor: "GenuineIntel", Name: "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", Family: 6,
		Model: 85, Flags: []string{"lm", "vmx", "ept", "pdpe1gb", "constant_tsc"}}
	all := nodes * cores
	h.Topology.Online, h.Present = farm.CPURange(0, 2*all), farm.CPURange(0, 2*all)
	for n := range nodes {
		first := n * cores
		cpus := farm.CPURange(first, first+cores).Or(farm.CPURange(all+first, all+first+cores))
		h.Topology.Nodes = append(h.Topology.Nodes, farm.Node{ID: n, CPUs: cpus, Memory: memory,
			Pages: []farm.HugePages{{Size: 2 * farm.MiB}, {Size: farm.GiB}}})
		h.Topology.L3 = append(h.Topology.L3, cpus)
		h.Topology.Sockets = append(h.Topology.Sockets, farm.Socket{ID: n, CPUs: cpus})
		for c := range cores {
			h.Topology.Cores = append(h.Topology.Cores,
				farm.Core{Socket: n, Node: n, Threads: farm.NewCPUSet(first+c, all+first+c)})
		}
	}
	if nodes > 1 {
		h.Sysctl["kernel.numa_balancing"] = "1" // the kernel's default there
	}
	h.Clocks = []farm.Governor{{CPUs: h.Topology.Online, Name: "powersave", Driver: "intel_pstate",
		Preference: "balance_performance"}}
	h.Idle = []farm.IdleState{{Name: "C1", LatencyMicros: 2, Enabled: h.Topology.Online},
		{Name: "C6", LatencyMicros: 133, Enabled: h.Topology.Online}}
	return h
}

// plainVM is what virt-install makes when nobody asks for more.
func plainVM(name string, vcpus int, memory farm.Bytes) farm.Domain {
	return farm.Domain{Name: name, Type: "kvm", Running: true, Machine: "pc-q35-7.2", VCPUs: vcpus, Memory: memory,
		CPUMode: "host-passthrough", Balloon: "virtio", Timers: map[string]string{"hpet": "no"},
		Disks: []farm.DomainDisk{{Target: "vda", Bus: "virtio", Format: "qcow2", Device: "disk",
			Path: "/var/lib/libvirt/images/" + name + ".qcow2", Size: 20 * farm.GiB, Cluster: 64 * farm.KiB,
			Discard: "unmap"}}, NICs: []farm.DomainNIC{{Model: "virtio", Kind: "network"}}}
}

// What the audit says of hosts that nothing is wrong with: no fault, and of warnings only those that an expert would
// sign.
func TestOrdinaryHosts(t *testing.T) {
	epyc := func(h farm.HostFacts) farm.HostFacts {
		h.Topology.CPU = farm.CPUModel{Vendor: "AuthenticAMD", Name: "AMD EPYC 7702 64-Core Processor", Family: 23,
			Model: 49, Flags: []string{"lm", "svm", "npt", "pdpe1gb", "constant_tsc"}}
		h.KVM.Params = map[string]string{"kvm_amd.npt": "1", "kvm_amd.nested": "1"}
		h.Clocks = []farm.Governor{{CPUs: h.Topology.Online, Name: "schedutil", Driver: "acpi-cpufreq"}}
		return h
	}
	with := func(h farm.HostFacts, vms ...farm.Domain) farm.HostFacts { h.Domains = vms; return h }
	vms := []farm.Domain{plainVM("web", 2, 4*farm.GiB), plainVM("db", 4, 16*farm.GiB)}
	ubuntu := ordinary(2, 20, 96*farm.GiB)
	ubuntu.OS = farm.OSRelease{ID: "ubuntu", Version: "24.04"}
	ubuntu.Kernel.Release, ubuntu.Versions.QEMU, ubuntu.THP.Enabled = "6.8.0-48-generic", "8.2.2", "madvise"
	ubuntu.Sysctl["kernel.core_pattern"] = "|/usr/share/apport/apport"
	alma := ordinary(2, 20, 96*farm.GiB)
	alma.OS, alma.Kernel.Release, alma.Versions.QEMU = farm.OSRelease{ID: "almalinux",
		Version: "9.4"}, "5.14.0-427.el9.x86_64", "8.2.0"
	alma.Services = map[string]farm.Service{"tuned": {Running: true, Enabled: true}}
	alma.TunedProfile = "virtual-host"
	alma.Clocks[0].Name, alma.Clocks[0].Preference = "performance", "performance"
	desktop := ordinary(1, 8, 32*farm.GiB)
	desktop.Topology.CPU.Name, desktop.Topology.CPU.Model = "13th Gen Intel(R) Core(TM) i7-13700", 183
	desktop.Services = map[string]farm.Service{"power-profiles-daemon": {Running: true, Enabled: true}}
	nested := ordinary(1, 2, 16*farm.GiB)
	nested.Virtual, nested.Clocks, nested.Idle, nested.SMT, nested.Kernel.Clock =
		true, nil, nil, "notsupported", "kvm-clock"
	bare := ordinary(1, 16, 64*farm.GiB)
	bare.Memory.SwapTotal, bare.Memory.SwapFree = 0, 0
	pool := with(ordinary(1, 16, 64*farm.GiB), plainVM("a", 4, 8*farm.GiB), plainVM("b", 4, 8*farm.GiB))
	for i := range pool.Domains {
		pool.Domains[i].VCPUPins = map[int]farm.CPUSet{}
		for vcpu := range pool.Domains[i].VCPUs {
			pool.Domains[i].VCPUPins[vcpu] = farm.CPURange(4, 16).Or(farm.CPURange(20, 32))
		}
	}
	for _, c := range []struct {
		name             string
		h                farm.HostFacts
		service, compute []string // warnings
	}{
		{"Debian 12, one node, no VM", ordinary(1, 16, 64*farm.GiB), nil, []string{"hugepages-none"}},
		{"Debian 12, two nodes, VMs", with(ordinary(2, 16, 64*farm.GiB), vms...), nil, []string{"hugepages-none"}},
		{"Ubuntu 24.04, two nodes, VMs", with(ubuntu, vms...), nil, []string{"hugepages-none"}},
		{"AlmaLinux 9, two nodes, VMs, tuned", with(alma, vms...), nil, []string{"hugepages-none"}},
		{"EPYC, NPS1", with(epyc(ordinary(2, 64, 256*farm.GiB)), vms...), nil, []string{"hugepages-none"}},
		{"EPYC, NPS4", with(epyc(ordinary(8, 16, 64*farm.GiB)), vms...), nil, []string{"hugepages-none"}},
		{"Xeon, SNC, a VM of half a socket", with(ordinary(4, 10, 48*farm.GiB), plainVM("job", 20, 40*farm.GiB)), nil,
			[]string{"hugepages-none", "vm-not-pinned"}},
		{"a desktop", with(desktop, plainVM("test", 2, 4*farm.GiB)), nil, []string{"hugepages-none"}},
		{"a VM itself", with(nested, plainVM("inner", 2, 4*farm.GiB)), nil, []string{"hugepages-none"}},
		{"without swap", with(bare, vms...), nil, []string{"hugepages-none"}},
		{"a pool of vCPUs that VMs share on purpose", pool, nil, []string{"hugepages-none"}},
	} {
		for role, want := range map[Role][]string{Service: c.service, Compute: c.compute} {
			t.Run(fmt.Sprintf("%s as %s", c.name, role), func(t *testing.T) {
				var got []string
				for _, f := range audited(c.h, Choose(c.h, role)) {
					t.Logf("%v %s %s: %s", f.Severity, f.Rule, f.Where, f.Got)
					if f.Severity == Fault {
						t.Errorf("a fault: %s %s: %s", f.Rule, f.Where, f.Got)
					}
					if f.Severity == Warning && !slices.Contains(got, f.Rule) {
						got = append(got, f.Rule)
					}
				}
				slices.Sort(got)
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("warnings:\n%s", d)
				}
			})
		}
	}
}
