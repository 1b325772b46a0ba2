package numa

import (
	"fmt"
	"maps"
	"math/bits"

	"github.com/grange-project/grange/internal/farm"
)

// Reserve is what a host keeps for itself.
type Reserve struct {
	CPUs   farm.CPUSet // never given to a vCPU
	Memory farm.Bytes  // ordinary memory of the whole host; each node keeps its part, in proportion to its size
}

// NewRoom is what t has left beside reserve and the plans that run on it. It counts from the nodes' totals, for free memory as
// the kernel reports it is full of page cache. Where plans take more than there is, as after a change of reserve, nothing is
// left, and that is no error.
func NewRoom(t farm.Topology, reserve Reserve, plans []farm.Plan) Room {
	r := Room{Topology: t, Reserve: reserve, Free: t.Online.Minus(reserve.CPUs), Nodes: make(map[int]NodeRoom, len(t.Nodes))}
	var all farm.Bytes
	for _, n := range t.Nodes {
		all += ordinary(n)
	}
	for _, n := range t.Nodes {
		room := NodeRoom{Memory: ordinary(n), Pages: make(map[farm.Bytes]int, len(n.Pages))}
		for _, p := range n.Pages {
			room.Pages[p.Size] = p.Total
		}
		room.Memory = less(room.Memory, part(reserve.Memory, room.Memory, all))
		r.Nodes[n.ID] = room
	}
	for _, p := range plans {
		r = r.without(p)
	}
	return r
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

// Take is the room that is left when p is placed. It fails, with farm.CodeNoRoom, where a CPU is held already or memory is
// short, and with farm.CodeBadPlan for a node or CPU that the host does not have. The receiver stays as it was.
func (r Room) Take(p farm.Plan) (Room, error) {
	if held := p.CPUs().Minus(r.Free); !held.Empty() {
		if unknown := held.Minus(r.Topology.Online); !unknown.Empty() {
			return Room{}, badPlan("the plan uses CPUs %v, which this host does not have online", unknown)
		}
		return Room{}, noRoom("CPUs %v are held already", held)
	}
	for _, c := range p.Cells {
		if _, ok := r.Nodes[c.Node]; !ok {
			return Room{}, badPlan("the plan uses memory node %d, which this host does not have", c.Node)
		}
	}
	for id, want := range claims(p) {
		have := r.Nodes[id]
		if want.Memory > have.Memory {
			return Room{}, noRoom("node %d lacks %v of memory", id, want.Memory-have.Memory)
		}
		for size, n := range want.Pages {
			if n > have.Pages[size] {
				return Room{}, noRoom("node %d lacks %d pages of %v", id, n-have.Pages[size], size)
			}
		}
	}
	return r.without(p), nil
}

func noRoom(format string, args ...any) error {
	return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom, Message: fmt.Sprintf(format, args...), Hint: "plan again with the room there is now"}
}

func badPlan(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadPlan, Message: fmt.Sprintf(format, args...), Hint: "plan again: the plan is not for this host, or the host has changed"}
}

// Give is the room when a plan that was taken has ended. The receiver stays as it was.
func (r Room) Give(p farm.Plan) Room {
	out := r.clone()
	out.Free = r.Free.Or(p.CPUs().And(r.Topology.Online))
	for id, c := range claims(p) {
		room, ok := out.Nodes[id]
		if !ok {
			continue
		}
		room.Memory += c.Memory
		for size, n := range c.Pages {
			room.Pages[size] += n
		}
		out.Nodes[id] = room
	}
	return out
}

func (r Room) without(p farm.Plan) Room {
	out := r.clone()
	out.Free = r.Free.Minus(p.CPUs())
	for id, c := range claims(p) {
		room, ok := out.Nodes[id]
		if !ok {
			continue
		}
		room.Memory = less(room.Memory, c.Memory)
		for size, n := range c.Pages {
			room.Pages[size] = max(room.Pages[size]-n, 0)
		}
		out.Nodes[id] = room
	}
	return out
}

func (r Room) clone() Room {
	out := r
	out.Nodes = make(map[int]NodeRoom, len(r.Nodes))
	for id, n := range r.Nodes {
		pages := make(map[farm.Bytes]int, len(n.Pages))
		maps.Copy(pages, n.Pages)
		out.Nodes[id] = NodeRoom{Memory: n.Memory, Pages: pages}
	}
	return out
}

// claims is what a plan takes of each memory node.
func claims(p farm.Plan) map[int]NodeRoom {
	out := make(map[int]NodeRoom, len(p.Cells))
	for _, c := range p.Cells {
		room := out[c.Node]
		if c.PageSize == 0 {
			room.Memory += c.Memory
		} else {
			if room.Pages == nil {
				room.Pages = map[farm.Bytes]int{}
			}
			room.Pages[c.PageSize] += int((c.Memory + c.PageSize - 1) / c.PageSize)
		}
		out[c.Node] = room
	}
	return out
}
