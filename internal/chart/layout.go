package chart

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// block is the part of a node on one socket: what is drawn together.
type block struct {
	socket int
	node   farm.Node
	groups []group
}

// group is the cores of a block that share a last-level cache, in rows. No cache is known where shared is false.
type group struct {
	rows   [][]farm.Core
	shared bool
}

// blocksOf groups cores by socket, node and last-level cache.
func blocksOf(t farm.Topology) []block {
	var out []block
	for _, s := range t.Sockets {
		for _, n := range t.Nodes {
			cores := slices.DeleteFunc(slices.Clone(t.Cores), func(c farm.Core) bool {
				return c.Socket != s.ID ||
					c.Node != n.ID
			})
			if len(cores) > 0 {
				out = append(out, block{s.ID, n, groupsOf(cores, t.L3)})
			}
		}
	}
	return out
}

// groupsOf puts cores beside those of the same cache, in the order of the caches; cores without one come last.
func groupsOf(cores []farm.Core, caches []farm.CPUSet) []group {
	sets := make([][]farm.Core, len(caches)+1)
	for _, c := range cores {
		i := slices.IndexFunc(caches, func(l farm.CPUSet) bool { return !l.And(c.Threads).Empty() })
		if i < 0 {
			i = len(caches)
		}
		sets[i] = append(sets[i], c)
	}
	several := len(slices.DeleteFunc(slices.Clone(sets), func(s []farm.Core) bool { return len(s) == 0 })) > 1
	var out []group
	for i, set := range sets {
		if len(set) > 0 {
			out = append(out, group{rowsOf(set, several), i < len(caches)})
		}
	}
	return out
}

// rowsOf breaks a group into rows of even length, which are narrow where there are several groups.
func rowsOf(cores []farm.Core, several bool) [][]farm.Core {
	width := widest
	if several {
		width = (widest - groupGap) / 2
	}
	most := max(1, (width-2*groupPad)/(cellNarrow+coreGap))
	rows := (len(cores) + most - 1) / most
	return slices.Collect(slices.Chunk(cores, (len(cores)+rows-1)/rows))
}

func mostThreads(row []farm.Core) int {
	n := 1
	for _, c := range row {
		n = max(n, c.Threads.Len())
	}
	return n
}

// cellOf is the width of a thread: as wide as it can be without making any node's groups take more room in height.
func cellOf(blocks []block) int {
	fits := func(b block, cell int) bool {
		_, _, low := flow(b, cellNarrow)
		_, width, height := flow(b, cell)
		return width <= widest && height == low
	}
	for cell := cellWide; cell > cellNarrow; cell-- {
		if !slices.ContainsFunc(blocks, func(b block) bool { return !fits(b, cell) }) {
			return cell
		}
	}
	return cellNarrow
}

func groupSize(g group, cell int) (width, height int) {
	for _, row := range g.rows {
		width = max(width, len(row)*(cell+coreGap)-coreGap)
		height += mostThreads(row)*cellHeight + rowGap
	}
	return width + 2*groupPad, height - rowGap + 2*groupPad
}

// flow places the groups of a block in rows, and gives their corners and the size of all.
func flow(b block, cell int) (at [][2]int, width, height int) {
	x, y, row := 0, 0, 0
	for _, g := range b.groups {
		w, h := groupSize(g, cell)
		if x > 0 && x+w > widest {
			x, y, row = 0, y+row+groupGap, 0
		}
		at = append(at, [2]int{x, y})
		width = max(width, x+w)
		x += w + groupGap
		row = max(row, h)
	}
	return at, width, y + row
}
