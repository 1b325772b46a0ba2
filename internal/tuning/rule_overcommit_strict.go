package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func overcommitStrict() Rule {
	return Rule{
		ID:       "overcommit-strict",
		Title:    "the kernel refuses memory to VMs while much of it is free (vm.overcommit_memory is 2)",
		Severity: Fault,
		Holds: "All kernels. The limit, CommitLimit, is overcommit_ratio percent of memory outside of huge pages, " +
			"plus swap.",
		Cost: "VMs in ordinary memory do not start: QEMU reports that it cannot allocate memory.",
		Sources: []Source{
			kernelDoc("mm/overcommit-accounting",
				"mode 2 refuses what would exceed swap plus a share, by default half, of physical memory; address "+
					"space counts, whether touched or not"),
		},
		Why: "With mode 2 the kernel counts promised address space, not used memory. A guest's memory counts in full " +
			"when QEMU starts, on top of the address space of QEMU's own threads, and the default share is half of " +
			"the memory. " + "So a host refuses new VMs when half of its memory is still free. The mode was made for " +
			"hosts where a refused allocation is better than the OOM killer; with VMs the sum is kept by whoever " +
			"places them.",
		Fix:    "Write 0 to vm.overcommit_memory, the kernel's default.",
		Danger: "Other programs on the host may be promised more memory than there is.",
		Undo:   "Write 2 again.",
		Check:  checkOvercommitStrict,
	}
}

func checkOvercommitStrict(h farm.HostFacts, _ Profile) []Finding {
	free := available(h)
	limit, used := h.Memory.CommitLimit, h.Memory.Committed
	if h.Sysctl["vm.overcommit_memory"] != "2" || limit == 0 || !runsVMs(h) {
		return nil
	}
	var left farm.Bytes
	if limit > used {
		left = limit - used
	}
	if left >= free {
		return nil
	}
	return []Finding{{Severity: Fault, Where: "host", Wanted: "vm.overcommit_memory is 0",
		Got:     fmt.Sprintf("it is 2: %s can still be promised, %s are available", roughly(left), roughly(free)),
		Changes: []Change{{Kind: SetValue, Path: "proc/sys/vm/overcommit_memory", Value: "0"}}}}
}
