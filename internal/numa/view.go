package numa

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// view is what one request may use of a room, in the form that planning wants.
type view struct {
	room  Room
	req   Request
	unit  farm.Bytes // memory is counted in these
	units int        // wanted
	smt   int        // threads of the largest whole core; at least 1
	nodes []nodeView // nodes with CPUs, in order of ID
}

type nodeView struct {
	index   int        // into Topology.Nodes
	id      int        // farm.Node.ID
	memory  int        // index of the node that gives the memory; -1 when there is none
	units   int        // free there
	threads int        // usable
	cores   []coreView // with at least one usable thread; those of a group are adjacent
	groups  []group
}

type coreView struct {
	threads []int // usable ones
	whole   bool  // all of the core's online threads are usable
	socket  int
	cache   int // index into Topology.L3; -1 when unknown
}

// group is a run of cores that share a socket and a last-level cache.
type group struct {
	first, end int // into nodeView.cores
	threads    int
}

func newView(room Room, req Request) *view {
	v := &view{room: room, req: req, unit: req.unit(), smt: 1}
	v.units = int(req.Memory / v.unit)
	v.addCores(v.addNodes())
	for i := range v.nodes {
		n := &v.nodes[i]
		n.group()
		n.memory, n.units = v.memoryFor(n.index)
	}
	return v
}

// addNodes makes an entry for every node with CPUs, and gives where each is, by node ID. A core knows its node best: emulated
// hosts list a CPU in several nodes, or in none.
func (v *view) addNodes() map[int]int {
	t := v.room.Topology
	hasCPUs := make(map[int]bool, len(t.Nodes))
	for _, c := range t.Cores {
		hasCPUs[c.Node] = true
	}
	at := make(map[int]int, len(t.Nodes))
	for i, n := range t.Nodes {
		if hasCPUs[n.ID] {
			at[n.ID] = len(v.nodes)
			v.nodes = append(v.nodes, nodeView{index: i, id: n.ID})
		}
	}
	return at
}

func (v *view) addCores(at map[int]int) {
	t := v.room.Topology
	usable, cache := v.usable(), cacheOf(t)
	for _, c := range t.Cores {
		i, ok := at[c.Node]
		if !ok {
			continue
		}
		core := coreView{socket: c.Socket, cache: -1}
		for _, cpu := range c.Threads.List() {
			if usable(cpu) {
				core.threads = append(core.threads, cpu)
			}
		}
		if len(core.threads) == 0 {
			continue
		}
		core.whole = len(core.threads) == c.Threads.Len()
		if first := core.threads[0]; first < len(cache) {
			core.cache = cache[first] - 1
		}
		if core.whole {
			v.smt = max(v.smt, len(core.threads))
		}
		n := &v.nodes[i]
		n.cores = append(n.cores, core)
		n.threads += len(core.threads)
	}
}

// usable tells which CPUs the request may have: free, allowed, and not kept for the host.
func (v *view) usable() func(cpu int) bool {
	var mark []bool
	set := func(s farm.CPUSet, to bool) {
		for _, cpu := range s.List() {
			if cpu < len(mark) {
				mark[cpu] = to
			}
		}
	}
	free := v.room.Free.List()
	if len(free) > 0 {
		mark = make([]bool, free[len(free)-1]+1)
	}
	for _, cpu := range v.req.Allowed.List() {
		if cpu < len(mark) {
			mark[cpu] = v.room.Free.Has(cpu)
		}
	}
	set(v.req.Service, false)
	return func(cpu int) bool { return cpu < len(mark) && mark[cpu] }
}

// cacheOf gives, by CPU, the index of its last-level cache plus one; 0 when unknown.
func cacheOf(t farm.Topology) []int {
	var of []int
	for i, set := range t.L3 {
		for _, cpu := range set.List() {
			for cpu >= len(of) {
				of = append(of, 0)
			}
			of[cpu] = i + 1
		}
	}
	return of
}

// group sorts the cores so that those of one socket and cache are adjacent, the ones with most threads first.
func (n *nodeView) group() {
	slices.SortStableFunc(n.cores, func(a, b coreView) int {
		return cmp.Or(cmp.Compare(a.socket, b.socket), cmp.Compare(a.cache, b.cache),
			cmp.Compare(len(b.threads), len(a.threads)), cmp.Compare(a.threads[0], b.threads[0]))
	})
	for i, c := range n.cores {
		if i == 0 || c.socket != n.cores[i-1].socket || c.cache != n.cores[i-1].cache {
			n.groups = append(n.groups, group{first: i})
		}
		g := &n.groups[len(n.groups)-1]
		g.end = i + 1
		g.threads += len(c.threads)
	}
}

// memoryFor finds the node that gives memory to the CPUs of node i: itself, or the nearest that has any (of several as near, the
// one with most free), and how many units are free there.
func (v *view) memoryFor(i int) (node, units int) {
	nodes := v.room.Topology.Nodes
	if nodes[i].Memory > 0 {
		return i, v.freeUnits(i)
	}
	node = -1
	for j, n := range nodes {
		if n.Memory == 0 {
			continue
		}
		free := v.freeUnits(j)
		if d := v.distance(i, j); node < 0 || d < v.distance(i, node) || d == v.distance(i, node) && free > units {
			node, units = j, free
		}
	}
	return node, units
}

func (v *view) freeUnits(i int) int {
	r := v.room.Nodes[v.room.Topology.Nodes[i].ID]
	if v.req.page() != 0 {
		return max(r.Pages[v.req.page()], 0)
	}
	return int(r.Memory / v.unit)
}

// distance is the SLIT's, or Linux's defaults (LOCAL_DISTANCE 10, REMOTE_DISTANCE 20) where the host does not say.
func (v *view) distance(i, j int) int {
	if d := v.room.Topology.Distance; i < len(d) && j < len(d[i]) {
		return d[i][j]
	}
	if i == j {
		return 10
	}
	return 20
}
