package topology

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Grid is a host whose sockets are all alike. Threads are numbered as Linux on most servers does: first one thread of
// every core, node by node, then the siblings in the same order.
type Grid struct {
	Sockets        int
	NodesPerSocket int // 0 means 1
	CoresPerNode   int
	Threads        int // of a core; 0 means 1
	CachesPerNode  int // last-level caches; 0 means 1
	NodeMemory     farm.Bytes
	Near, Far      int // distance to nodes of the same and of another socket; 0 means 12 and 21
	CPU            farm.CPUModel
}

// Topology is the host of the grid, with all its memory free and no huge pages.
func (g Grid) Topology() farm.Topology {
	g.NodesPerSocket, g.Threads, g.CachesPerNode = max(g.NodesPerSocket, 1), max(g.Threads, 1), max(g.CachesPerNode, 1)
	g.Near, g.Far = cmp.Or(g.Near, 12), cmp.Or(g.Far, 21)
	nodes := g.Sockets * g.NodesPerSocket
	cores := nodes * g.CoresPerNode
	t := farm.Topology{CPU: g.CPU}
	for c := range cores {
		var threads []int
		for s := range g.Threads {
			threads = append(threads, s*cores+c)
		}
		node := c / g.CoresPerNode
		t.Cores = append(t.Cores, farm.Core{Socket: node / g.NodesPerSocket, Node: node,
			Threads: farm.NewCPUSet(threads...)})
	}
	perCache := max(g.CoresPerNode/g.CachesPerNode, 1)
	t.L3 = sets(t.Cores, func(i int, c farm.Core) int { return c.Node*g.CoresPerNode + i%g.CoresPerNode/perCache })
	for id, cpus := range sets(t.Cores, func(_ int, c farm.Core) int { return c.Socket }) {
		t.Sockets = append(t.Sockets, farm.Socket{ID: id, CPUs: cpus})
	}
	for id, cpus := range sets(t.Cores, func(_ int, c farm.Core) int { return c.Node }) {
		t.Nodes = append(t.Nodes, farm.Node{ID: id, CPUs: cpus, Memory: g.NodeMemory, Free: g.NodeMemory})
		t.Online = t.Online.Or(cpus)
	}
	t.Distance = g.distances(nodes)
	return t
}

func (g Grid) distances(nodes int) [][]int {
	d := make([][]int, nodes)
	for i := range d {
		d[i] = make([]int, nodes)
		for j := range d[i] {
			switch {
			case i == j:
				d[i][j] = 10
			case i/g.NodesPerSocket == j/g.NodesPerSocket:
				d[i][j] = g.Near
			default:
				d[i][j] = g.Far
			}
		}
	}
	return d
}

// sets joins the threads of cores that have the same key, in rising order of key.
func sets(cores []farm.Core, key func(i int, c farm.Core) int) []farm.CPUSet {
	by := map[int][]int{}
	var keys []int
	for i, c := range cores {
		k := key(i, c)
		if by[k] == nil {
			keys = append(keys, k)
		}
		by[k] = append(by[k], c.Threads.List()...)
	}
	slices.Sort(keys)
	var out []farm.CPUSet
	for _, k := range keys {
		out = append(out, farm.NewCPUSet(by[k]...))
	}
	return out
}
