package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func hugepagesUnused() Rule {
	return Rule{
		ID:       "hugepages-unused",
		Title:    "huge pages are reserved, and no running VM uses them",
		Severity: Warning,
		Holds:    "Hosts with a pool of huge pages and with running VMs, all of them on ordinary memory.",
		Cost: "The pool's memory lies idle while VMs share the rest, and they have small pages: see " +
			"hugepages-none.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/hugetlbpage", "pages in the pool cannot be used for other purposes"),
			cernHugePages("a VM gets huge pages only when its XML says so, in memoryBacking; in 2015 that was " +
				"written by hand"),
		},
		Why: "Reserving pages is half of the work. A VM uses them only when its definition has " +
			"<memoryBacking><hugepages/> (in OpenStack: hw:mem_page_size). Without it the VM takes ordinary memory, " +
			"of which the pool has left little: " +
			"the host ends up with much memory that is free and cannot be used, beside VMs that swap.",
		Fix:    "Define the VMs with huge pages, or give the pool back.",
		Danger: "A change of a VM's definition takes effect when it is started next.",
		Undo:   "Take memoryBacking out of the definitions.",
		Check:  checkHugepagesUnused,
	}
}

func checkHugepagesUnused(h farm.HostFacts, _ Profile) []Finding {
	running, sum := 0, farm.Bytes(0)
	for _, d := range h.Domains {
		if d.Running {
			running++
			if d.HugePages || len(d.Pages) > 0 {
				return nil
			}
		}
	}
	for _, pool := range h.Pages {
		if pool.Free < pool.Total {
			return nil // somebody uses them
		}
		sum += farm.Bytes(max(pool.Total, 0)) * pool.Size
	}
	if running == 0 || sum < farm.GiB {
		return nil
	}
	return []Finding{{Severity: Warning, Where: "host", Wanted: "VMs in huge pages, or no pool",
		Got: fmt.Sprintf("%s reserved and free, and %s without", roughly(sum), farm.Count(running, "running VM")),
		Manual: "give the VMs <memoryBacking><hugepages/> (OpenStack: hw:mem_page_size=large), or write 0 to " +
			"nr_hugepages"}}
}
