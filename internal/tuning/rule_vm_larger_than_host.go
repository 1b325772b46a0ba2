package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmLargerThanHost() Rule {
	return Rule{
		ID:       "vm-larger-than-host",
		Title:    "a VM has more vCPUs than the host has CPUs",
		Severity: Warning,
		Holds:    "All hosts and guests.",
		Cost: "Not measured by the sources: at no time can all vCPUs run, so a program that uses them all waits " +
			"for those that do not.",
		Sources: []Source{
			kernelDoc("virt/kvm/api",
				"KVM_CAP_NR_VCPUS is the recommended limit of vCPUs for a VM; x86 hosts answer with the number of "+
					"their online CPUs"),
			redHatTuning("vCPU pinning and NUMA",
				"sect-virtualization_tuning_optimization_guide-numa-numa_and_libvirt-domain_vcpu_threads",
				"vCPUs belong one to one on the host's CPUs, and a VM larger than a node gets guest cells"),
		},
		Why: "vCPUs are threads of the host. A VM with more of them than there are CPUs competes with itself: a " +
			"guest thread that holds a lock may be off the CPU while the others spin for it, and the guest counts on " +
			"CPUs that never run together. " +
			"It happens when CPUs of the host were taken offline, when SMT was switched off, or when a definition came " +
			"from a larger machine. The steal time that the guest shows is its own.",
		Fix:    "Give the VM at most as many vCPUs as the host has CPUs, less those kept for the host.",
		Danger: "Jobs sized for the old number of CPUs no longer fit into the VM.",
		Undo:   "Put the old number back.",
		Check:  checkVMLargerThanHost,
	}
}

func checkVMLargerThanHost(h farm.HostFacts, _ Profile) []Finding {
	online := h.Topology.Online.Len()
	if online == 0 {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		if d.VCPUs > online {
			out = append(out, Finding{Severity: Warning, Where: vmName(d),
				Wanted: fmt.Sprintf("at most %d vCPUs", online), Got: fmt.Sprintf("%d vCPUs", d.VCPUs),
				Manual: edit(d, fmt.Sprintf(
					"write <vcpu placement='static'>%d</vcpu>, and let <topology>, <numa> and <cputune> say the same",
					online))})
		}
	}
	return out
}
