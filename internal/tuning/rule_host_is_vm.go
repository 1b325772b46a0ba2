package tuning

import "github.com/grange-project/grange/internal/farm"

func hostIsVM() Rule {
	return Rule{
		ID:       "host-is-vm",
		Title:    "this host is a virtual machine itself: its VMs are nested",
		Severity: Advice,
		Holds:    "x86 machines whose processor shows the hypervisor flag and that have QEMU or VMs.",
		Cost: "6 to 8 % on top of one level of virtualisation for common loads in the paper that brought nesting " +
			"to KVM (SPECjbb and kernel builds on Intel, 2010); more where guests leave for the host often. Not " +
			"measured with HS06.",
		Sources: []Source{
			{"Ben-Yehuda et al., \"The Turtles Project: Design and Implementation of Nested Virtualization\", OSDI " +
				"2010",
				"https://research.ibm.com/publications/the-turtles-project-design-and-implementation-of-nested-virtualization", "nested virtualisation came within 6 to 8 % of single-level virtualisation for common workloads"},
			kernelDoc("virt/kvm/x86/running-nested-guests", "what nesting is, and what it restricts"),
		},
		Why: "Each exit of a nested guest goes to the outer hypervisor first, which hands it to this one: one exit " +
			"becomes many. What this host calls a CPU is a vCPU that the outer host may move or share, " +
			"its NUMA nodes and huge pages may be make-believe, and settings such as governor, C-states or SMT do " +
			"nothing here. Good for tests and for development; for production jobs measure first.",
		Fix: "Run jobs directly in VMs of the outer host, or on bare metal. Where the outer host is yours, give this VM " +
			"pinned CPUs, huge pages and NUMA cells like those of the metal.",
		Undo:  "Nothing is changed.",
		Check: checkHostIsVM,
	}
}

func checkHostIsVM(h farm.HostFacts, _ Profile) []Finding {
	if !h.Virtual || !runsVMs(h) {
		return nil
	}
	return []Finding{{Severity: Advice, Where: "host", Wanted: "VMs on bare metal",
		Got:    "the processor has the hypervisor flag",
		Manual: "run the jobs' VMs on the outer host, or measure what nesting costs your jobs and accept it"}}
}
