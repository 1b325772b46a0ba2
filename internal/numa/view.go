package numa

import (
	"github.com/grange-project/grange/internal/farm"
)

// view is what one request may use of a room, in the form that planning wants.
type view struct {
	*index
	req    *Request
	wants  []want
	usable farm.CPUSet // free, allowed, and not kept for the host
	smt    int         // threads of the largest core
	grain  farm.Bytes  // ordinary memory is cut in these, or in larger units that a node counts in
	state  []nodeState // by node
	shares bool        // no vCPU is pinned, so that ordinary memory comes from the shared account
	lends  bool        // some node gives memory to the CPUs of another as well
	local  bool        // CPUs of nodes without memory are left out
	picker picker
}

// nodeState is what the request may use of one node.
type nodeState struct {
	room    NodeRoom
	home    bool        // it has memory of its own
	threads int         // usable
	pool    farm.CPUSet // of the CPUs that VMs share, those that the request may float over
	floats  int         // vCPUs that may float there
	givers  []int       // nodes that give memory to its CPUs
	cores   coreCount   // counted only for thread policies that look at cores
}

// coreCount is what the thread policies ask of a node's cores.
type coreCount struct {
	some, whole int // cores with a usable thread, and with nothing but usable threads
	packed      int // vCPUs that fit with at least two on every core
}

func newView(room Room, req *Request, wants []want) *view {
	v := &view{index: room.indexed(), req: req, wants: wants, smt: 1}
	v.usable = room.Free.And(req.Allowed)
	if !req.Service.Empty() {
		v.usable = v.usable.Minus(req.Service)
	}
	v.grain = fineUnit
	if len(req.Each) == 0 && req.Cells <= 1 && req.Memory%roundUnit == 0 {
		v.grain = roundUnit
	}
	byCore := false
	v.shares = true
	for _, w := range wants {
		v.shares = v.shares && w.pinned == 0
		byCore = byCore || w.threads != farm.PreferSiblings
	}
	v.state = make([]nodeState, len(v.nodes))
	most := 0
	for i := range v.nodes {
		n, s := &v.nodes[i], &v.state[i]
		s.room = room.Nodes[n.id]
		s.home = s.room.home(room.Topology.Nodes[i])
		s.threads = v.usable.Common(n.cpus)
		if !s.room.Shared.CPUs.Empty() {
			s.pool = s.room.Shared.CPUs.Minus(req.Service)
			s.floats = min(s.pool.Len(), max(s.room.Shared.VCPUs, 0))
		}
		if byCore {
			s.cores = v.count(n)
		}
		v.lends = v.lends || !s.home && (s.threads > 0 || s.floats > 0)
		v.smt, most = max(v.smt, n.smt), max(most, len(n.cores))
	}
	for i := range v.state {
		v.state[i].givers = v.givers(i)
	}
	v.picker = newPicker(most)
	return v
}

// home reports whether the node has memory of its own, free or not. A pool of huge pages without a page is no memory:
// newer kernels show one on every node.
func (r NodeRoom) home(n farm.Node) bool {
	if n.Memory > 0 || r.Memory > 0 {
		return true
	}
	for _, pages := range r.Pages {
		if pages > 0 {
			return true
		}
	}
	return false
}

func (v *view) count(n *nodeIndex) coreCount {
	var c coreCount
	atLeast := make([]int, n.smt+1) // cores with that many usable threads or more
	for _, core := range n.cores {
		usable := v.usable.Common(core.cpus)
		c.some += number(usable > 0)
		c.whole += number(usable == len(core.threads))
		for t := 2; t <= usable; t++ {
			atLeast[t]++
		}
	}
	for t := 2; t <= n.smt; t++ {
		c.packed = max(c.packed, t*atLeast[t])
	}
	return c
}

// pinnable is how many vCPUs with this thread policy the node can take, beside the emulator's own CPU where it goes
// there too; below 0 where not even that has room.
func (v *view) pinnable(node int, policy farm.ThreadPolicy, emulator bool) int {
	s := &v.state[node]
	left := s.threads - number(emulator)
	switch policy {
	case farm.IsolateCores: // the emulator stays off the VM's cores, if need be on one that others use
		return min(s.cores.whole, s.cores.some-number(emulator))
	case farm.RequireSiblings:
		return min(s.cores.packed, left)
	}
	return left
}

