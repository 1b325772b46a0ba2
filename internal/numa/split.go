package numa

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// maxSets bounds how many sets of nodes, times the memory that each node could have, an uneven split tries one by one.
// Beyond it only the likeliest sets are tried, and a split may be missed.
const maxSets = 4000

// splitter cuts a VM into cells where the request leaves open how many.
type splitter struct{ *view }

// layout spreads the VM over as few nodes as will do: evenly in whole cores, or evenly in vCPUs, or as evenly as the
// room allows.
func (v splitter) layout() (layout, bool) {
	w := &v.wants[0]
	pages := v.pages()
	most := v.mostCells(pages)
	for k := 2; k <= most; k++ {
		if !v.enough(k, pages) {
			continue
		}
		for _, size := range w.sizes {
			if v.lends { // equal parts would leave CPUs beside memory idle
				if l, ok := v.uneven(k, []farm.Bytes{size}); ok {
					return l, true
				}
			}
			if l, ok := v.inEqualParts(k, size); ok {
				return l, true
			}
			if l, ok := v.uneven(k, []farm.Bytes{size}); ok {
				return l, true
			}
		}
		if len(pages) > 1 {
			if l, ok := v.uneven(k, pages); ok {
				return l, true
			}
		}
	}
	return nil, false
}

// inEqualParts splits over k nodes in whole cores where each vCPU gets one, else in vCPUs, or in parts that nest with
// the wanted guest topology.
func (v splitter) inEqualParts(k int, size farm.Bytes) (layout, bool) {
	w := &v.wants[0]
	for _, step := range v.steps() {
		if w.vcpus()%step != 0 || w.vcpus()/step < k {
			continue
		}
		cores := step == v.smt && step > 1 && v.req.Guest == (farm.GuestTopology{})
		if cores && (w.threads == farm.IsolateCores || w.pinned == 0) {
			continue
		}
		if l, ok := v.even(k, step, size); ok && (!cores || v.wholeCores(l)) && v.nests(l) {
			return l, true
		}
	}
	return nil, false
}

// steps are the numbers of vCPUs that parts are multiples of, the best first: sockets and cores of the wanted guest
// topology, cores of the host, vCPUs.
func (v splitter) steps() []int {
	g, out := v.req.Guest, []int{v.smt, 1}
	if g != (farm.GuestTopology{}) {
		core := g.Threads
		for core%v.smt != 0 {
			core += g.Threads
		}
		out = []int{g.Cores * g.Threads, core, g.Threads}
	}
	return slices.Compact(out)
}

// pages is the page sizes that will do, each once; the memory of the whole need not be a multiple of each.
func (v splitter) pages() []farm.Bytes {
	var out []farm.Bytes
	for _, size := range v.req.pagesOf(0) {
		if !slices.Contains(out, size) {
			out = append(out, size)
		}
	}
	return out
}

// mostCells bounds into how many cells the VM could be cut: no more than nodes that can have any of it.
func (v splitter) mostCells(pages []farm.Bytes) int {
	able := 0
	for n := range v.nodes {
		able += number(v.capacity(n, false) > 0 && v.mostMemory(n, pages) > 0)
	}
	return min(able, v.wants[0].vcpus())
}

// enough reports whether the k roomiest nodes could do. It spares the search in most refusals.
func (v splitter) enough(k int, pages []farm.Bytes) bool {
	threads, memory := make([]int, len(v.nodes)), make([]int, len(v.nodes))
	for n := range v.nodes {
		threads[n] = min(v.capacity(n, false), v.wants[0].vcpus())
		memory[n] = int(v.mostMemory(n, pages) / fineUnit)
	}
	return largest(threads, k) >= v.wants[0].vcpus() && farm.Bytes(largest(memory, k)+k)*fineUnit >= v.wants[0].memory
}

