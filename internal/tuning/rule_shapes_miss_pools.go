package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func shapesMissPools() Rule {
	return Rule{
		ID:       "shapes-miss-pools",
		Title:    "the agent's shapes ask for pages or sizes that the host does not have",
		Severity: Warning,
		Holds:    "Hosts whose agent is configured in /etc/grange/agent.toml. Half of the memory as the bound is ours.",
		Cost: "Room: memory in a pool of huge pages is given to nobody who asks for ordinary pages, and the " +
			"other way round.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/hugetlbpage", "pages in the pool cannot be used for other purposes"),
			cernHugePages("VMs get huge pages only where their definition says so"),
		},
		Why: "Memory that was set aside as huge pages serves VMs whose shape asks for them, and nothing else. With " +
			"most of the memory in a pool and a shape of ordinary pages, VMs share the small rest: jobs wait on a " +
			"host that is nearly empty. " +
			"A shape that wants only huge pages of a size that the host does not have can never start, and neither can " +
			"one with more memory for its vCPUs than their nodes have. Where every shape has more memory for each vCPU " +
			"than the host has for each CPU, some CPUs are never used.",
		Fix: `Set page_size = "any" in the shape: the best pages that the host has free, ordinary ones where there are ` +
			"none. Give one shape as much memory for each vCPU as the host has for each CPU.",
		Undo:  "Put the old page_size back.",
		Check: checkShapesMissPools,
	}
}

func checkShapesMissPools(h farm.HostFacts, _ Profile) []Finding {
	pools := map[string]bool{"0": true}
	var pooled farm.Bytes
	for _, p := range h.Pages {
		if p.Total > 0 {
			pools[pageName(p.Size)] = true
			pooled += farm.Bytes(p.Total) * p.Size
		}
	}
	var out []Finding
	missing := map[string]bool{}
	for _, s := range h.Shapes {
		got := shapeMisses(s, pools, pooled, h.Memory.Total)
		if got == "" {
			continue
		}
		missing[s.Name] = true
		out = append(out, Finding{Severity: Warning, Where: shapeName(s), Wanted: "pages that the host has", Got: got,
			Manual: `set page_size = "any" for it in /etc/grange/agent.toml, then reload the agent`})
	}
	return append(out, shapesFill(h, missing)...)
}

// shapeMisses returns how a shape and the pools do not fit each other; "" where they do. A shape that does not say
// takes any pages.
func shapeMisses(s farm.ShapePages, pools map[string]bool, pooled, memory farm.Bytes) string {
	if s.Pages == "" || s.Pages == "any" {
		return ""
	}
	var sizes []string
	for text := range strings.SplitSeq(s.Pages, ",") {
		size, err := farm.ParseBytes(strings.TrimSpace(text))
		if err != nil {
			return "" // the agent refuses its configuration
		}
		name := "0"
		if size != 0 {
			name = pageName(size)
		}
		sizes = append(sizes, name)
	}
	ordinary, any := false, false
	for _, name := range sizes {
		ordinary = ordinary || name == "0"
		any = any || pools[name]
	}
	switch {
	case !any:
		return fmt.Sprintf("only pages of %s, of which the host has none", strings.Join(sizes, ", "))
	case ordinary && len(sizes) == 1 && memory > 0 && pooled > memory/2:
		return fmt.Sprintf("ordinary pages only, and %s of %s are huge pages", roughly(pooled), roughly(memory))
	}
	return ""
}
