package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func hugepages1GMissing() Rule {
	return Rule{
		ID:       "hugepages-1g-missing",
		Title:    "the profile prefers pages of 1 GiB, and the host has smaller ones",
		Severity: Advice,
		Holds: "Processors with the flag pdpe1gb; hosts with one node, or with Linux 5.16 or later, which takes " +
			"the number of pages for each node.",
		Cost: "Not measured: CERN wanted 1 GiB pages, got them unevenly, and published no comparison with 2 MiB.",
		Sources: []Source{
			cernHugePages("transparent huge pages are limited to 2 MiB and cannot use 1 GiB; 2 MiB pages were " +
				"deployed for the moment because those of 1 GiB came unevenly, though perhaps not the optimum"),
			kernelDoc("admin-guide/mm/hugetlbpage",
				"pages of 1 GiB are reserved with hugepagesz=1G; hugepages=0:24,1:24 says how many on each node"),
		},
		Why: "One page of 1 GiB takes the place of 512 of 2 MiB in the TLB, and saves one more level of each page " +
			"walk, in the host's tables. Programs that read many gigabytes at random gain from it; others hardly. " +
			"The trap is that such pages must be found at boot and evenly. A kernel that is told a number for each node " +
			"does that, or leaves the short node visibly short.",
		Fix: "Reserve pages of 1 GiB by node on the command line, and reboot while no VM runs.",
		Danger: "VMs whose memory is not a multiple of 1 GiB on each node do not fit; VMs defined with 2 MiB pages do " +
			"not start.",
		Undo:  "Put the parameters for 2 MiB pages back.",
		Check: checkHugepages1GMissing,
	}
}

func checkHugepages1GMissing(h farm.HostFacts, p Profile) []Finding {
	if len(p.PageSizes) == 0 || p.PageSizes[0] != farm.GiB || pagesChangeAtBoot(h.Kernel) ||
		slices.Contains(sizesInUse(h), farm.GiB) || len(sizesInUse(h)) == 0 || wrongPool(h, p) ||
		len(checkHugepagesLate(h, p)) > 0 {
		return nil // one change of the pools at a time
	}
	if size, ok := pageSize(h, p); !ok || size != farm.GiB {
		return nil // this host could not give them evenly
	}
	pages := wantedPages(h, p, farm.GiB)
	if len(pages) == 0 {
		return nil
	}
	f := Finding{Severity: Advice, Where: "host",
		Wanted: fmt.Sprintf("pages of 1 GiB: %s (takes effect at the next boot)", pagesInWords(pages)),
		Got:    fmt.Sprintf("pages of %s only", pageName(slices.Max(sizesInUse(h))))}
	if f.Manual = leftOut(h, p, farm.GiB, pages); f.Manual != "" {
		return []Finding{f}
	}
	if h.Kernel.BootFile == "" || usesPages(h) {
		f.Manual = "change the VMs that ask for pages of another size, then put default_hugepagesz=1G hugepagesz=1G " +
			"hugepages=" + bootCount(h, pages) + " on the command line"
	} else {
		f.Changes = bootPageChanges(h, farm.GiB, pages)
	}
	return []Finding{f}
}

// usesPages reports whether any VM, running or not, asks for huge pages.
func usesPages(h farm.HostFacts) bool {
	return slices.ContainsFunc(h.Domains, func(d farm.Domain) bool { return d.HugePages || len(d.Pages) > 0 })
}
