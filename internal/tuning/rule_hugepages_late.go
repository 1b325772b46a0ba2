package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func hugepagesLate() Rule {
	return Rule{
		ID:       "hugepages-late",
		Title:    "huge pages were reserved on the running system and are not on the kernel's command line",
		Severity: Warning,
		Holds:    "Hosts with static huge pages; most of all with pages of 1 GiB.",
		Cost: "Nothing while they are there. After a reboot the pool may be smaller or uneven: a node that has " +
			"lost one contiguous gibibyte gives one page less. Not measured.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/hugetlbpage",
				"boot is the most reliable moment to reserve pages, as memory is not yet fragmented; later, success "+
					"depends on contiguous memory"),
			cernHugePages("even at boot pages of 1 GiB came unevenly, 29 and 31, because something had used memory " +
				"before"),
		},
		Why: "A huge page needs contiguous memory of its size. At power-on nearly all memory is contiguous; each " +
			"program that starts breaks some of it for good. A pool that is filled by sysctl, a script or an " +
			"administrator " + "gets what is left: today perhaps everything, after the next reboot, with another " +
			"order of services, less. VMs that fitted yesterday then do not start.",
		Fix:   "Write the pool on the kernel's command line.",
		Undo:  "Take the parameters off the command line.",
		Check: checkHugepagesLate,
	}
}

func checkHugepagesLate(h farm.HostFacts, p Profile) []Finding {
	if h.Kernel.Command == "" && h.Kernel.BootFile == "" || pagesChangeAtBoot(h.Kernel) || wrongPool(h, p) {
		return nil // a pool that has to change first is put on the command line with that change
	}
	asked := slices.Concat(bootPools(h, h.Kernel.Command), bootPools(h, h.Kernel.NextBoot))
	var out []Finding
	for _, size := range sizesInUse(h) {
		if slices.ContainsFunc(asked, func(b bootPool) bool { return b.size == size && b.total > 0 }) {
			continue
		}
		if size < farm.GiB && h.Kernel.BootFile == "" {
			continue // small pages can be had at run time, and there is no better place
		}
		f := Finding{Severity: Advice, Where: "pages of " + pageName(size),
			Wanted: "reserved on the kernel's command line",
			Got:    fmt.Sprintf("%d pages, none of them on the command line", staticPages(h, size))}
		if size >= farm.GiB {
			f.Severity = Warning
		}
		if counts := heldPages(h, size); len(sizesInUse(h)) == 1 && h.Kernel.BootFile != "" && len(asked) == 0 {
			f.Changes = bootPageChanges(h, size, counts)
		} else {
			f.Manual = fmt.Sprintf("put hugepagesz=%s hugepages=%s on the kernel's command line", bootSize(size),
				bootCount(h, counts))
		}
		out = append(out, f)
	}
	return out
}

// heldPages are the pages of a size by node, or all on the first where nodes do not tell.
func heldPages(h farm.HostFacts, size farm.Bytes) []nodePages {
	var out []nodePages
	for _, n := range nodeCounts(h.Topology.Nodes, size) {
		if n.count > 0 {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		out = []nodePages{{0, staticPages(h, size)}}
	}
	return out
}

// wrongPool reports whether the host has other numbers of huge pages than it should have.
func wrongPool(h farm.HostFacts, p Profile) bool {
	return len(checkHugepagesUneven(h, p)) > 0 || len(checkHugepagesTooMany(h, p)) > 0
}
