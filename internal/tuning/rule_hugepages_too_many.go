package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func hugepagesTooMany() Rule {
	return Rule{
		ID:       "hugepages-too-many",
		Title:    "huge pages leave the host too little memory for its own programs",
		Severity: Warning,
		Holds:    "Hosts with static huge pages and a profile that says what the host needs itself.",
		Cost: "Not measured as such. QEMU's own memory, page cache and daemons must share the rest; when it is " +
			"gone the host swaps, or the OOM killer ends VMs.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/hugetlbpage",
				"pages in the pool are used for nothing else and cannot be swapped out under memory pressure"),
			{"Moreira et al. (CERN), \"CPU optimizations in the CERN Cloud\", OpenStack Ops Midcycle, Manchester 2016",
				"https://es.slideshare.net/moreirabelmiro/cpu-optimizations-in-the-cern-cloud",
				"compute nodes began to swap even with 2 GB left for the system"},
		},
		Why: "Free memory in a pool of huge pages is not free memory to the kernel: it cannot lend it out, even " +
			"when nobody uses it. What remains must hold the kernel, QEMU's own memory for each VM, the file cache " +
			"of write-back disks, the agent and monitoring. A host with too much in the pool looks half empty in its " +
			"statistics and swaps all the same.",
		Fix:    "Make the pool smaller, to the profile's share of each node.",
		Danger: "Fewer VMs fit. Pages that VMs hold stay until these end.",
		Undo:   "Put the old number back.",
		Check:  checkHugepagesTooMany,
	}
}

func checkHugepagesTooMany(h farm.HostFacts, p Profile) []Finding {
	pool := staticMemory(h)
	if p.Reserved == 0 || h.Memory.Total == 0 || pool == 0 || pool+p.Reserved <= h.Memory.Total {
		return nil
	}
	left := farm.Bytes(0)
	if pool < h.Memory.Total {
		left = h.Memory.Total - pool
	}
	f := Finding{Severity: Warning, Where: "host",
		Wanted: fmt.Sprintf("%s left for the host's own programs", roughly(p.Reserved)),
		Got:    fmt.Sprintf("%s in huge pages, %s left", roughly(pool), roughly(left))}
	sizes := sizesInUse(h)
	if uneven := checkHugepagesUneven(h, p); len(uneven) > 0 {
		f.Changes, f.Manual = uneven[0].Changes, uneven[0].Manual // one change of the pools mends both
		return []Finding{f}
	}
	if len(sizes) == 1 && !pagesChangeAtBoot(h.Kernel) {
		if pages := wantedPages(h, p, sizes[0]); len(pages) > 0 {
			f.Wanted += fmt.Sprintf(": pages of %s: %s", pageName(sizes[0]), pagesInWords(pages))
			f.Changes = append(livePageChanges(h, sizes[0], pages), bootPageChanges(h, sizes[0], pages)...)
			return []Finding{f}
		}
	}
	f.Manual = "ask for fewer pages, on the command line and in nr_hugepages"
	return []Finding{f}
}
