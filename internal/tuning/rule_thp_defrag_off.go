package tuning

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func thpDefragOff() Rule {
	return Rule{
		ID:       "thp-defrag-off",
		Title:    "VMs depend on transparent huge pages, and the kernel may not make room for them",
		Severity: Advice,
		Holds:    "Hosts without static huge pages where transparent_hugepage/defrag is never or defer.",
		Cost: "Not measured. Guests on a host that has run for long get small pages; with EPT these cost 6 % of " +
			"HS06 at CERN in 2015.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/transhuge",
				"with always or madvise an allocation of QEMU may stall to reclaim and compact, which can be "+
					"desirable for virtual machines that are willing to start later; never uses only pages that are "+
					"free "+
					"at once"),
			cernHugePages("EPT costs 6 % of HS06 with small pages"),
		},
		Why: "When QEMU touches a guest's memory for the first time, the kernel looks for a free page of 2 MiB. With " +
			"defrag at never it takes small pages when there is none, and with defer it asks for some to be made for " +
			"later. " + "A VM that starts on a busy host then lives mostly on small pages. With madvise the kernel " +
			"compacts memory for QEMU, which asks for it: the VM starts a little later and runs faster.",
		Fix:   "Write madvise to /sys/kernel/mm/transparent_hugepage/defrag.",
		Undo:  "Write the old word back.",
		Check: checkTHPDefragOff,
	}
}

func checkTHPDefragOff(h farm.HostFacts, _ Profile) []Finding {
	if !slices.Contains([]string{"never", "defer"}, h.THP.Defrag) ||
		!slices.Contains([]string{"always", "madvise"}, h.THP.Enabled) || len(sizesInUse(h)) > 0 ||
		staticMemory(h) > 0 {
		return nil
	}
	return []Finding{{Severity: Advice, Where: "host", Wanted: "transparent_hugepage/defrag is madvise",
		Got:     "it is " + h.THP.Defrag,
		Changes: []Change{{Kind: SetValue, Path: "sys/kernel/mm/transparent_hugepage/defrag", Value: "madvise"}}}}
}
