package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmPagesMissing() Rule {
	return Rule{
		ID:       "vm-pages-missing",
		Title:    "a VM asks for more huge pages than its nodes have in all",
		Severity: Fault,
		Holds:    "VMs that are defined and do not run. The size of the pages must be in the definition.",
		Cost:     "The VM does not start.",
		Sources: []Source{
			cernHugePages("1 GiB pages taken at boot came out as 29 on one node and 31 on the other; the suspicion " +
				"was that the boot had used some memory before"),
			kernelDoc("admin-guide/mm/hugetlbpage",
				"huge pages are reserved at boot or while memory is not yet fragmented; the kernel reserves as many "+
					"as it can"),
		},
		Why: "A request for huge pages at boot is a wish: the kernel takes what it finds in one piece and says " +
			"nothing when it is less. A VM that is bound to a node and needs more pages than that node ever got " +
			"cannot start, however empty the host is. " +
			"The error from libvirt speaks of memory that cannot be allocated, and top shows plenty free.",
		Fix:    "Reserve enough pages on the node, make the VM smaller, or let it use another page size.",
		Danger: "More huge pages leave less ordinary memory for the host and for VMs without them.",
		Undo:   "Put the old <memoryBacking> or the old number of pages back.",
		Check:  checkVMPagesMissing,
	}
}

func checkVMPagesMissing(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range h.Domains {
		if d.Running || len(d.Pages) != 1 || !d.Pages[0].Cells.Empty() || d.Pages[0].Size == 0 {
			continue
		}
		size := d.Pages[0].Size
		have, known := pagesOn(h.Topology, d.MemoryNodes, size)
		need := (d.Memory + size - 1) / size
		if !known || need <= farm.Bytes(have) {
			continue
		}
		where := "the host"
		if !d.MemoryNodes.Empty() {
			where = "node " + d.MemoryNodes.String()
		}
		out = append(out, Finding{Severity: Fault, Where: vmName(d),
			Wanted: fmt.Sprintf("%d pages of %s on %s", need, pageName(size), where),
			Got:    fmt.Sprintf("%d in all, free or not", have),
			Manual: fmt.Sprintf("reserve %d pages of %s on %s, or virsh edit %s to make <memory> smaller", need,
				pageName(size), where, ShellWord(d.Name))})
	}
	return out
}

// pagesOn counts the pages of a size on some nodes, on all where none are named.
func pagesOn(t farm.Topology, nodes farm.CPUSet, size farm.Bytes) (n int, known bool) {
	for _, node := range t.Nodes {
		for _, pool := range node.Pages {
			if pool.Size == size {
				known = true
				if nodes.Empty() || nodes.Has(node.ID) {
					n += pool.Total
				}
			}
		}
	}
	return n, known
}
