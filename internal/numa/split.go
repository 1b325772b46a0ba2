package numa

import (
	"cmp"
	"slices"
)

// maxSubsets bounds how many sets of nodes an uneven split tries one by one; hosts with more get the greedy sets only.
const maxSubsets = 4000

// size is what one cell needs.
type size struct{ vcpus, units int }

// choice is a set of nodes and how good it is; lower is better.
type choice struct {
	nodes                  []int // into view.nodes
	distance, spread, left int
}

func (c choice) better(o choice) bool {
	return o.nodes == nil || cmp.Or(cmp.Compare(c.distance, o.distance), cmp.Compare(c.spread, o.spread),
		cmp.Compare(c.left, o.left), slices.Compare(c.nodes, o.nodes)) < 0
}

// even splits over k nodes so that vCPUs differ by step at most, and memory by one unit. The cells are nested (a larger one has no
// less of either), so each node is described by how many of the smallest it could hold any of, and a set of nodes fits when the
// j-th weakest of it could hold j+1 of them.
func (v *view) even(k, step int) (layout, bool) {
	sizes := make([]size, k) // smallest first
	for i := range sizes {
		sizes[i] = size{vcpus: (v.req.VCPUs/step + i) / k * step, units: (v.units + i) / k}
	}
	rank := make([]int, len(v.nodes)) // how many of sizes fit
	able := 0
	for i, n := range v.nodes {
		for rank[i] < k && n.threads >= sizes[rank[i]].vcpus && n.units >= sizes[rank[i]].units {
			rank[i]++
		}
		able += number(rank[i] > 0)
	}
	if able < k {
		return nil, false
	}
	var best choice
	for seed := range v.nodes {
		if set := v.grow(seed, k, func(set []int) bool { return v.holds(set, rank, sizes) }); set != nil {
			if c := v.rate(set); c.better(best) {
				best = c
			}
		}
	}
	if best.nodes == nil {
		return nil, false
	}
	slices.SortStableFunc(best.nodes, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	return v.cells(best.nodes, sizes), true
}

// grow adds to seed the nearest nodes, fullest first, as long as ok, until there are k.
func (v *view) grow(seed, k int, ok func(set []int) bool) []int {
	order := make([]int, len(v.nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if a == seed || b == seed {
			return number(b == seed) - number(a == seed)
		}
		na, nb := v.nodes[a], v.nodes[b]
		from := v.nodes[seed].index
		return cmp.Or(cmp.Compare(v.distance(from, na.index), v.distance(from, nb.index)), cmp.Compare(na.threads, nb.threads))
	})
	set := make([]int, 0, k)
	for _, i := range order {
		if set = append(set, i); !ok(set) {
			set = set[:len(set)-1]
		}
		if len(set) == 0 { // the seed itself is of no use
			return nil
		}
		if len(set) == k {
			slices.Sort(set)
			return set
		}
	}
	return nil
}

// holds tells whether the nodes of set can each hold a different one of sizes. Nodes without memory may share a neighbour's;
// then the neighbour is held to have enough only if it could give each of them the largest cell.
func (v *view) holds(set, rank []int, sizes []size) bool {
	ranks := make([]int, len(set))
	for i, n := range set {
		ranks[i] = rank[n]
		sharing := 0
		for _, m := range set {
			sharing += number(v.nodes[m].memory == v.nodes[n].memory)
		}
		if sharing > 1 && sharing*sizes[len(sizes)-1].units > v.nodes[n].units {
			return false
		}
	}
	slices.Sort(ranks)
	for i, r := range ranks {
		if r < i+1 {
			return false
		}
	}
	return true
}

func (v *view) rate(set []int) choice {
	c := choice{nodes: slices.Clone(set)}
	for i, a := range set {
		c.left += v.nodes[a].threads
		for _, b := range set[:i] {
			c.distance += v.distance(v.nodes[a].index, v.nodes[b].index)
		}
	}
	return c
}

// cells gives the i-th size to the i-th node, and puts the cells in order of socket and node, as the guest will number them.
func (v *view) cells(nodes []int, sizes []size) layout {
	l := make(layout, len(nodes))
	for i, n := range nodes {
		l[i] = cell{node: &v.nodes[n], pick: v.nodes[n].pick(sizes[i].vcpus), units: sizes[i].units}
	}
	slices.SortFunc(l, func(a, b cell) int {
		return cmp.Or(cmp.Compare(a.pick.cores[0].socket, b.pick.cores[0].socket), cmp.Compare(a.node.index, b.node.index))
	})
	return l
}

// uneven splits over k nodes as evenly as their room allows. It is what a caller gets whose batch system granted ten CPUs of one
// node and six of the other.
func (v *view) uneven(k int) (layout, bool) {
	if !v.enough(k) {
		return nil, false
	}
	var best choice
	try := func(set []int) {
		sizes := v.shares(set)
		if sizes == nil {
			return
		}
		c := v.rate(set)
		least, most := sizes[0].vcpus, sizes[0].vcpus
		for _, s := range sizes {
			least, most = min(least, s.vcpus), max(most, s.vcpus)
		}
		if c.spread = most - least; c.better(best) {
			best = c
		}
	}
	if subsets(len(v.nodes), k) <= maxSubsets {
		eachSubset(len(v.nodes), k, try)
	} else {
		v.greedySets(k, try)
	}
	if best.nodes == nil {
		return nil, false
	}
	return v.cells(best.nodes, v.shares(best.nodes)), true
}

// enough tells whether the k roomiest nodes could do. It spares the search in most refusals.
func (v *view) enough(k int) bool {
	var threads, units []int
	for _, n := range v.nodes {
		threads, units = append(threads, n.threads), append(units, n.units)
	}
	return most(threads, k) >= v.req.VCPUs && most(units, k) >= v.units
}

func most(of []int, k int) int {
	slices.SortFunc(of, func(a, b int) int { return cmp.Compare(b, a) })
	sum := 0
	for _, n := range of[:k] {
		sum += n
	}
	return sum
}

// greedySets tries the nodes with most threads, those with most memory, and each node with its nearest neighbours.
func (v *view) greedySets(k int, try func(set []int)) {
	for _, key := range []func(n nodeView) int{
		func(n nodeView) int { return n.threads },
		func(n nodeView) int { return n.units },
		func(n nodeView) int { return min(n.threads*v.units, n.units*v.req.VCPUs) },
	} {
		order := make([]int, len(v.nodes))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key(v.nodes[b]), key(v.nodes[a])) })
		set := order[:k]
		slices.Sort(set)
		try(set)
	}
	for seed := range v.nodes {
		useful := func(set []int) bool { n := v.nodes[set[len(set)-1]]; return n.threads > 0 && n.units > 0 }
		if set := v.grow(seed, k, useful); set != nil {
			try(set)
		}
	}
}

