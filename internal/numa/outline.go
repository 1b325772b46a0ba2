package numa

import (
	"maps"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Outline is a room in a few numbers: enough to tell fast that a request surely has no place there, or else about what
// it would cost. It is for who chooses among many hosts.
type Outline struct {
	nodes   []outlineNode
	threads int     // of the host
	free    int     // of them
	whole   int     // cores with nothing but free threads
	lends   bool    // some node's CPUs have their memory from another node
	worth   float64 // of the whole host, see Waste
}

type outlineNode struct {
	threads, free, whole int
	ordinary             outlineMemory
	pages                []outlineMemory
}

// outlineMemory is one account of a node's memory.
type outlineMemory struct {
	size        farm.Bytes // of pages; 0: ordinary memory
	free, total farm.Bytes
}

// Shortage is what a room surely has too little of for a request.
type Shortage int

// The shortages.
const (
	ShortOfNothing  Shortage = iota // there may be room
	ShortOfCPUs                     // threads, or cores where the thread policy wants those
	ShortOfMemory                   // ordinary memory
	ShortOfPages                    // huge pages, where nothing else will do
	ShortOfTogether                 // each of them is there, and not on the same nodes
)

// Demand is a request, checked and made ready for many rooms.
type Demand struct {
	vcpus, whole int // threads and cores that it takes at least
	memory       farm.Bytes
	sizes        []farm.Bytes // page sizes of which some cell may take some
	cell         want         // each of the cells
	cells        int          // equal ones, each on a node of its own; 0: as the plan says, or not equal
	split        bool         // the plan may spread it over several nodes
	floats       bool         // some vCPU shares host CPUs
}

// Demand checks the request; the error is of farm.CodeBadShape. Allowed and Service are not looked at.
func (r Request) Demand() (Demand, error) {
	wants, err := r.normal()
	if err != nil {
		return Demand{}, err
	}
	d := Demand{memory: r.Memory, cell: wants[0], cells: len(wants), split: r.Cells == 0}
	for i, w := range wants {
		d.vcpus, d.floats = d.vcpus+w.pinned, d.floats || w.floating > 0
		if w.threads == farm.IsolateCores {
			d.whole += w.pinned
		}
		for _, size := range r.pagesOf(i) {
			d.addSize(size)
		}
	}
	if len(r.Each) > 0 {
		d.cells, d.split = 0, false
	}
	return d, nil
}

func (d *Demand) addSize(size farm.Bytes) {
	for _, s := range d.sizes {
		if s == size {
			return
		}
	}
	d.sizes = append(d.sizes, size)
}

// Read makes o the outline of a room. It uses the memory that o has.
func (o *Outline) Read(r Room) {
	ix := r.indexed()
	if cap(o.nodes) < len(ix.nodes) {
		o.nodes = make([]outlineNode, len(ix.nodes))
	}
	o.nodes, o.threads, o.free, o.whole, o.lends = o.nodes[:len(ix.nodes)], 0, 0, 0, false
	for i := range ix.nodes {
		from, n := &ix.nodes[i], &o.nodes[i]
		left, was := r.Nodes[from.id], r.Topology.Nodes[i]
		n.threads, n.free, n.whole = from.cpus.Len(), r.Free.Common(from.cpus), 0
		if n.free > 0 {
			for c := range from.cores {
				n.whole += number(r.Free.Common(from.cores[c].cpus) == len(from.cores[c].threads))
			}
		}
		n.ordinary = outlineMemory{free: left.Memory, total: max(ordinary(was), left.Memory)}
		n.readPages(was.Pages, left.Pages)
		o.threads, o.free, o.whole = o.threads+n.threads, o.free+n.free, o.whole+n.whole
		o.lends = o.lends || n.threads > 0 && !left.home(was)
	}
	o.worth = o.hostWorth(o.free)
}

// readPages enters the pools of the topology, in their order, and then those that only a room made by hand has.
func (n *outlineNode) readPages(was []farm.HugePages, left map[farm.Bytes]int) {
	n.pages = n.pages[:0]
	for _, p := range was {
		n.pages = append(n.pages, outlineMemory{size: p.Size, free: farm.Bytes(max(left[p.Size], 0)) * p.Size,
			total: farm.Bytes(max(p.Total, 0)) * p.Size})
	}
	if len(left) <= len(was) {
		return
	}
	for _, size := range slices.Sorted(maps.Keys(left)) {
		if n.account(size).size == 0 {
			n.pages = append(n.pages, outlineMemory{size: size, free: farm.Bytes(max(left[size], 0)) * size})
		}
	}
}

func (o *Outline) hostWorth(free int) float64 {
	if o.threads == 0 {
		return 0
	}
	return hostWeight * float64(o.threads) * cube(float64(free)/float64(o.threads))
}

// Threads is how many threads the host has, and how many of them are free.
func (o *Outline) Threads() (all, free int) { return o.threads, o.free }

// Memory is how much memory of one page size is free on all nodes; 0 stands for ordinary memory.
func (o *Outline) Memory(size farm.Bytes) farm.Bytes {
	var sum farm.Bytes
	for i := range o.nodes {
		sum += o.nodes[i].account(size).free
	}
	return sum
}

// Estimate returns what the room is surely short of. Where Plan finds a place, that is nothing. Without a shortage the
// cost is about Waste of what Plan would give, and Plan may refuse all the same.
func (o *Outline) Estimate(d *Demand) (Cost, Shortage) {
	if d.vcpus == 0 {
		return 0, ShortOfNothing // it floats over shared pools, of which an outline knows nothing
	}
	if o.free < d.vcpus || o.whole < d.whole {
		return 0, ShortOfCPUs
	}
	if o.inReach(d) < d.memory {
		return 0, d.shortOfMemory()
	}
	if o.lends || d.cells == 0 {
		return Cost(o.worth - o.hostWorth(o.free-d.vcpus)), ShortOfNothing
	}
	cost, short := o.cells(d)
	if short != ShortOfNothing && d.split && len(o.nodes) > 1 {
		cost, short = o.spread(d), ShortOfNothing
	}
	return cost, short
}

// inReach is the memory that the demand could have: of nodes with free threads, unless nodes lend or vCPUs float over
// others.
func (o *Outline) inReach(d *Demand) farm.Bytes {
	var sum farm.Bytes
	for i := range o.nodes {
		if n := &o.nodes[i]; o.lends || d.floats || n.free > 0 {
			for _, size := range d.sizes {
				sum += n.account(size).free
			}
		}
	}
	return sum
}

func (d *Demand) shortOfMemory() Shortage {
	for _, size := range d.sizes {
		if size == 0 {
			return ShortOfMemory
		}
	}
	return ShortOfPages
}

func (n *outlineNode) account(size farm.Bytes) outlineMemory {
	if size == 0 {
		return n.ordinary
	}
	for _, p := range n.pages {
		if p.size == size {
			return p
		}
	}
	return outlineMemory{}
}

// holds finds memory for a cell in the best page size that has room.
func (n *outlineNode) holds(w *want) (outlineMemory, bool) {
	for _, size := range w.sizes {
		if m := n.account(size); m.free >= w.memory && m.free > 0 {
			return m, true
		}
	}
	return outlineMemory{}, false
}

// most is the most cells that are looked at one by one; with more, the cost is told from the first.
const most = 8

// cells puts each cell on a node of its own: those with the fewest free threads, as Plan does.
func (o *Outline) cells(d *Demand) (Cost, Shortage) {
	w := &d.cell
	var nodes [most]*outlineNode // those that fit, the fullest first
	fits, withCPUs, withMemory := 0, 0, 0
	for i := range o.nodes {
		n := &o.nodes[i]
		cpus := n.free >= w.pinned && (d.whole == 0 || n.whole >= w.pinned)
		_, memory := n.holds(w)
		withCPUs, withMemory = withCPUs+number(cpus), withMemory+number(memory)
		if !cpus || !memory {
			continue
		}
		for at := 0; at < min(d.cells, most); at++ {
			if nodes[at] == nil || n.free < nodes[at].free {
				copy(nodes[at+1:], nodes[at:most-1])
				nodes[at] = n
				break
			}
		}
		fits++
	}
	switch {
	case withCPUs < d.cells:
		return 0, ShortOfCPUs
	case withMemory < d.cells:
		return 0, d.shortOfMemory()
	case fits < d.cells:
		return 0, ShortOfTogether
	}
	cost := o.worth - o.hostWorth(o.free-d.vcpus)
	for _, n := range nodes[:min(d.cells, most)] {
		m, _ := n.holds(w)
		cost += n.takes(w.pinned, m, w.memory)
	}
	return Cost(cost), ShortOfNothing
}

// takes is what a node loses in worth, see Waste.
func (n *outlineNode) takes(threads int, m outlineMemory, memory farm.Bytes) float64 {
	size, total := float64(max(n.threads, 1)), float64(max(m.total, m.free, 1))
	was := hole{size: size, threads: float64(n.free) / size, memory: float64(m.free) / total}
	is := hole{size: size, threads: float64(n.free-threads) / size, memory: float64(less(m.free, memory)) / total}
	return was.worth() - is.worth()
}

// spread is about the cost of a VM that no node holds: over the fewest nodes with the threads, evenly.
func (o *Outline) spread(d *Demand) Cost {
	cost := o.worth - o.hostWorth(o.free-d.vcpus)
	taken := uint64(0) // nodes; those behind the 64th are left out
	for need := d.vcpus; need > 0; {
		var roomiest *outlineNode
		at := 0
		for i := range o.nodes[:min(len(o.nodes), 64)] {
			if n := &o.nodes[i]; taken>>i&1 == 0 && n.free > 0 && (roomiest == nil || n.free > roomiest.free) {
				roomiest, at = n, i
			}
		}
		if roomiest == nil {
			break
		}
		taken |= 1 << at
		threads := min(need, roomiest.free)
		m := roomiest.account(d.sizes[0])
		cost += roomiest.takes(threads, m, d.memory*farm.Bytes(threads)/farm.Bytes(d.vcpus))
		need -= threads
	}
	return Cost(cost)
}