// largest is the sum of the k largest; it sorts of.
func largest(of []int, k int) int {
	slices.Sort(of)
	sum := 0
	for _, n := range of[len(of)-k:] {
		sum += n
	}
	return sum
}

// even splits over k nodes so that vCPUs differ by step at most, and memory by one unit. The smallest cell comes first,
// for it may have the emulator's CPU beside it.
func (v splitter) even(k, step int, size farm.Bytes) (layout, bool) {
	w := v.wants[0]
	amount := size
	if size == 0 {
		amount = v.ordinaryUnit()
	}
	if amount == 0 || w.memory%amount != 0 || units(w.memory, amount) < k {
		return nil, false
	}
	wants, lists := make([]want, k), make([][]farm.Bytes, k)
	list := []farm.Bytes{size}
	for i := range wants {
		vcpus := (w.vcpus()/step + i) / k * step
		wants[i] = want{pinned: vcpus, memory: farm.Bytes((units(w.memory, amount)+i)/k) * amount,
			threads: w.threads, pieces: 1}
		if w.pinned == 0 {
			wants[i].pinned, wants[i].floating = 0, vcpus
		}
		lists[i] = list
	}
	l, ok := v.match(wants, lists)
	if !ok {
		return nil, false
	}
	return v.ordered(l), true
}

// ordinaryUnit is the unit of ordinary memory that all nodes can count in.
func (v splitter) ordinaryUnit() farm.Bytes {
	u := v.grain
	for i := range v.state {
		u = max(u, v.state[i].room.Base)
	}
	return u
}

// wholeCores reports whether all vCPUs get cores of their own.
func (v splitter) wholeCores(l layout) bool {
	for i := range l {
		if v.picker.pick(v.view, l[i].node, &l[i].want); v.picker.score.loose > 0 {
			return false
		}
	}
	return true
}

// uneven splits over k nodes as evenly as their room allows. It is what a caller gets whose batch system granted ten
// CPUs of one node and six of the other. Each cell takes whichever of pages makes it fit.
func (v splitter) uneven(k int, pages []farm.Bytes) (layout, bool) {
	var best layout
	var bestRating rating
	options, most := make([][]source, len(v.nodes)), 0
	vcpus := make([]int, len(v.nodes))
	for n := range v.nodes {
		options[n], vcpus[n] = v.sources(n, pages), v.capacity(n, false)
		most = max(most, len(options[n]))
	}
	if most == 0 {
		return nil, false // sets would be tried by the million, for no cost of each
	}
	sets := v.sets(k, power(most, k))
	for _, set := range sets {
		left := v.wants[0].vcpus()
		for _, n := range set {
			left -= vcpus[n]
		}
		if left > 0 {
			continue
		}
		eachMix(set, options, maxSets/len(sets), func(from []source) {
			if allOf(from) < v.wants[0].memory {
				return
			}
			l := v.share(set, from)
			if l == nil {
				return
			}
			if r := v.rate(l); best == nil || r.compare(bestRating) < 0 {
				best, bestRating = l, r
			}
		})
	}
	if best == nil {
		return nil, false
	}
	return v.ordered(best), true
}

// allOf is the memory of all sources together.
func allOf(from []source) farm.Bytes {
	var sum farm.Bytes
	for _, s := range from {
		sum = min(sum+min(s.bytes(), maxMemory), maxMemory)
	}
	return sum
}

// share cuts the VM over the nodes of set, in whole cores where that can be, or gives nil where it does not fit.
func (v splitter) share(set []int, from []source) layout {
	if !v.isolatesEmulator() {
		return v.shareBeside(set, from, -1)
	}
	for carrier := range set {
		if l := v.shareBeside(set, from, carrier); l != nil {
			return l
		}
	}
	return nil
}

