package tuning

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func hugetlbUnaccounted() Rule {
	return Rule{
		ID:       "hugetlb-unaccounted",
		Title:    "huge pages do not count for the memory of control groups",
		Severity: Advice,
		Roles:    []Role{Compute},
		Holds: "Linux 6.6 and later with cgroup v2, on hosts with a pool of huge pages whose batch system limits " +
			"and accounts memory by control groups.",
		Cost: "Accounting: a job in huge pages seems to use next to no memory, and memory.max does not bound " +
			"what it takes of the pool.",
		Sources: []Source{
			kernelDoc("admin-guide/cgroup-v2",
				"memory_hugetlb_accounting counts huge pages towards the memory controller's limits; pages taken "+
					"before it was set do not count; it is a mount option of the first namespace"),
		},
		Why: "A control group's memory is ordinary pages only, unless the cgroup file system was mounted with " +
			"memory_hugetlb_accounting. A VM in huge pages is then nearly invisible to whoever reads memory.current " +
			"or memory.peak: the batch system's records say that the job used some hundred MiB. " +
			"With the option its memory counts as that of any job.",
		Fix: "Mount /sys/fs/cgroup with memory_hugetlb_accounting at boot, before anything takes huge pages: " +
			"mount -o remount,memory_hugetlb_accounting /sys/fs/cgroup.",
		Danger: "A group whose limit was set without its huge pages in mind meets the limit: raise memory.max, or " +
			"the job's request, by the size of its VM.",
		Undo:  "Remount without the option; pages that were counted stay so until they are freed.",
		Check: checkHugetlbUnaccounted,
	}
}

func checkHugetlbUnaccounted(h farm.HostFacts, _ Profile) []Finding {
	pooled := farm.Bytes(0)
	for _, p := range h.Pages {
		pooled += farm.Bytes(max(p.Total, 0)) * p.Size
	}
	if !since(h.Kernel.Release, 6, 6) || pooled < farm.GiB {
		return nil
	}
	for _, m := range h.Mounts {
		if m.Type == "cgroup2" && m.Path == "/sys/fs/cgroup" &&
			!slices.Contains(m.Options, "memory_hugetlb_accounting") {
			return []Finding{{Severity: Advice, Where: "/sys/fs/cgroup",
				Wanted: "mounted with memory_hugetlb_accounting",
				Got:    "without it, and " + roughly(pooled) + " are huge pages",
				Manual: "mount -o remount,memory_hugetlb_accounting /sys/fs/cgroup, early at boot"}}
		}
	}
	return nil
}
