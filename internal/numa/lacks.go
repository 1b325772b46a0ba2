package numa

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// LacksPages reports whether a node has fewer free huge pages than a plan takes that nothing of runs.
func LacksPages(t farm.Topology, p farm.Plan) bool {
	return slices.ContainsFunc(p.Cells, func(c farm.GuestCell) bool {
		if c.PageSize == 0 {
			return false
		}
		for _, n := range t.Nodes {
			for _, pool := range n.Pages {
				if n.ID == c.Node && pool.Size == c.PageSize {
					return farm.Bytes(pool.Free)*pool.Size < c.Memory
				}
			}
		}
		return true
	})
}