// shareBeside is share with the emulator's CPU on one node of set, or on none when carrier is below 0.
func (v splitter) shareBeside(set []int, from []source, carrier int) layout {
	caps := make([]int, len(set))
	for i, n := range set {
		caps[i] = v.capacity(n, i == carrier)
	}
	for _, step := range v.steps() {
		vcpus := v.shareCPUs(set, caps, step)
		if vcpus == nil {
			continue
		}
		if l := v.parts(set, vcpus, from, carrier); l == nil || v.nests(l) {
			return l
		}
	}
	return nil
}

// parts is the VM with so many vCPUs on each node of set, and memory by their number; nil where that is short.
func (v splitter) parts(set, vcpus []int, from []source, carrier int) layout {
	w := &v.wants[0]
	memory := shareMemory(w.memory, vcpus, from)
	if memory == nil {
		return nil
	}
	l := make(layout, len(set))
	for i, n := range set {
		part := want{pinned: vcpus[i], memory: memory[i], threads: w.threads, pieces: 1}
		if w.pinned == 0 {
			part.pinned, part.floating = 0, vcpus[i]
		}
		l[i] = cell{want: part, node: n, from: from[i], emulator: i == carrier}
	}
	return l
}

// shareCPUs cuts the vCPUs over the nodes of set in steps of so many, evenly as far as caps allow. Nodes without memory
// get only those that the others cannot take.
func (v splitter) shareCPUs(set, caps []int, step int) []int {
	total, homes, beside := v.wants[0].vcpus(), 0, 0
	for i, n := range set {
		if v.state[n].home {
			homes, beside = homes+1, beside+caps[i]/step*step
		}
	}
	if homes == 0 || homes == len(set) {
		return shareSteps(total, step, caps)
	}
	beside = min(beside, total-(len(set)-homes)*step)
	var groups [2][]int // caps of nodes without memory, and of those with
	for i, n := range set {
		at := number(v.state[n].home)
		groups[at] = append(groups[at], caps[i])
	}
	remote, local := shareSteps(total-beside, step, groups[0]), shareSteps(beside, step, groups[1])
	if remote == nil || local == nil {
		return nil
	}
	out := make([]int, 0, len(set))
	for _, n := range set {
		from := &remote
		if v.state[n].home {
			from = &local
		}
		out, *from = append(out, (*from)[0]), (*from)[1:]
	}
	return out
}

// sets is all sets of k nodes, or where they are too many for the cost of each, the likeliest.
func (v splitter) sets(k, cost int) [][]int {
	if combinations(len(v.nodes), k)*cost > maxSets {
		return v.likelySets(k)
	}
	var out [][]int
	eachCombination(len(v.nodes), k, func(set []int) { out = append(out, slices.Clone(set)) })
	return out
}

// likelySets is the nodes with most threads, those with most memory, those with most of both, and each node with its
// nearest.
func (v splitter) likelySets(k int) [][]int {
	pages, w := v.pages(), &v.wants[0]
	threads, memory := make([]int, len(v.nodes)), make([]int, len(v.nodes))
	var order []int
	for n := range v.nodes {
		threads[n] = v.capacity(n, false)
		memory[n] = int(v.mostMemory(n, pages) / fineUnit)
		if threads[n] > 0 && memory[n] > 0 {
			order = append(order, n)
		}
	}
	if len(order) < k {
		return nil
	}
	wanted := int(w.memory/fineUnit) + 1
	var out [][]int
	for _, key := range []func(n int) int{
		func(n int) int { return threads[n] },
		func(n int) int { return memory[n] },
		func(n int) int { return min(threads[n]*(wanted/w.vcpus()+1), memory[n]) },
	} {
		slices.SortStableFunc(order, func(a, b int) int { return key(b) - key(a) })
		out = append(out, slices.Sorted(slices.Values(order[:k])))
	}
	for _, seed := range order {
		set := make([]int, 0, k)
		for _, n := range v.nodes[seed].near {
			if threads[n] > 0 && memory[n] > 0 && len(set) < k {
				set = append(set, n)
			}
		}
		slices.Sort(set)
		out = append(out, set)
	}
	return out
}
