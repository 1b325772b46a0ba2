package numa

import (
	"fmt"
	"maps"
	"math/bits"

	"github.com/grange-project/grange/internal/farm"
)

// Reserve is what a host keeps for itself, and for VMs that share.
type Reserve struct {
	CPUs   farm.CPUSet // never given to a vCPU
	Memory farm.Bytes  // ordinary memory of the whole host; each node keeps its part, in proportion to its size
	// by farm.Node.ID: what VMs share when there are none yet; no CPU of it is given to one VM alone
	Shared map[int]SharedRoom
}

// NewRoom is what t has left beside reserve and the plans that run on it. It counts from the nodes' totals, for free
// memory as the kernel reports it is full of page cache. Where plans take more than there is, as after a change of
// reserve, nothing is left, and that is no error. Memory of VMs that share is counted in Reserve.Shared alone: set
// aside with Reserve.Memory what is real of it.
func NewRoom(t farm.Topology, reserve Reserve, plans []farm.Plan) Room {
	return newRoom(t, reserve, plans, newIndex(t))
}

// NewRoomLike is NewRoom where another host's room is at hand. If the two have the same processors, what is known of
// those is kept once: it is most of what a room takes in memory.
func NewRoomLike(like Room, t farm.Topology, reserve Reserve, plans []farm.Plan) Room {
	if !alike(like.Topology, t) {
		return NewRoom(t, reserve, plans)
	}
	t.Cores, t.L3, t.Distance = like.Topology.Cores, like.Topology.L3, like.Topology.Distance
	return newRoom(t, reserve, plans, like.indexed())
}

func newRoom(t farm.Topology, reserve Reserve, plans []farm.Plan, ix *index) Room {
	r := emptyRoom(t, reserve, ix)
	for _, p := range plans {
		r.Free = r.Free.Minus(p.Held())
		for _, c := range r.claims(p) {
			r.take(c)
		}
	}
	return r
}

func emptyRoom(t farm.Topology, reserve Reserve, ix *index) Room {
	r := Room{Topology: t, Reserve: reserve, Free: t.Online.Minus(reserve.CPUs),
		Nodes: make(map[int]NodeRoom, len(t.Nodes)), index: ix}
	for _, s := range reserve.Shared {
		r.Free = r.Free.Minus(s.CPUs)
	}
	var all farm.Bytes
	for _, n := range t.Nodes {
		all += ordinary(n)
	}
	for _, n := range t.Nodes {
		room := NodeRoom{Memory: ordinary(n), Pages: make(map[farm.Bytes]int, len(n.Pages)),
			Shared: reserve.Shared[n.ID]}
		for _, p := range n.Pages {
			room.Pages[p.Size] = p.Total
		}
		room.Memory = less(room.Memory, part(reserve.Memory, room.Memory, all))
		r.Nodes[n.ID] = room
	}
	return r
}

// indexed is the index of the room's topology: the one it carries, or a new one for a room that was made by hand.
func (r Room) indexed() *index {
	if r.index != nil && r.index.is(r.Topology) {
		return r.index
	}
	return newIndex(r.Topology)
}

// Shares reports whether what is known of the processors is kept once for both rooms.
func (r Room) Shares(o Room) bool { return r.index != nil && r.index == o.index }

// Equal reports whether two rooms of one host have the same left.
func (r Room) Equal(o Room) bool {
	return r.Free.Equal(o.Free) && maps.EqualFunc(r.Nodes, o.Nodes, func(a, b NodeRoom) bool {
		return a.Memory == b.Memory && a.Base == b.Base && maps.Equal(a.Pages, b.Pages) &&
			a.Shared.CPUs.Equal(b.Shared.CPUs) && a.Shared.VCPUs == b.Shared.VCPUs && a.Shared.Memory == b.Shared.Memory
	})
}

// ordinary is a node's memory that is not set aside as huge pages.
func ordinary(n farm.Node) farm.Bytes {
	left := n.Memory
	for _, p := range n.Pages {
		left = less(left, farm.Bytes(max(p.Total, 0))*p.Size)
	}
	return left
}

// part is amount × of ÷ all, rounded up.
func part(amount, of, all farm.Bytes) farm.Bytes {
	if all == 0 || amount >= all {
		return of
	}
	hi, lo := bits.Mul64(uint64(amount), uint64(of))
	q, rest := bits.Div64(hi, lo, uint64(all))
	if rest > 0 {
		q++
	}
	return farm.Bytes(q)
}

func less(a, b farm.Bytes) farm.Bytes {
	if b >= a {
		return 0
	}
	return a - b
}

// Take is the room that is left when p is placed. It fails, with farm.CodeNoRoom, where a CPU is held already or
// memory, pages or the shared pool are short, and with farm.CodeBadPlan for a node or CPU that the host does not have.
// The receiver stays as it was.
func (r Room) Take(p farm.Plan) (Room, error) {
	held := p.Held()
	if other := held.Minus(r.Free); !other.Empty() {
		if unknown := other.Minus(r.Topology.Online); !unknown.Empty() {
			return Room{}, badPlan("the plan uses CPUs %v, which this host does not have online", unknown)
		}
		return Room{}, noRoom("CPUs %v are held already", other)
	}
	for _, c := range p.Cells {
		if _, ok := r.Nodes[c.Node]; !ok {
			return Room{}, badPlan("the plan uses memory node %d, which this host does not have", c.Node)
		}
	}
	for id := range p.Floating.All() {
		if _, ok := r.poolOf(p, id); !ok {
			return Room{}, badPlan("vCPU %d floats over CPUs that no node of this host shares", id)
		}
	}
	claims := r.claims(p)
	for _, c := range claims {
		if err := r.short(c); err != nil {
			return Room{}, err
		}
	}
	out := r.clone()
	out.Free = r.Free.Minus(held)
	for _, c := range claims {
		out.take(c)
	}
	return out, nil
}

