package numa

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// index is what planning wants to know of a topology. It is worked out once, never changed, and shared by all rooms of
// a host.
type index struct {
	topology farm.Topology
	nodes    []nodeIndex // as Topology.Nodes; positions everywhere in this package are into it
	cores    []coreIndex // by node; on a node by socket, cache, most threads, first thread
	coreOf   []int32     // by CPU: into cores, or -1
}

type nodeIndex struct {
	id       int // farm.Node.ID
	position int
	cpus     farm.CPUSet // of its cores
	cores    []coreIndex
	groups   []group
	smt      int   // threads of its largest core; 0 without cores
	distance []int // to each node
	near     []int // all nodes, the nearest first; it begins with itself
}

type coreIndex struct {
	threads []int
	cpus    farm.CPUSet // the same
	socket  int
	cache   int // into Topology.L3; -1 when unknown
	node    int // position; -1 when it is in no node
}

// group is a run of cores that share a socket and a last-level cache.
type group struct {
	first, end int // into nodeIndex.cores
	cpus       farm.CPUSet
}

func newIndex(t farm.Topology) *index {
	ix := &index{topology: t, nodes: make([]nodeIndex, len(t.Nodes))}
	positions := make(map[int]int, len(t.Nodes))
	for i, n := range t.Nodes {
		ix.nodes[i] = nodeIndex{id: n.ID, position: i, distance: distances(t, i)}
		ix.nodes[i].near = nearest(ix.nodes[i].distance, i)
		positions[n.ID] = i
	}
	ix.addCores(positions)
	for first := 0; first < len(ix.cores); {
		end := first
		for end < len(ix.cores) && ix.cores[end].node == ix.cores[first].node {
			end++
		}
		ix.nodes[ix.cores[first].node].addCores(ix.cores[first:end])
		first = end
	}
	return ix
}

// addCores lists the cores of all nodes in order. A core knows its node best: emulated hosts list a CPU in several
// nodes, or in none.
func (ix *index) addCores(positions map[int]int) {
	caches := cacheOf(ix.topology)
	for _, c := range ix.topology.Cores {
		node, ok := positions[c.Node]
		if !ok || c.Threads.Empty() {
			continue
		}
		core := coreIndex{threads: c.Threads.List(), cpus: c.Threads, socket: c.Socket, cache: -1, node: node}
		if i, ok := caches[core.threads[0]]; ok {
			core.cache = i
		}
		ix.cores = append(ix.cores, core)
	}
	slices.SortStableFunc(ix.cores, func(a, b coreIndex) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.socket, b.socket), cmp.Compare(a.cache, b.cache),
			cmp.Compare(len(b.threads), len(a.threads)), cmp.Compare(a.threads[0], b.threads[0]))
	})
	for i, c := range ix.cores {
		for _, cpu := range c.threads {
			for cpu >= len(ix.coreOf) {
				ix.coreOf = append(ix.coreOf, -1)
			}
			ix.coreOf[cpu] = int32(i)
		}
	}
}

func (n *nodeIndex) addCores(cores []coreIndex) {
	n.cores = cores
	for i, c := range cores {
		if i == 0 || c.socket != cores[i-1].socket || c.cache != cores[i-1].cache {
			n.groups = append(n.groups, group{first: i})
		}
		g := &n.groups[len(n.groups)-1]
		g.end, g.cpus = i+1, g.cpus.Or(c.cpus)
		n.cpus, n.smt = n.cpus.Or(c.cpus), max(n.smt, len(c.threads))
	}
}

// is reports whether the index was made of t, or of a host with the same processors. Rooms are copied and their
// topologies never changed in place, so it is enough that the parts are the same ones. How much memory nodes have is
// not in the index.
func (ix *index) is(t farm.Topology) bool {
	return slices.EqualFunc(ix.topology.Nodes, t.Nodes, func(a, b farm.Node) bool { return a.ID == b.ID }) &&
		same(ix.topology.Cores, t.Cores) && same(ix.topology.L3, t.L3) && same(ix.topology.Distance, t.Distance)
}

// alike reports whether one index does for both hosts.
func alike(a, b farm.Topology) bool {
	return slices.EqualFunc(a.Nodes, b.Nodes, func(a, b farm.Node) bool {
		return a.ID == b.ID &&
			a.CPUs.Equal(b.CPUs)
	}) && slices.EqualFunc(a.Cores, b.Cores, func(a, b farm.Core) bool {
		return a.Socket == b.Socket && a.Node == b.Node && a.Kind == b.Kind && a.Threads.Equal(b.Threads)
	}) &&
		slices.EqualFunc(a.L3, b.L3, farm.CPUSet.Equal) && slices.EqualFunc(a.Distance, b.Distance, slices.Equal[[]int])
}

func same[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// core is the core of a CPU, nil for a CPU that is on none.
func (ix *index) core(cpu int) *coreIndex {
	if cpu < 0 || cpu >= len(ix.coreOf) || ix.coreOf[cpu] < 0 {
		return nil
	}
	return &ix.cores[ix.coreOf[cpu]]
}

// cacheOf gives, by CPU, the place of its last-level cache in t.L3.
func cacheOf(t farm.Topology) map[int]int {
	of := make(map[int]int, t.Online.Len())
	for i, set := range t.L3 {
		for cpu := range set.All() {
			of[cpu] = i
		}
	}
	return of
}

// distances is the SLIT's row of node i, or Linux's defaults (LOCAL_DISTANCE 10, REMOTE_DISTANCE 20) where the host
// does not say.
func distances(t farm.Topology, i int) []int {
	row := make([]int, len(t.Nodes))
	for j := range row {
		switch {
		case i < len(t.Distance) && j < len(t.Distance[i]):
			row[j] = t.Distance[i][j]
		case i == j:
			row[j] = 10
		default:
			row[j] = 20
		}
	}
	return row
}

func nearest(distance []int, self int) []int {
	near := make([]int, len(distance))
	for i := range near {
		near[i] = i
	}
	slices.SortStableFunc(near, func(a, b int) int {
		if a == self || b == self {
			return number(b == self) - number(a == self)
		}
		return cmp.Compare(distance[a], distance[b])
	})
	return near
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