// source is where a cell's memory comes from.
type source struct {
	node int // position of the node that gives it
	size farm.Bytes
	// shared: it is ordinary memory of the account for VMs that float.
	shared bool
	unit   farm.Bytes // it is counted in these
	free   int        // units
}

// source is the memory of one page size that a node gives.
func (v *view) source(node int, size farm.Bytes) source {
	room := &v.state[node].room
	s := source{node: node, size: size, unit: size}
	switch {
	case size != 0:
		s.free = max(room.Pages[size], 0)
		return s
	case v.shares && room.ownAccount():
		s.shared = true
		s.unit = max(v.grain, room.Base)
		s.free = units(room.Shared.Memory, s.unit)
	default:
		s.unit = max(v.grain, room.Base)
		s.free = units(room.Memory, s.unit)
	}
	return s
}

// units is how often unit goes into memory, no more than any VM could want.
func units(memory, unit farm.Bytes) int { return int(min(memory, maxMemory) / unit) }

// fits is memoryFor where the cell's CPUs have room on the node too.
func (v *view) fits(w *want, node int, sizes []farm.Bytes, emulator bool) (source, bool) {
	s := &v.state[node]
	if v.local && !s.home || w.floating > s.floats ||
		(w.pinned > 0 || emulator) && v.pinnable(node, w.threads, emulator) < w.pinned {
		return source{}, false
	}
	return v.memoryFor(w, node, sizes)
}

// memoryFor finds memory for a cell on a node, in the first of sizes that has room; where several nodes could give it,
// from the one with most.
func (v *view) memoryFor(w *want, node int, sizes []farm.Bytes) (best source, found bool) {
	for _, size := range sizes {
		for _, giver := range v.state[node].givers {
			if s := v.source(giver, size); s.holds(w, 0) && (!found || s.bytes() > best.bytes()) {
				best, found = s, true
			}
		}
		if found {
			return best, true
		}
	}
	return source{}, false
}

// sources is all that CPUs of a node could have memory from.
func (v *view) sources(node int, sizes []farm.Bytes) []source {
	var out []source
	for _, size := range sizes {
		for _, giver := range v.state[node].givers {
			if s := v.source(giver, size); s.unit > 0 && s.free > 0 {
				out = append(out, s)
			}
		}
	}
	return out
}

func (s source) bytes() farm.Bytes { return farm.Bytes(s.free) * s.unit }

// holds reports whether the cell's memory is there, beside units that are taken already.
func (s source) holds(w *want, taken int) bool {
	if s.unit == 0 || w.memory%s.unit != 0 {
		return false
	}
	n := units(w.memory, s.unit)
	return n <= s.free-taken && n >= w.pieces
}

// givers are the nodes that give memory to the CPUs of node: itself, or where it has none, the nearest that have any.
func (v *view) givers(node int) []int {
	n := &v.nodes[node]
	if v.state[node].home {
		return n.near[:1] // itself
	}
	var out []int
	for _, i := range n.near {
		if len(out) > 0 && n.distance[i] > n.distance[out[0]] {
			break
		}
		if v.state[i].home {
			out = append(out, i)
		}
	}
	return out
}

// capacity is how many vCPUs of the VM a node can take.
func (v *view) capacity(node int, emulator bool) int {
	w := &v.wants[0]
	if v.local && !v.state[node].home {
		return 0
	}
	if w.pinned > 0 {
		return v.pinnable(node, w.threads, emulator)
	}
	if emulator && v.pinnable(node, w.threads, true) < 0 {
		return 0
	}
	return v.state[node].floats
}

// mostMemory is the most that a node's CPUs can get in one page size.
func (v *view) mostMemory(node int, pages []farm.Bytes) farm.Bytes {
	var most farm.Bytes
	for _, size := range pages {
		for _, giver := range v.state[node].givers {
			if s := v.source(giver, size); s.unit > 0 {
				most = max(most, farm.Bytes(min(s.free, units(v.wants[0].memory, s.unit)))*s.unit)
			}
		}
	}
	return most
}