func noRoom(format string, args ...any) error {
	return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom, Message: fmt.Sprintf(format, args...),
		Hint: "plan again with the room there is now"}
}

func badPlan(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadPlan, Message: fmt.Sprintf(format, args...),
		Hint: "plan again: the plan is not for this host, or the host has changed"}
}

// Give is the room when a plan that was taken has ended. The receiver stays as it was.
func (r Room) Give(p farm.Plan) Room {
	out := r.clone()
	out.Free = r.Free.Or(p.Held().And(r.Topology.Online))
	for _, c := range r.claims(p) {
		room, ok := out.Nodes[c.node]
		if !ok {
			continue
		}
		room.Memory += c.memory
		room.Shared.Memory += c.shared
		room.Shared.VCPUs += c.vcpus
		if c.pages > 0 {
			room.setPages(c.size, room.Pages[c.size]+c.pages)
		}
		out.Nodes[c.node] = room
	}
	return out
}

// clone is the same room, whose nodes may be changed. Their pages are those of both until setPages.
func (r Room) clone() Room {
	out := r
	out.index = r.indexed()
	out.Nodes = maps.Clone(r.Nodes)
	return out
}

// setPages leaves the map alone that it was: clones of the room have the same one.
func (n *NodeRoom) setPages(size farm.Bytes, pages int) {
	n.Pages = maps.Clone(n.Pages)
	if n.Pages == nil {
		n.Pages = map[farm.Bytes]int{}
	}
	n.Pages[size] = pages
}

// claim is what a plan takes of one node, in one page size.
type claim struct {
	node           int // farm.Node.ID
	memory, shared farm.Bytes
	size           farm.Bytes // of pages
	pages          int
	vcpus          int // that float
}

// claims is what a plan takes of each node beside CPUs, each node and page size once.
func (r Room) claims(p farm.Plan) []claim {
	out := make([]claim, 0, len(p.Cells))
	at := func(node int, size farm.Bytes) *claim {
		for i := range out {
			if out[i].node == node && out[i].size == size {
				return &out[i]
			}
		}
		out = append(out, claim{node: node, size: size})
		return &out[len(out)-1]
	}
	for _, c := range p.Cells {
		to := at(c.Node, c.PageSize)
		switch {
		case c.PageSize != 0:
			to.pages += int((c.Memory + c.PageSize - 1) / c.PageSize)
		case p.Floating.Len() == len(p.VCPUs) && r.Nodes[c.Node].ownAccount():
			to.shared += c.Memory
		default:
			to.memory += c.Memory
		}
	}
	for id := range p.Floating.All() {
		if node, ok := r.poolOf(p, id); ok {
			at(node, 0).vcpus++
		}
	}
	return out
}

// ownAccount reports that the node counts memory of VMs without a vCPU of their own apart from other VMs'.
func (n NodeRoom) ownAccount() bool { return !n.Shared.CPUs.Empty() }

// poolOf finds the node over whose shared CPUs a vCPU floats.
func (r Room) poolOf(p farm.Plan, vcpu int) (node int, ok bool) {
	if vcpu >= len(p.VCPUs) || p.VCPUs[vcpu].Empty() {
		return 0, false
	}
	for _, n := range r.Topology.Nodes {
		if p.VCPUs[vcpu].Minus(r.Nodes[n.ID].Shared.CPUs).Empty() {
			return n.ID, true
		}
	}
	return 0, false
}

// short reports what the node lacks for the claim.
func (r Room) short(c claim) error {
	have := r.Nodes[c.node]
	switch {
	case c.memory > have.Memory:
		return noRoom("node %d lacks %v of memory", c.node, c.memory-have.Memory)
	case c.shared > have.Shared.Memory:
		return noRoom("node %d lacks %v of shared memory", c.node, c.shared-have.Shared.Memory)
	case c.pages > have.Pages[c.size]:
		return noRoom("node %d lacks %d pages of %v", c.node, c.pages-have.Pages[c.size], c.size)
	case c.vcpus > have.Shared.VCPUs:
		return noRoom("node %d lacks shared room for %d vCPUs", c.node, c.vcpus-have.Shared.VCPUs)
	}
	return nil
}

// take takes the claim, or what there is of it. It changes the room.
func (r Room) take(c claim) {
	room, ok := r.Nodes[c.node]
	if !ok {
		return
	}
	room.Memory = less(room.Memory, c.memory)
	room.Shared.Memory = less(room.Shared.Memory, c.shared)
	room.Shared.VCPUs = max(room.Shared.VCPUs-c.vcpus, 0)
	if c.pages > 0 && room.Pages != nil {
		room.setPages(c.size, max(room.Pages[c.size]-c.pages, 0))
	}
	r.Nodes[c.node] = room
}
