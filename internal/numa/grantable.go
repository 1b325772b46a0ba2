package numa

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Grantable is a room's topology with what its nodes can still grant as what is free there.
func (r Room) Grantable() farm.Topology {
	t := r.Topology
	t.Nodes = slices.Clone(t.Nodes)
	for i, n := range t.Nodes {
		pages := slices.Clone(n.Pages)
		for j, p := range pages {
			pages[j].Free = r.Nodes[n.ID].Pages[p.Size]
		}
		t.Nodes[i].Free, t.Nodes[i].Pages = r.Nodes[n.ID].Memory, pages
	}
	return t
}
