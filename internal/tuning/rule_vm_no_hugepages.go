package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmNoHugePages() Rule {
	return Rule{
		ID:       "vm-no-hugepages",
		Title:    "a VM is not in huge pages although the host has them free",
		Severity: Warning,
		Holds:    "Hosts with a pool of huge pages and a profile that wants VMs in them.",
		Cost: "6 % of HS06 was the price of EPT with small pages (CERN 2015). What EPT with 2 MiB pages costs " +
			"was not published; the monitoring showed less system time.",
		Sources: []Source{
			cernHugePages("EPT costs little once large pages keep the TLB from missing; VMs were put into a pool " +
				"through <memoryBacking>, and 2 MiB pages were deployed"),
			libvirtXML("memory-backing",
				"<hugepages> takes the guest's memory from the host's huge pages, with size and guest cells by <page>"),
		},
		Why: "With EPT or NPT each miss of the TLB walks two sets of page tables, the guest's and the host's. In " +
			"huge pages the host's walk is shorter and the TLB reaches further. The pool is memory that nobody else " +
			"can use: a VM beside it pays for small pages while gigabytes lie idle, and the host is short of " +
			"ordinary memory on top. " +
			"Transparent huge pages help such a VM, as far as there happen to be 2 MiB in a row.",
		Fix: "Back the VM with the pool's pages.",
		Danger: "The VM does not start when the pool has not enough pages on its nodes. Its memory can neither be " +
			"swapped, nor merged, nor given back by a balloon.",
		Undo:  "Take <memoryBacking> out.",
		Check: checkVMNoHugePages,
	}
}

func checkVMNoHugePages(h farm.HostFacts, p Profile) []Finding {
	if len(p.PageSizes) == 0 {
		return nil
	}
	var out []Finding
	for _, d := range h.Domains {
		size, ok := freePages(h, d.Memory)
		if d.HugePages || d.Memory == 0 || !ok {
			continue
		}
		f := Finding{Severity: Warning, Where: vmName(d),
			Wanted: fmt.Sprintf("pages of %s, of which enough are free", pageName(size)), Got: "ordinary pages"}
		if d.Ours {
			f.Manual = fmt.Sprintf("it is one of grange's: run such jobs with grange exec --page-size %v, or in a "+
				"shape that says so", size)
		} else {
			f.Manual = edit(d, fmt.Sprintf(
				"put <memoryBacking><hugepages><page size='%d' unit='KiB'/></hugepages></memoryBacking> behind "+
					"<currentMemory>", size/farm.KiB))
		}
		out = append(out, f)
	}
	return out
}

// freePages is the largest page size of which enough are free for some memory.
func freePages(h farm.HostFacts, memory farm.Bytes) (size farm.Bytes, ok bool) {
	for _, pool := range h.Pages {
		free := pool.Free - pool.Reserved
		if pool.Size > size && pool.Size > 0 && memory%pool.Size == 0 && free > 0 &&
			farm.Bytes(free) >= memory/pool.Size {
			size, ok = pool.Size, true
		}
	}
	return size, ok
}
