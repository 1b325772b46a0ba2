package numa

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// maxSteps bounds the search on hosts where nodes share a neighbour's memory, so that a choice for one cell changes
// what another can have. Beyond it a layout may be missed.
const maxSteps = 100_000

// matcher puts cells on nodes, each on one of its own.
type matcher struct {
	view  *view
	wants []want
	from  []source // by cell × nodes + node; meaningful where fits
	fits  []bool
	cell  []int  // by node: the cell it has, or -1
	node  []int  // by cell: the node it is on, or -1
	seen  []bool // by cell, while one node is added
	lists [][]farm.Bytes
	steps int
}

// match puts each cell on a node of its own, on nodes near each other; the first cell has the emulator's CPU beside it
// where the request isolates it. lists are the page sizes that each may take.
func (v *view) match(wants []want, lists [][]farm.Bytes) (layout, bool) {
	if len(wants) > len(v.nodes) {
		return nil, false
	}
	m := v.newMatcher(wants, lists)
	able := m.able()
	if len(able) < len(wants) || !m.place(able) {
		return nil, false
	}
	best := m.layout()
	if len(able) == len(wants) && !v.lends {
		return best, true // there is only one set of nodes
	}
	rating := v.rate(best)
	for _, seed := range able {
		slices.SortStableFunc(able, func(a, b int) int {
			d := v.nodes[seed].distance
			return cmp.Or(number(b == seed)-number(a == seed), cmp.Compare(d[a], d[b]),
				cmp.Compare(v.state[a].threads, v.state[b].threads), cmp.Compare(a, b))
		})
		if !m.place(able) || m.cell[seed] < 0 {
			continue
		}
		l := m.layout()
		if r := v.rate(l); r.compare(rating) < 0 {
			best, rating = l, r
		}
	}
	return best, true
}

func (v *view) newMatcher(wants []want, lists [][]farm.Bytes) *matcher {
	size := len(wants) * len(v.nodes)
	m := &matcher{view: v, wants: wants, lists: lists, from: make([]source, size), fits: make([]bool, size),
		cell: make([]int, len(v.nodes)), node: make([]int, len(wants)), seen: make([]bool, len(wants))}
	for c := range wants {
		for n := range v.nodes {
			i := c*len(v.nodes) + n
			m.from[i], m.fits[i] = v.fits(&wants[c], n, lists[c], m.emulator(c))
		}
	}
	return m
}

// emulator reports whether cell c has the emulator's CPU beside it.
func (m *matcher) emulator(c int) bool { return c == 0 && m.view.isolatesEmulator() }

// able lists the nodes that could have a cell, by position.
func (m *matcher) able() []int {
	var out []int
	for n := range m.cell {
		for c := range m.wants {
			if m.fits[c*len(m.cell)+n] {
				out = append(out, n)
				break
			}
		}
	}
	return out
}

// place puts the cells on the first nodes of order that can have them all.
func (m *matcher) place(order []int) bool {
	m.clear()
	if m.view.lends {
		m.steps = 0
		return m.search(0, order, map[account]int{})
	}
	return m.augment(order)
}

func (m *matcher) clear() {
	for n := range m.cell {
		m.cell[n] = -1
	}
	for c := range m.node {
		m.node[c] = -1
	}
}

// augment is place where no two nodes have their memory from one.
func (m *matcher) augment(order []int) bool {
	// A node that was given a cell keeps one for good, though not always the same: nodes that can be matched are a
	// matroid, so taking each that can be added, best first, ends with the best set (Edmonds and Fulkerson, 1965).
	placed := 0
	for _, n := range order {
		for i := range m.seen {
			m.seen[i] = false
		}
		if m.add(n) {
			if placed++; placed == len(m.wants) {
				return true
			}
		}
	}
	return false
}

// add finds a cell for one more node: one that has no node yet, or else by moving others' (Kuhn's augmenting paths).
func (m *matcher) add(n int) bool {
	fits := func(c int) bool { return m.fits[c*len(m.cell)+n] }
	for c := range m.wants {
		if m.node[c] < 0 && fits(c) {
			m.cell[n], m.node[c] = c, n
			return true
		}
	}
	for c := range m.wants {
		if m.seen[c] || !fits(c) {
			continue
		}
		m.seen[c] = true
		if m.add(m.node[c]) {
			m.cell[n], m.node[c] = c, n
			return true
		}
	}
	return false
}

// account is where memory is taken from.
type account struct {
	node   int
	size   farm.Bytes
	shared bool
}

func (s source) account() account { return account{s.node, s.size, s.shared} }

// search places cell c and those behind it, each on the first node of order for which all go well; taken is what those
// before it took of each account's memory.
func (m *matcher) search(c int, order []int, taken map[account]int) bool {
	if c == len(m.wants) {
		return true
	}
	w := &m.wants[c]
	for _, n := range order {
		if m.cell[n] >= 0 || !m.fits[c*len(m.cell)+n] {
			continue
		}
		for _, from := range m.view.sources(n, m.lists[c]) {
			at := from.account()
			if m.steps++; m.steps > maxSteps || !from.holds(w, taken[at]) {
				continue
			}
			units := units(w.memory, from.unit)
			taken[at] += units
			m.cell[n], m.node[c], m.from[c*len(m.cell)+n] = c, n, from
			if m.search(c+1, order, taken) {
				return true
			}
			taken[at] -= units
			m.cell[n], m.node[c] = -1, -1
		}
	}
	return false
}

// shortfall gives cells that together can have fewer nodes than they are, and those nodes (Hall's theorem); nil when
// there are none.
func (m *matcher) shortfall() (cells, nodes []int) {
	m.clear()
	m.augment(m.able())
	first := slices.Index(m.node, -1)
	if first < 0 {
		return nil, nil
	}
	cells = []int{first}
	for i := 0; i < len(cells); i++ { // the cells on nodes that the cells so far could have
		for n, c := range m.cell {
			if c >= 0 && m.fits[cells[i]*len(m.cell)+n] && !slices.Contains(nodes, n) {
				nodes, cells = append(nodes, n), append(cells, c)
			}
		}
	}
	slices.Sort(cells)
	return cells, nodes
}

func (m *matcher) layout() layout {
	l := make(layout, len(m.wants))
	for c, n := range m.node {
		l[c] = cell{want: m.wants[c], node: n, from: m.from[c*len(m.cell)+n], emulator: m.emulator(c)}
	}
	return l
}

// rating says how good a set of nodes is; lower is better, the first field first.
type rating struct {
	remote   int // vCPUs on nodes without memory
	distance int // sum over pairs
	spread   int // vCPUs that the largest cell has more than the smallest
	left     int // usable threads on the nodes
	nodes    int // sum of positions, so that the order of trying does not matter
}

func (r rating) compare(o rating) int {
	return cmp.Or(cmp.Compare(r.remote, o.remote), cmp.Compare(r.distance, o.distance),
		cmp.Compare(r.spread, o.spread), cmp.Compare(r.left, o.left), cmp.Compare(r.nodes, o.nodes))
}

func (v *view) rate(l layout) rating {
	var r rating
	least, most := l[0].want.vcpus(), l[0].want.vcpus()
	for i, a := range l {
		r.left += v.state[a.node].threads
		r.nodes += a.node
		if !v.state[a.node].home {
			r.remote += a.want.vcpus()
		}
		least, most = min(least, a.want.vcpus()), max(most, a.want.vcpus())
		for _, b := range l[:i] {
			r.distance += v.nodes[a.node].distance[b.node]
		}
	}
	r.spread = most - least
	return r
}
