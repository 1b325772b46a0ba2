package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmsPagesTogether() Rule {
	return Rule{
		ID:       "vms-pages-together",
		Title:    "VMs that start with the host fit one by one only",
		Severity: Warning,
		Holds:    "VMs with libvirt's autostart whose memory is in huge pages.",
		Cost:     "The VMs that libvirt starts last do not start when the host boots.",
		Sources: []Source{
			libvirtXML("memory-backing", "the guest's memory is allocated from huge pages"),
			kernelDoc("admin-guide/mm/hugetlbpage", "the pool has as many pages as were reserved, and no more unless "+
				"overcommitment is allowed"),
		},
		Why: "Each of these VMs starts while the others are off, so that nobody notices. When the host boots, libvirt " +
			"starts one after the other, until the pool of huge pages is empty; the rest fail with a line in the log.",
		Fix:    "Reserve pages for all of them, make some smaller, or take the autostart from some.",
		Danger: "Memory in huge pages is not there for ordinary use.",
		Undo:   "Put the old number of pages back; virsh autostart NAME.",
		Check:  checkVMsPagesTogether,
	}
}

func checkVMsPagesTogether(h farm.HostFacts, _ Profile) []Finding {
	var needs []pageNeed
	var names []string
	for _, d := range h.Domains {
		own := pageNeeds(h, d)
		if !d.Autostart || len(own) == 0 || len(missingPages(h, d)) > 0 {
			continue // alone it does not start either: another rule tells
		}
		needs, names = append(needs, own...), append(names, d.Name)
	}
	if len(names) < 2 {
		return nil
	}
	var sets []farm.CPUSet
	for _, n := range needs {
		sets = append(sets, n.nodes)
	}
	sets = append(sets, farm.Union(sets...), farm.CPUSet{})
	for _, nodes := range sets {
		for _, size := range needSizes(needs) {
			n := needOn(needs, nodes, size)
			have, known := pagesOn(h, nodes, size)
			if !known || n.count <= farm.Bytes(have) || hasLost(h, nodes) {
				continue
			}
			where := "the host"
			if !nodes.Empty() {
				where = number("node", nodes)
			}
			return []Finding{{Severity: Warning, Where: "VMs with autostart",
				Wanted: fmt.Sprintf("%d pages of %s on %s for all of them", n.count, pageName(size), where),
				Got:    fmt.Sprintf("%d: %s each fit alone, and not together", have, strings.Join(names, ", ")),
				Manual: "reserve the pages, make a VM smaller, or virsh autostart --disable one of them"}}
		}
	}
	return nil
}
