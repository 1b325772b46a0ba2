package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func hugepagesUneven() Rule {
	return Rule{
		ID:       "hugepages-uneven",
		Title:    "nodes with the same memory have different numbers of huge pages",
		Severity: Warning,
		Holds: "Hosts with several alike nodes where the pools differ by more than one page and by a gibibyte at " +
			"least.",
		Cost: "Not measured. VMs of equal size no longer fit each node: one of them is refused, or has its " +
			"memory on the other node.",
		Sources: []Source{
			cernHugePages("55 pages of 1 GiB were asked for at boot; a host showed 29 on node 0 and 31 on node 1; " +
				"CERN gave up 1 GiB pages and deployed 2 MiB"),
			kernelDoc("admin-guide/mm/hugetlbpage",
				"when a node lacks contiguous memory the kernel takes the missing pages from another node; "+
					"hugepages=0:1,1:2 asks for a number on each node"),
		},
		Why: "A number of huge pages on the command line is for the whole host. The kernel deals them out in turn, " +
			"and where a node has no contiguous memory left, because firmware, drivers or the crash kernel sit in " +
			"it, it takes the rest from another node. " +
			"The sum is right and nobody looks further. Then a VM that is bound to the short node does not start, or " +
			"gets pages of the other node.",
		Fix: "Ask for the number that every node can give, node by node (Linux 5.16 and later); on older kernels " +
			"use 2 MiB pages, as CERN did.",
		Danger: "The pages that the richer node had beyond the others go back to ordinary memory. VMs defined with " +
			"pages of 1 GiB do not start on a host that has changed to 2 MiB.",
		Undo:  "Put the old parameters back.",
		Check: checkHugepagesUneven,
	}
}

func checkHugepagesUneven(h farm.HostFacts, p Profile) []Finding {
	nodes := guestNodes(h)
	if len(nodes) < 2 || !alikeNodes(nodes) || pagesChangeAtBoot(h.Kernel) {
		return nil // what the next boot asks for has another chance
	}
	var out []Finding
	for _, pool := range h.Pages {
		counts := nodeCounts(nodes, pool.Size)
		least, most := counts[0].count, counts[0].count
		for _, n := range counts {
			least, most = min(least, n.count), max(most, n.count)
		}
		if most-least < 2 || farm.Bytes(most-least)*pool.Size < farm.GiB {
			continue
		}
		f := Finding{Severity: Warning, Where: "pages of " + pageName(pool.Size),
			Wanted: "the same number on nodes with the same memory", Got: eachCount(counts)}
		evenPages(h, p, pool.Size, counts, least, &f)
		out = append(out, f)
	}
	return out
}

// evenPages reports how to make a pool even: by node where the kernel can be told, else with small pages, which any
// node can give.
func evenPages(h farm.HostFacts, p Profile, size farm.Bytes, counts []nodePages, least int, f *Finding) {
	if wanted := wantedPages(h, p, size); len(wanted) > 0 {
		least = min(least, wanted[0].count) // nodes are alike here, and so are their numbers
	}
	even := make([]nodePages, len(counts))
	for i, n := range counts {
		even[i] = nodePages{n.node, least}
	}
	small := size >= farm.GiB && !perNode(h)
	switch {
	case least == 0 || len(sizesInUse(h)) > 1:
		f.Manual = "decide how many pages each node should have, and ask for them by node on the command line " +
			"(hugepages=0:N,1:N)"
	case small && poolKnown(h, defaultHugePage) && h.Kernel.BootFile != "":
		for i := range even {
			even[i].count *= int(size / defaultHugePage)
		}
		f.Wanted += fmt.Sprintf(": pages of %s instead, %s (takes effect at the next boot)", pageName(defaultHugePage),
			pagesInWords(even))
		f.Changes = bootPageChanges(h, defaultHugePage, even)
		if usesPages(h) {
			f.Manual = fmt.Sprintf("let the VMs that ask for pages of %s ask for %s, before that boot", pageName(size),
				pageName(defaultHugePage))
		}
	case size >= farm.GiB && h.Kernel.BootFile != "":
		f.Wanted += fmt.Sprintf(": %s (takes effect at the next boot)", pagesInWords(even))
		f.Changes = bootPageChanges(h, size, even)
	default:
		f.Wanted += ": " + pagesInWords(even)
		f.Changes = pageChanges(h, size, even)
	}
}

func nodeCounts(nodes []farm.Node, size farm.Bytes) []nodePages {
	var out []nodePages
	for _, n := range nodes {
		count := 0
		for _, pool := range n.Pages {
			if pool.Size == size {
				count = pool.Total
			}
		}
		out = append(out, nodePages{n.ID, count})
	}
	return out
}

func eachCount(counts []nodePages) string {
	var parts []string
	for _, n := range counts {
		parts = append(parts, fmt.Sprintf("node %d has %d", n.node, n.count))
	}
	return strings.Join(parts, ", ")
}
