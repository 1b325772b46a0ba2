package tuning

import (
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmStartGrace() Rule {
	return Rule{
		ID:       "vm-start-grace",
		Title:    "each start of a VM waits for a grace period of the kernel's RCU",
		Severity: Advice,
		Holds: "Linux 6.0 to 6.12 with control groups of version 2, where KVM starts a thread for each VM that gives " +
			"huge pages back which the protection against iTLB multihit has split.",
		Cost: "Time of each start; tens of milliseconds on a busy host. Firecracker's maintainers saw starts become " +
			"slower with Linux 6.1. Throughput of a running VM is the same.",
		Sources: []Source{
			{"Firecracker, production host setup, Linux 6.1 boot time regressions",
				"https://github.com/firecracker-microvm/firecracker/blob/main/docs/prod-host-setup.md",
				"mounting control groups with favordynmods, or kvm.nx_huge_pages=never, takes the regression away"},
			kernelDoc("admin-guide/cgroup-v2",
				"favordynmods reduces the latencies of dynamic modifications such as migrations of tasks, at the cost of "+
					"making hot path operations such as forks and exits more expensive"),
		},
		Why: "The thread joins the control groups of QEMU when it starts. Since Linux 6.0 such a move waits until every " +
			"CPU has passed through the scheduler, which is long on a host whose CPUs are busy. Hosts that start many " +
			"short jobs pay it each time.",
		Fix: "Mount /sys/fs/cgroup with favordynmods. Where the processor does not have the flaw, and the kernel knows " +
			"the word, kvm.nx_huge_pages=never does it too.",
		Danger: "Processes of the host start and end a little more slowly with favordynmods.",
		Undo:   "mount -o remount,nofavordynmods /sys/fs/cgroup, and put the old kvm.nx_huge_pages back.",
		Check:  checkVMStartGrace,
	}
}

func checkVMStartGrace(h farm.HostFacts, _ Profile) []Finding {
	pages, known := h.KVM.Params["kvm.nx_huge_pages"]
	release := h.Kernel.Release
	if !known || pages == "never" || h.Virtual || !since(release, 6, 0) || !before(release, 6, 13) {
		return nil
	}
	for _, m := range h.Mounts {
		if m.Type != "cgroup2" || m.Path != "/sys/fs/cgroup" || slices.Contains(m.Options, "favordynmods") {
			continue
		}
		manual := "mount -o remount,favordynmods /sys/fs/cgroup, now and at each boot"
		if strings.HasPrefix(h.Vulnerabilities["itlb_multihit"], "Not affected") {
			manual += "; or set kvm.nx_huge_pages=never where the kernel knows that word, and load kvm anew while no VM runs"
		}
		return []Finding{{Severity: Advice, Where: "host", Wanted: "control groups with favordynmods",
			Got:    "/sys/fs/cgroup is mounted without favordynmods, and kvm.nx_huge_pages is " + pages,
			Manual: manual}}
	}
	return nil
}
