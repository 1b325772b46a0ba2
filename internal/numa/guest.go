package numa

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// GuestDiffers returns, a sentence without a full stop each, where a guest sees other CPUs, sockets, cores, threads,
// nodes or memory than its VM was planned with. What the guest does not tell does not differ.
func GuestDiffers(plan farm.Plan, seen farm.GuestView) []string {
	var out []string
	if text := topologyDiffers(plan, seen); text != "" {
		out = append(out, text)
	}
	return append(out, nodesDiffer(plan, seen.Nodes)...)
}

func topologyDiffers(plan farm.Plan, seen farm.GuestView) string {
	if len(seen.Sockets) == 0 || len(seen.Cores) == 0 {
		return ""
	}
	if online := farm.Union(seen.Cores...); online.Len() != len(plan.VCPUs) {
		return fmt.Sprintf("the guest uses %d CPUs, planned are %d", online.Len(), len(plan.VCPUs))
	}
	g, n := plan.Guest, len(plan.VCPUs)
	if slices.EqualFunc(seen.Cores, inRow(n, g.Threads), farm.CPUSet.Equal) &&
		slices.EqualFunc(seen.Sockets, inRow(n, g.Cores*g.Threads), farm.CPUSet.Equal) {
		return ""
	}
	if s := GuestShape(seen); s != g {
		return fmt.Sprintf("the guest sees %s, planned are %s", shapeText(s), shapeText(g))
	}
	return fmt.Sprintf("the guest's CPUs are spread over its %s in another order than planned", shapeText(g))
}

func shapeText(g farm.GuestTopology) string {
	return fmt.Sprintf("%d sockets × %d cores × %d threads", g.Sockets, g.Cores, g.Threads)
}

// GuestShape counts what a guest sees: the cores of its largest socket, the threads of its largest core. It is zero
// where the guest does not tell.
func GuestShape(seen farm.GuestView) farm.GuestTopology {
	var g farm.GuestTopology
	g.Sockets = len(seen.Sockets)
	for _, core := range seen.Cores {
		g.Threads = max(g.Threads, core.Len())
	}
	for _, socket := range seen.Sockets {
		cores := 0
		for _, core := range seen.Cores {
			if core.Common(socket) > 0 {
				cores++
			}
		}
		g.Cores = max(g.Cores, cores)
	}
	return g
}

// inRow is the sets of so many CPUs in a row that n CPUs make.
func inRow(n, size int) (out []farm.CPUSet) {
	for first := 0; first < n; first += size {
		out = append(out, farm.CPURange(first, first+size))
	}
	return out
}

// A guest's kernel keeps some of the memory for itself before it counts: its own code, the table of pages (1.6 %), what
// is kept for a crash kernel.
const (
	keptShare = 8              // of a cell's memory, at most one in so many, and
	keptMost  = 192 * farm.MiB // at most so much more
)

func nodesDiffer(plan farm.Plan, nodes []farm.GuestNode) []string {
	if len(nodes) == 0 && len(plan.Cells) == 1 {
		return nil // its kernel knows no nodes, and needs none
	}
	if len(nodes) != len(plan.Cells) {
		return []string{fmt.Sprintf("the guest sees %d NUMA nodes, planned are %d", len(nodes), len(plan.Cells))}
	}
	var out []string
	for i, want := range plan.Cells {
		got := nodes[i]
		if !got.CPUs.Equal(want.VCPUs) {
			out = append(out, fmt.Sprintf("the guest sees its CPUs %q on node %d, planned are %v", got.CPUs, i,
				want.VCPUs))
		}
		if got.Memory > want.Memory || got.Memory+want.Memory/keptShare+keptMost < want.Memory {
			out = append(out, fmt.Sprintf("the guest sees %v on node %d, planned are %v",
				got.Memory.Rounded(), i, want.Memory.Rounded()))
		}
	}
	return out
}
