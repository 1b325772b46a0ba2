package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func numaBalancingWithPinning() Rule {
	return Rule{
		ID:       "numa-balancing-with-pinning",
		Title:    "the kernel moves memory between nodes by itself, which VMs bound to nodes only pay for",
		Severity: Warning,
		Holds: "Hosts with several nodes and Linux 3.8 or later, where VMs are bound to nodes (a warning), or the " +
			"profile wants it off. VMs that float in ordinary memory gain from it: where there are any, pinning " +
			"comes first.",
		Cost: "Not measured with HS06: page faults that bring nothing, as bound memory cannot move. Static huge " +
			"pages are not scanned.",
		Sources: []Source{
			kernelDoc("admin-guide/sysctl/kernel",
				"numa_balancing unmaps pages to see who faults on them, which costs; where a workload is bound to "+
					"nodes already it should be disabled"),
		},
		Why: "To find out which node uses a page, the kernel takes the page out of the page tables now and then and " +
			"waits for the fault. For programs that may run anywhere that is worth its price. A pinned VM with bound " +
			"memory has nowhere to go: " +
			"its faults are pure loss, and in a guest each is an exit to the host's kernel.",
		Fix:   "Write 0 to kernel.numa_balancing.",
		Undo:  "Write 1 again.",
		Check: checkNUMABalancingWithPinning,
	}
}

func checkNUMABalancingWithPinning(h farm.HostFacts, p Profile) []Finding {
	value := h.Sysctl["kernel.numa_balancing"] // bit 1 alone only moves pages between fast and slow memory
	if value != "1" && value != "3" || len(guestNodes(h)) < 2 {
		return nil
	}
	bound := slices.ContainsFunc(h.Domains, func(d farm.Domain) bool {
		return len(d.VCPUPins) > 0 &&
			d.MemoryMode == "strict"
	})
	if p.NUMABalancing == "on" || p.NUMABalancing == "" && !bound {
		return nil
	}
	f := Finding{Severity: Advice, Where: "host", Wanted: "kernel.numa_balancing is 0",
		Got: "kernel.numa_balancing is " + value}
	if bound {
		f.Severity = Warning
		f.Got += ", and VMs are bound to nodes"
	}
	if name := floats(h); name != "" {
		f.Got += fmt.Sprintf("; VM %s floats, and the kernel's moving helps it", name)
		f.Manual = "pin the VMs and bind their memory first, then write 0 to /proc/sys/kernel/numa_balancing"
		return []Finding{f}
	}
	f.Changes = []Change{{Kind: SetValue, Path: "proc/sys/kernel/numa_balancing", Value: "0"}}
	return []Finding{f}
}

// floats names a running VM in ordinary memory whose vCPUs may go to any CPU; "" when there is none.
func floats(h farm.HostFacts) string {
	for _, d := range h.Domains {
		_, confined := confinedCPUs(h, d)
		if d.Running && !confined && !d.VCPUAuto && !d.HugePages && len(d.Pages) == 0 {
			return d.Name
		}
	}
	return ""
}
