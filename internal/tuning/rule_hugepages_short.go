package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func hugepagesShort() Rule {
	return Rule{
		ID:       "hugepages-short",
		Title:    "there are fewer huge pages than the command line asks for",
		Severity: Warning,
		Holds: "Hosts booted with hugepages= on the command line. Pages that somebody gave back since count as " +
			"missing, too.",
		Cost: "VMs that the pool was made for do not start. Not a matter of speed.",
		Sources: []Source{
			kernelDoc("admin-guide/kernel-parameters",
				"hugepages takes a number, or one for each node: 0:N,1:N; a page of 1 GiB needs memory in one piece, "+
					"of which boot is the best time"),
			{"Linux 6.1, mm/hugetlb.c, __alloc_bootmem_huge_page",
				"https://git.kernel.org/pub/scm/linux/kernel/git/stable/linux.git/tree/mm/hugetlb.c?h=v6.1",
				"a page for one node is looked for on that node first, and then taken of another; what is missing is " +
					"a line in the kernel's log"},
			cernHugePages("55 pages of 1 GiB were asked for at boot, and came unevenly"),
		},
		Why: "A page of 1 GiB begins at a multiple of 1 GiB, and none of its memory may be in use when the kernel " +
			"looks: not by the firmware's tables, the initramfs or the kernel itself. " +
			"On a small node there may be no such piece. The kernel then takes the page of another node, so that this " +
			"one's pool is short as well, and says so in its log alone. The host is up, and VMs that want the pages " +
			"are refused.",
		Fix:   "Ask for fewer pages on that node, or for pages of 2 MiB, which any memory can give.",
		Undo:  "Put the old numbers back.",
		Check: checkHugepagesShort,
	}
}

func checkHugepagesShort(h farm.HostFacts, _ Profile) []Finding {
	if pagesChangeAtBoot(h.Kernel) {
		return nil // what the next boot asks for has another chance
	}
	var out []Finding
	for _, asked := range bootPools(h, h.Kernel.Command) {
		var short []string
		sum := 0
		for _, n := range nodeCounts(h.Topology.Nodes, asked.size) {
			sum += n.count
			if n.count < asked.nodes[n.node] {
				short = append(short, fmt.Sprintf("node %d has %d of %d", n.node, n.count, asked.nodes[n.node]))
			}
		}
		if asked.nodes == nil && sum < asked.total && poolKnown(h, asked.size) {
			short = []string{fmt.Sprintf("%d of %d are there", sum, asked.total)}
		}
		if len(short) > 0 {
			out = append(out, Finding{Severity: Warning, Where: "pages of " + pageName(asked.size),
				Wanted: "as many as the command line asks for", Got: strings.Join(short, ", "),
				Manual: shortAdvice(asked)})
		}
	}
	return out
}

func shortAdvice(asked bootPool) string {
	if asked.size > defaultHugePage {
		return "ask for fewer, or for pages of 2 MiB: the kernel's log says at HugeTLB what it could not give"
	}
	return "ask for fewer: the kernel's log says at HugeTLB what it could not give"
}
