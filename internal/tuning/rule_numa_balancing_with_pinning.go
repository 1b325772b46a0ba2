package tuning

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func numaBalancingWithPinning() Rule {
	return Rule{
		ID:       "numa-balancing-with-pinning",
		Title:    "the kernel moves memory between nodes by itself, which VMs bound to nodes only pay for",
		Severity: Warning,
		Holds:    "Hosts with several nodes and Linux 3.8 or later, where VMs are pinned, or the profile wants them pinned.",
		Cost:     "Not measured with HS06: page faults that bring nothing, as bound memory cannot move. Static huge pages are not scanned.",
		Sources: []Source{
			kernelDoc("admin-guide/sysctl/kernel", "numa_balancing unmaps pages to see who faults on them, which costs; where a workload is bound to nodes already it should be disabled"),
		},
		Why: "To find out which node uses a page, the kernel takes the page out of the page tables now and then and waits for the fault. For programs that may run anywhere that is worth its price. A pinned VM with bound memory has nowhere to go: " +
			"its faults are pure loss, and in a guest each is an exit to the host's kernel.",
		Fix:   "Write 0 to kernel.numa_balancing.",
		Undo:  "Write 1 again.",
		Check: checkNUMABalancingWithPinning,
	}
}

func checkNUMABalancingWithPinning(h farm.Host, p Profile) []Finding {
	value := h.Sysctl["kernel.numa_balancing"] // bit 1 alone only moves pages between fast and slow memory
	if value != "1" && value != "3" || len(guestNodes(h)) < 2 {
		return nil
	}
	bound := slices.ContainsFunc(h.Domains, func(d farm.Domain) bool { return len(d.VCPUPins) > 0 && d.MemoryMode == "strict" })
	if p.NUMABalancing == "on" || p.NUMABalancing == "" && !bound {
		return nil
	}
	got := "kernel.numa_balancing is " + value
	if bound {
		got += ", and VMs are bound to nodes"
	}
	return []Finding{{Severity: Warning, Where: "host", Wanted: "kernel.numa_balancing is 0", Got: got,
		Changes: []Change{{Kind: SetValue, Path: "proc/sys/kernel/numa_balancing", Value: "0"}}}}
}
