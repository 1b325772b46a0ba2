package numa

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// layout is a plan before it is written out: one entry for each wanted cell, in their order where the request gives
// them.
type layout []cell

type cell struct {
	want     want
	node     int // position
	from     source
	emulator bool // the emulator's own CPU is here too
}

// layout places the VM, or tells that there is no room. CPUs beside memory come first: nodes without memory are used
// only where the others do not do.
func (v *view) layout() (layout, bool) {
	if v.lends {
		v.lends, v.local = false, true
		l, ok := v.anywhere()
		v.lends, v.local = true, false
		if ok {
			return l, true
		}
	}
	return v.anywhere()
}

// anywhere is layout on all nodes that the view has.
func (v *view) anywhere() (layout, bool) {
	if len(v.req.Each) > 0 || v.req.Cells > 1 {
		return v.matched()
	}
	if l, ok := v.single(); ok || v.req.Cells == 1 {
		return l, ok
	}
	return splitter{v}.layout()
}

func (v *view) isolatesEmulator() bool { return v.req.Emulator == farm.EmulatorIsolate }

// single places the VM on one node: in the best page size that has room, where it disturbs the fewest cores and caches,
// and then where least is left on the node, on its socket, and of its memory.
func (v *view) single() (layout, bool) {
	w, emulator := &v.wants[0], v.isolatesEmulator()
	var best cell
	var bestScore score
	found := false
	for i := range w.sizes {
		for n := range v.nodes {
			from, ok := v.fits(w, n, w.sizes[i:i+1], emulator)
			if !ok || found && bestScore == perfect && v.state[n].threads > v.state[best.node].threads {
				continue // the pick could be no better
			}
			v.picker.pick(v, n, w)
			if s := v.picker.score; !found ||
				cmp.Or(s.compare(bestScore), cmp.Compare(v.state[n].threads, v.state[best.node].threads),
					cmp.Compare(v.socketThreads(n), v.socketThreads(best.node)),
					cmp.Compare(from.free, best.from.free)) < 0 {
				found, bestScore = true, s
				best = cell{want: *w, node: n, from: from, emulator: emulator}
			}
		}
		if found {
			return layout{best}, true
		}
	}
	return nil, false
}

// matched places the cells of a request that says how many it wants, each on a node of its own: in one page size for
// all where that can be, else in the best that each finds.
func (v *view) matched() (layout, bool) {
	lists := make([][]farm.Bytes, len(v.wants))
	for _, size := range v.allSizes() {
		uniform := true
		for i := range v.wants {
			at := slices.Index(v.wants[i].sizes, size)
			if uniform = uniform && at >= 0; uniform {
				lists[i] = v.wants[i].sizes[at : at+1]
			}
		}
		if uniform {
			if l, ok := v.match(v.wants, lists); ok {
				return v.ordered(l), true
			}
		}
	}
	for depth := 1; depth <= maxPages; depth++ { // no cell takes its third choice where the first two would do for all
		longer := false
		for i, w := range v.wants {
			lists[i] = w.sizes[:min(depth, len(w.sizes))]
			longer = longer || len(w.sizes) >= depth
		}
		if !longer || depth == 1 && v.alike() {
			continue
		}
		if l, ok := v.match(v.wants, lists); ok {
			return v.ordered(l), true
		}
	}
	return nil, false
}

// alike reports whether all cells have the same best page size, so that it was tried already.
func (v *view) alike() bool {
	for _, w := range v.wants {
		if w.sizes[0] != v.wants[0].sizes[0] {
			return false
		}
	}
	return true
}

// allSizes is the page sizes of all cells, each once, in the order in which they are named.
func (v *view) allSizes() []farm.Bytes {
	sizes := v.wants[0].sizes
	for _, w := range v.wants[1:] {
		for _, size := range w.sizes {
			if !slices.Contains(sizes, size) {
				sizes = append(slices.Clip(sizes), size)
			}
		}
	}
	return sizes
}

// ordered puts cells in the order in which the guest will number them: as asked for, or by socket and node behind the
// one with the emulator.
func (v *view) ordered(l layout) layout {
	if len(v.req.Each) > 0 {
		return l
	}
	slices.SortStableFunc(l, func(a, b cell) int {
		return cmp.Or(number(b.emulator)-number(a.emulator), cmp.Compare(v.socket(a.node), v.socket(b.node)),
			cmp.Compare(a.node, b.node))
	})
	return l
}

func (v *view) socket(node int) int {
	if cores := v.nodes[node].cores; len(cores) > 0 {
		return cores[0].socket
	}
	return -1
}

// socketThreads is how many usable threads the node's socket has.
func (v *view) socketThreads(node int) int {
	sum := 0
	for n := range v.nodes {
		if v.socket(n) == v.socket(node) {
			sum += v.state[n].threads
		}
	}
	return sum
}
