package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func hugepagesSurplus() Rule {
	return Rule{
		ID:       "hugepages-surplus",
		Title:    "VMs hold huge pages beyond the pool, which vanish when they end",
		Severity: Advice,
		Holds:    "Hosts where the pool was made smaller while in use, or that allow nr_overcommit_hugepages.",
		Cost: "Not measured. The next VM of that size may not start: surplus pages go back to ordinary memory " +
			"when freed, and may not be found again.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/hugetlbpage",
				"surplus pages are taken from ordinary memory up to nr_overcommit_hugepages, or are what is in use "+
					"above a pool that was shrunk; they are freed as soon as they are unused; raising nr_hugepages "+
					"turns "+
					"them into pages of the pool"),
		},
		Why: "The pool is smaller than what runs. As long as the VMs run all is well. When one ends, its pages " +
			"dissolve into ordinary memory, which other programs take and break up; the same VM started again finds " +
			"less than it had. " + "Either the pool was shrunk under running VMs, or it was filled on demand. On a " +
			"host for VMs the pool should be what the VMs need.",
		Fix:   "Raise nr_hugepages to the number in use: the kernel keeps the surplus pages as part of the pool.",
		Undo:  "Write the old number back.",
		Check: checkHugepagesSurplus,
	}
}

func checkHugepagesSurplus(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, pool := range h.Pages {
		if pool.Surplus <= 0 {
			continue
		}
		f := Finding{Severity: Advice, Where: "pages of " + pageName(pool.Size),
			Wanted: "all pages in use are part of the pool",
			Got:    fmt.Sprintf("%d of %d pages are surplus", pool.Surplus, pool.Total)}
		f.Manual = fmt.Sprintf("write %d to /sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages, and on several "+
			"nodes look at the nodes' numbers afterwards", pool.Total, pool.Size/farm.KiB)
		out = append(out, f)
	}
	return out
}
