package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func hugepagesNone() Rule {
	return Rule{
		ID:       "hugepages-none",
		Title:    "no huge pages are reserved for VMs",
		Severity: Warning,
		Holds: "x86 hosts whose profile wants static huge pages. Pages of 2 MiB work everywhere; 1 GiB needs the " +
			"processor flag pdpe1gb and, on several nodes, a kernel that takes a number for each (5.16).",
		Cost: "With EPT on and small pages HS06 was 6 % lower than with EPT off (CERN, 2015); EPT on with 2 MiB " +
			"pages took the place of both. No figure was published for that.",
		Sources: []Source{
			cernHugePages("EPT slows HS06 by 6 % with small pages, because it misses the TLB often, and comes good " +
				"with large pages; transparent huge pages are opportunistic and end at 2 MiB; 2 MiB pages were " +
				"deployed and system time fell"),
			{"Bhargava et al., \"Accelerating Two-Dimensional Page Walks for Virtualized Systems\", ASPLOS 2008", "",
				"a walk of guest and host tables of four levels each reads memory up to 24 times; native, 4 times"},
			kernelDoc("admin-guide/mm/hugetlbpage",
				"reserving pages on the kernel's command line is the most reliable way, as memory is not yet "+
					"fragmented"),
		},
		Why: "Every access of a guest to memory goes through two sets of page tables. When the translation is not in " +
			"the TLB, walking both takes up to 24 reads with small pages, and far fewer with large ones, " +
			"which also miss less often. Transparent huge pages give large pages when there happen to be free ones, and " +
			"a host that has run for weeks has few. Pages reserved at boot are there for every VM, " +
			"on the node where it runs, and can neither be swapped out nor scanned by KSM.",
		Fix: "Reserve the profile's share of each node's memory, less what the host's own programs use: on the " +
			"kernel's command line, and for 2 MiB pages also at once while no VM runs.",
		Danger: "Reserved memory is for VMs with huge pages only: VMs that are not defined to use them have the " +
			"rest. Change the VMs' definitions first; until they fit beside the pool, this audit offers no change.",
		Undo:  "Write 0 to nr_hugepages and take the parameters off the command line.",
		Check: checkHugepagesNone,
	}
}

func checkHugepagesNone(h farm.HostFacts, p Profile) []Finding {
	size, ok := pageSize(h, p)
	if !ok || staticMemory(h) > 0 || len(sizesInUse(h)) > 0 {
		return nil
	}
	pages := wantedPages(h, p, size)
	if len(pages) == 0 {
		return nil
	}
	wanted := fmt.Sprintf("pages of %s: %s", pageName(size), pagesInWords(pages))
	if h.Kernel.BootFile != "" && size >= farm.GiB {
		wanted += " (takes effect at the next boot)"
	}
	f := Finding{Severity: Warning, Where: "host", Wanted: wanted,
		Got: "none reserved; transparent huge pages: " + orUnknown(h.THP.Enabled)}
	if f.Manual = leftOut(h, p, size, pages); f.Manual == "" {
		f.Changes = pageChanges(h, size, pages)
	}
	return []Finding{f}
}

// leftOut reports VMs in ordinary memory that would not fit beside the pages: started there, they would make the host
// swap. It is "" where they fit.
func leftOut(h farm.HostFacts, p Profile, size farm.Bytes, pages []nodePages) string {
	taken := ownNeed(h, p)
	for _, n := range pages {
		taken += farm.Bytes(n.count) * size
	}
	var left, ordinary farm.Bytes
	if taken < h.Memory.Total {
		left = h.Memory.Total - taken
	}
	vms := 0
	for _, d := range h.Domains {
		if !d.Ours && !d.HugePages && len(d.Pages) == 0 {
			ordinary += d.Memory
			vms++
		}
	}
	if ordinary <= left {
		return ""
	}
	return fmt.Sprintf("first give %s <memoryBacking><hugepages/>: they have %s of ordinary memory, and %s would be "+
		"left; then audit again", farm.Count(vms, "VM"), roughly(ordinary), roughly(left))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
