package tuning

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// Conditions of rules that one pair of trees cannot show: what is found, and how bad it is.
func TestConditions(t *testing.T) {
	host := func(change func(h *farm.HostFacts)) farm.HostFacts {
		h := ordinary(2, 4, 32*farm.GiB)
		change(&h)
		return h
	}
	governor := func(name, driver, preference string) farm.HostFacts {
		return host(func(h *farm.HostFacts) {
			h.Clocks = []farm.Governor{{CPUs: h.Topology.Online, Name: name, Driver: driver, Preference: preference}}
		})
	}
	disk := func(kernel, scheduler string, others ...string) farm.HostFacts {
		return host(func(h *farm.HostFacts) {
			h.Kernel.Release = kernel
			h.Disks = []farm.BlockDevice{{Name: "sdb", Rotational: true, Scheduler: scheduler,
				Schedulers: append(others, scheduler)}}
		})
	}
	booted := func(parameter string) farm.HostFacts {
		return host(func(h *farm.HostFacts) {
			h.Kernel.BootFile, h.Kernel.NextBoot = "/etc/default/grub", "quiet "+parameter
			h.Vulnerabilities = map[string]string{"vmscape": "Vulnerable"}
		})
	}
	nx := func(flaw, value string) farm.HostFacts {
		return host(func(h *farm.HostFacts) {
			h.Vulnerabilities = map[string]string{"itlb_multihit": flaw}
			h.KVM.Params = map[string]string{"kvm.nx_huge_pages": value}
		})
	}
	bound := farm.Domain{Name: "bound", Running: true, VCPUs: 1, VCPUPins: map[int]farm.CPUSet{0: farm.NewCPUSet(1)},
		MemoryMode: "strict"}
	option := []farm.ModuleOption{{Path: "etc/modprobe.d/kvm.conf", Module: "kvm_intel", Name: "ept", Value: "0"}}
	compute, service := Profile{Role: Compute, Governor: "performance", NUMABalancing: "off"}, Profile{Role: Service,
		MaxIdleLatency: 100}
	for _, c := range []struct {
		name  string
		check func(farm.HostFacts, Profile) []Finding
		h     farm.HostFacts
		p     Profile
		want  Severity // 0: nothing
		mends bool     // by changes
	}{
		{"powersave of acpi-cpufreq", checkGovernorSlow, governor("powersave", "acpi-cpufreq", ""), compute,
			Fault, true},
		{"powersave of intel_pstate", checkGovernorSlow, governor("powersave", "intel_pstate", "balance_performance"),
			compute, Advice, true},
		{"powersave of intel_pstate without preferences", checkGovernorSlow, governor("powersave", "intel_pstate", ""),
			compute, Advice, true},
		{"schedutil", checkGovernorSlow, governor("schedutil", "acpi-cpufreq", ""), compute, Advice, true},
		{"deep states", checkCStatesDeep, host(func(*farm.HostFacts) {}), service, Advice, false},
		{"deep states below a latency request", checkCStatesDeep, host(func(h *farm.HostFacts) {
			h.TunedProfile, h.Services = "latency-performance", map[string]farm.Service{"tuned": {Running: true}}
		}), service, 0, false},
		{"deep states below virtual-host, whose limit may be longer", checkCStatesDeep, host(func(h *farm.HostFacts) {
			h.TunedProfile, h.Services = "virtual-host", map[string]farm.Service{"tuned": {Running: true}}
		}), service, Advice, false},
		{"balancing, VMs bound", checkNUMABalancingWithPinning,
			host(func(h *farm.HostFacts) { h.Domains = []farm.Domain{bound} }), compute, Warning, true},
		{"balancing, no VM", checkNUMABalancingWithPinning, host(func(*farm.HostFacts) {}), compute, Advice, true},
		{"balancing, a VM floats", checkNUMABalancingWithPinning,
			host(func(h *farm.HostFacts) { h.Domains = []farm.Domain{plainVM("a", 2, farm.GiB)} }), compute,
			Advice, false},
		{"EPT off at the next load", checkEPTOffNextLoad, host(func(h *farm.HostFacts) { h.KVM.Options = option }),
			compute, Warning, true},
		{"EPT off at the next load, on AMD", checkEPTOffNextLoad,
			host(func(h *farm.HostFacts) { h.KVM.Options, h.Topology.CPU.Flags = option, []string{"svm"} }),
			compute, 0, false},
		{"the last CPUs are offline", checkCPUsOffline,
			host(func(h *farm.HostFacts) { h.Topology.Online = farm.CPURange(0, 12) }), compute, Warning, false},
		{"SMT is off", checkCPUsOffline,
			host(func(h *farm.HostFacts) { h.Topology.Online, h.SMT = farm.CPURange(0, 8), "off" }), compute, 0, false},
		{"THP never, a profile without a word", checkTHPPolicy,
			host(func(h *farm.HostFacts) { h.THP.Enabled = "never" }), service, Warning, true},
		{"THP always, a profile without a word", checkTHPPolicy, host(func(*farm.HostFacts) {}), service, 0, false},
		{"emulation of x86", checkVMTypeQEMU,
			host(func(h *farm.HostFacts) {
				h.Domains = []farm.Domain{{Name: "a", Type: "qemu",
					Machine: "pc-q35-7.2"}}
			}), compute, Fault, false},
		{"emulation of ARM", checkVMTypeQEMU,
			host(func(h *farm.HostFacts) { h.Domains = []farm.Domain{{Name: "a", Type: "qemu", Machine: "virt-7.2"}} }),
			compute, 0, false},
		{"pages of 1 GiB without a mount, and no VM asks", checkHugetlbfsUnmounted,
			host(func(h *farm.HostFacts) { h.Topology.Nodes[0].Pages[1].Total = 4 }), compute, Warning, false},
		{"pages of 1 GiB without a mount, and a VM asks", checkHugetlbfsUnmounted, host(func(h *farm.HostFacts) {
			h.Topology.Nodes[0].Pages[1].Total = 4
			h.Domains = []farm.Domain{{Name: "a", HugePages: true, Pages: []farm.DomainPages{{Size: farm.GiB}}}}
		}), compute, Fault, false},
		{"a disk without a scheduler, RHEL 8", checkIOScheduler,
			disk("4.18.0-553.el8_10.x86_64", "none", "mq-deadline", "kyber"), compute, Advice, true},
		{"a disk without a scheduler, single-queue", checkIOScheduler, disk("4.18.0", "none"), compute, 0, false},
		{"a disk without a scheduler", checkIOScheduler, disk("6.1.0-28-amd64", "none"), compute, Advice, true},
		{"VMSCAPE", checkMitigationsOff, booted("vmscape=off"), compute, Warning, true},
		{"ITS", checkMitigationsOff, booted("indirect_target_selection=off"), compute, Warning, true},
		{"SRSO", checkMitigationsOff, booted("spec_rstack_overflow=off"), compute, Warning, true},
		{"attack vectors", checkMitigationsOff, booted("mitigations=auto;no_guest_host,no_user_user"), compute,
			Warning, true},
		{"attack vectors of others", checkMitigationsOff, booted("mitigations=auto;no_user_user"), compute, 0, false},
		{"splitting huge pages for nothing", checkNXHugePages, nx("Not affected", "Y"), compute, Advice, false},
		{"not splitting huge pages", checkNXHugePages, nx("KVM: Vulnerable", "N"), compute, Warning, false},
		{"huge pages are split", checkNXHugePages, nx("KVM: Mitigation: Split huge pages", "Y"), compute, 0, false},
	} {
		found := c.check(c.h, c.p)
		switch {
		case c.want == 0 && len(found) > 0, c.want != 0 && len(found) != 1:
			t.Errorf("%s: found\n%s", c.name, lines(found))
		case len(found) == 1 && (found[0].Severity != c.want || len(found[0].Changes) > 0 != c.mends):
			t.Errorf("%s: %v, %d changes, want %v", c.name, found[0].Severity, len(found[0].Changes), c.want)
		}
	}
}
