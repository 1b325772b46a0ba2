package tuning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmPagesMissing() Rule {
	return Rule{
		ID:       "vm-pages-missing",
		Title:    "a VM asks for more huge pages than its nodes have in all",
		Severity: Fault,
		Holds: "VMs that are defined and do not run. Pages without a size are of the host's default one. Each guest " +
			"cell counts with its own size, and with the nodes that it is bound to by mode strict or restrictive; with " +
			"preferred and interleave the kernel takes pages of other nodes, and the whole host counts.",
		Cost: "The VM does not start.",
		Sources: []Source{
			cernHugePages("1 GiB pages taken at boot came out as 29 on one node and 31 on the other; the suspicion " +
				"was that the boot had used some memory before"),
			kernelDoc("admin-guide/mm/hugetlbpage",
				"huge pages are reserved at boot or while memory is not yet fragmented; the kernel reserves as many "+
					"as it can"),
			libvirtXML("numa-node-tuning", "mode strict fails where the nodes do not have the memory; preferred takes "+
				"it from other nodes then"),
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
		if d.Running {
			continue
		}
		for _, n := range missingPages(h, d) {
			out = append(out, missingFinding(h, d, n))
		}
	}
	return out
}

// pageNeed is huge pages of one size that guest cells want on some nodes.
type pageNeed struct {
	cells farm.CPUSet // guest cells; empty where it is the whole VM
	size  farm.Bytes
	count farm.Bytes
	nodes farm.CPUSet // that they must come from; empty: any
}

// pageNeeds are the huge pages that a VM takes when it starts, cell by cell. Pages without a size are of the host's
// default one. Nodes count where the kernel takes pages of no other: strict and restrictive bindings.
func pageNeeds(h farm.HostFacts, d farm.Domain) []pageNeed {
	if !d.HugePages {
		return nil
	}
	cells := d.Cells
	if len(cells) == 0 {
		cells = []farm.DomainCell{{Memory: d.Memory}}
	}
	var out []pageNeed
	for id, cell := range cells {
		size, huge := cellPage(h, d, id)
		if !huge || cell.Memory == 0 {
			continue
		}
		n := pageNeed{size: size, count: (cell.Memory + size - 1) / size}
		if len(d.Cells) > 0 {
			n.cells = farm.NewCPUSet(id)
		}
		if mode, nodes := cellBinding(d, cell); mode == "strict" || mode == "restrictive" {
			n.nodes = nodes
		}
		out = append(out, n)
	}
	return out
}

// cellPage is the page size of a guest cell; huge is false where it is in ordinary pages.
func cellPage(h farm.HostFacts, d farm.Domain, id int) (size farm.Bytes, huge bool) {
	if len(d.Pages) == 0 {
		return defaultPageSize(h), true
	}
	for _, p := range d.Pages {
		if p.Cells.Has(id) {
			return p.Size, p.Size > 0
		}
		if p.Cells.Empty() {
			size = p.Size
		}
	}
	return size, size > 0
}

// missingPages finds groups of cells of which the pages are not there. Cells that share nodes count together.
func missingPages(h farm.HostFacts, d farm.Domain) []pageNeed {
	needs := pageNeeds(h, d)
	var sets []farm.CPUSet // nodes of cells, and those of all of them together
	for _, n := range needs {
		sets = append(sets, n.nodes)
	}
	if len(sets) > 1 {
		sets = append(sets, farm.Union(sets...), farm.CPUSet{})
	}
	seen, told := map[string]bool{}, farm.CPUSet{}
	var out []pageNeed
	for _, nodes := range sets {
		for _, size := range needSizes(needs) {
			key := fmt.Sprint(nodes, size)
			n := needOn(needs, nodes, size)
			have, known := pagesOn(h, nodes, size)
			if seen[key] || n.count == 0 || !known || n.count <= farm.Bytes(have) || hasLost(h, nodes) {
				continue
			}
			seen[key] = true
			if len(out) > 0 && n.cells.Minus(told).Empty() && !n.cells.Empty() {
				continue // said of its cells already
			}
			told = told.Or(n.cells)
			out = append(out, n)
		}
	}
	return out
}

func needSizes(needs []pageNeed) []farm.Bytes {
	var out []farm.Bytes
	for _, n := range needs {
		if !slices.Contains(out, n.size) {
			out = append(out, n.size)
		}
	}
	return out
}

// needOn adds up what must come from some nodes; no nodes stand for the whole host.
func needOn(needs []pageNeed, nodes farm.CPUSet, size farm.Bytes) pageNeed {
	sum := pageNeed{size: size, nodes: nodes}
	for _, n := range needs {
		if n.size == size && (nodes.Empty() || !n.nodes.Empty() && n.nodes.Minus(nodes).Empty()) {
			sum.count, sum.cells = sum.count+n.count, sum.cells.Or(n.cells)
		}
	}
	return sum
}

// hasLost reports whether nodes name one that a VM cannot have: another rule tells.
func hasLost(h farm.HostFacts, nodes farm.CPUSet) bool {
	lost, empty := lostNodes(h, nodes)
	return !lost.Empty() || !empty.Empty()
}

func missingFinding(h farm.HostFacts, d farm.Domain, n pageNeed) Finding {
	where, what := "the host", ""
	if !n.nodes.Empty() {
		where = number("node", n.nodes)
	}
	if !n.cells.Empty() && len(d.Cells) > 1 {
		what = number("guest cell", n.cells) + ": "
	}
	size := pageName(n.size)
	if len(d.Pages) == 0 {
		size += " (the default size)"
	}
	have, _ := pagesOn(h, n.nodes, n.size)
	f := Finding{Severity: Fault, Where: vmName(d),
		Wanted: fmt.Sprintf("%s%d pages of %s on %s", what, n.count, size, where),
		Got:    fmt.Sprintf("%s%d in all, free or not", what, have),
		Manual: fmt.Sprintf("reserve %d pages of %s on %s, or virsh edit %s to make <memory> smaller", n.count,
			pageName(n.size), where, ShellWord(d.Name))}
	switch {
	case !poolKnown(h, n.size):
		f.Got = fmt.Sprintf("%sthis kernel has no pages of %s", what, size)
		f.Manual = edit(d, "let <hugepages> name a page size that the host has ("+poolNames(h)+")")
	case have == 0:
		f.Got = fmt.Sprintf("%snone there: no page of %s on %s", what, size, where)
	}
	return f
}

// poolNames lists the page sizes of the host.
func poolNames(h farm.HostFacts) string {
	var names []string
	for _, p := range h.Pages {
		names = append(names, pageName(p.Size))
	}
	return strings.Join(names, ", ")
}

// pagesOn counts the pages of a size that some nodes have or may make, of all where none are named. A kernel without
// pages of this size has none.
func pagesOn(h farm.HostFacts, nodes farm.CPUSet, size farm.Bytes) (n int, known bool) {
	more := 0
	for _, pool := range h.Pages {
		if pool.Size == size {
			more, known = max(pool.Overcommit-pool.Surplus, 0), true
			n = pool.Total
		}
	}
	if !known {
		return 0, len(h.Pages) > 0
	}
	byNode, told := 0, false
	for _, node := range h.Topology.Nodes {
		for _, pool := range node.Pages {
			if pool.Size == size {
				told = true
				if nodes.Empty() || nodes.Has(node.ID) {
					byNode += pool.Total
				}
			}
		}
	}
	if told {
		n = byNode
	}
	return n + more, known
}
