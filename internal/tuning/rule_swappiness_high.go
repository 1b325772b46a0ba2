package tuning

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/grange-project/grange/internal/farm"
)

func swappinessHigh() Rule {
	return Rule{
		ID:       "swappiness-high",
		Title:    "the kernel swaps guests' memory out more readily than the profile wants",
		Severity: Advice,
		Holds:    "Hosts with swap whose VMs do not live in static huge pages altogether: those cannot be swapped.",
		Cost:     "Not measured by itself. What it risks is that of host-swap-in-use: stalls of guests.",
		Sources: []Source{
			kernelDoc("admin-guide/sysctl/vm",
				"swappiness weighs the cost of swapping against that of dropping file pages; low values spare "+
					"anonymous memory, which guests' memory is"),
			cernTier0("hypervisors that swapped showed I/O wait; how much is not said"),
		},
		Why: "To the host a guest's memory is anonymous memory of QEMU. With the usual value of 60 the kernel may " +
			"put idle parts of it on disk to keep file cache, for instance of disk images that guests cache already. " +
			"When the job comes back to that memory, its VM stalls. A low value makes the kernel drop cache first and " +
			"swap only when there is nothing left to drop.",
		Fix:   "Set vm.swappiness to the profile's value.",
		Undo:  "Write the old value back.",
		Check: checkSwappinessHigh,
	}
}

func checkSwappinessHigh(h farm.HostFacts, p Profile) []Finding {
	n, err := strconv.Atoi(h.Sysctl["vm.swappiness"])
	if err != nil || p.Swappiness < 0 || n <= p.Swappiness || h.Memory.SwapTotal == 0 || allInHugePages(h) {
		return nil
	}
	return []Finding{{Severity: Advice, Where: "host", Wanted: fmt.Sprintf("vm.swappiness at most %d", p.Swappiness),
		Got:     fmt.Sprintf("vm.swappiness is %d", n),
		Changes: []Change{{Kind: SetValue, Path: "proc/sys/vm/swappiness", Value: fmt.Sprint(p.Swappiness)}}}}
}

// allInHugePages reports whether there are VMs and none of them is in ordinary memory.
func allInHugePages(h farm.HostFacts) bool {
	ordinary := func(d farm.Domain) bool { return !d.HugePages && len(d.Pages) == 0 }
	return len(h.Domains) > 0 && !slices.ContainsFunc(h.Domains, ordinary)
}