// shares cuts the VM over the nodes of set, in whole cores where that can be, or gives nil where it does not fit.
func (v *view) shares(set []int) []size {
	threads, units, one := make([]int, len(set)), make([]int, len(set)), make([]int, len(set))
	for i, n := range set {
		threads[i], units[i], one[i] = v.nodes[n].threads, v.nodes[n].units, 1
		sharing := 0
		for _, m := range set {
			sharing += number(v.nodes[m].memory == v.nodes[n].memory)
		}
		units[i] /= sharing
	}
	vcpus := shareCores(v.req.VCPUs, v.smt, one, threads)
	if vcpus == nil {
		vcpus = share(v.req.VCPUs, one, threads)
	}
	if vcpus == nil {
		return nil
	}
	memory := share(v.units, vcpus, units)
	if memory == nil {
		return nil
	}
	sizes := make([]size, len(set))
	for i := range sizes {
		sizes[i] = size{vcpus: vcpus[i], units: memory[i]}
	}
	return sizes
}

// shareCores is share in steps of smt vCPUs.
func shareCores(total, smt int, weights, caps []int) []int {
	if total%smt != 0 {
		return nil
	}
	cores := slices.Clone(caps)
	for i := range cores {
		cores[i] /= smt
	}
	parts := share(total/smt, weights, cores)
	for i := range parts {
		parts[i] *= smt
	}
	return parts
}

// share cuts total into parts of at least one and at most caps, in proportion to weights as far as caps allow. It gives nil
// where that cannot be.
func share(total int, weights, caps []int) []int {
	parts := make([]int, len(caps))
	rest := total
	for i, c := range caps {
		if c < 1 {
			return nil
		}
		parts[i] = 1
		rest--
	}
	for rest > 0 {
		weight, before := 0, rest
		for i := range parts {
			if parts[i] < caps[i] {
				weight += weights[i]
			}
		}
		if weight == 0 {
			return nil
		}
		for i := range parts {
			if parts[i] < caps[i] {
				add := min(before/weight*weights[i]+before%weight*weights[i]/weight, caps[i]-parts[i])
				parts[i], rest = parts[i]+add, rest-add
			}
		}
		if rest == before { // all parts were rounded to nothing
			i := 0
			for parts[i] >= caps[i] {
				i++
			}
			parts[i], rest = parts[i]+1, rest-1
		}
	}
	if rest < 0 {
		return nil
	}
	return parts
}

// subsets is n over k, or more than maxSubsets.
func subsets(n, k int) int {
	c := 1
	for i := range min(k, n-k) {
		if c = c * (n - i) / (i + 1); c > maxSubsets {
			return c
		}
	}
	return c
}

func eachSubset(n, k int, try func(set []int)) {
	set := make([]int, k)
	for i := range set {
		set[i] = i
	}
	for {
		try(set)
		i := k - 1
		for i >= 0 && set[i] == n-k+i {
			i--
		}
		if i < 0 {
			return
		}
		set[i]++
		for j := i + 1; j < k; j++ {
			set[j] = set[j-1] + 1
		}
	}
}
