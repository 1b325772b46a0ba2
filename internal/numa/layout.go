package numa

import (
	"cmp"

	"github.com/grange-project/grange/internal/farm"
)

// layout is a plan before it is written out: one entry for each guest cell.
type layout []cell

type cell struct {
	node  *nodeView
	pick  pick
	units int
}

func (v *view) layout() (layout, bool) {
	if l, ok := v.single(); ok {
		return l, true
	}
	for k := 2; k <= min(len(v.nodes), v.req.VCPUs, v.units); k++ {
		if l, ok := v.split(k); ok {
			return l, true
		}
	}
	return nil, false
}

// split spreads the VM over k nodes: evenly in whole cores, or evenly in vCPUs, or as evenly as the room allows.
func (v *view) split(k int) (layout, bool) {
	if v.smt > 1 && v.req.VCPUs%v.smt == 0 && v.req.VCPUs/v.smt >= k {
		if l, ok := v.even(k, v.smt); ok && l.loose() == 0 {
			return l, true
		}
	}
	if l, ok := v.even(k, 1); ok {
		return l, true
	}
	return v.uneven(k)
}

func (l layout) loose() int {
	sum := 0
	for _, c := range l {
		sum += c.pick.loose
	}
	return sum
}

// single places the VM on one node: where it disturbs the fewest cores and caches, and then where least is left.
func (v *view) single() (layout, bool) {
	var best *cell
	for i := range v.nodes {
		n := &v.nodes[i]
		if n.threads < v.req.VCPUs || n.units < v.units {
			continue
		}
		c := &cell{node: n, pick: n.pick(v.req.VCPUs), units: v.units}
		if best == nil || cmp.Or(cmp.Compare(c.pick.loose, best.pick.loose), cmp.Compare(c.pick.groups, best.pick.groups),
			cmp.Compare(c.pick.broken, best.pick.broken), cmp.Compare(n.threads, best.node.threads),
			cmp.Compare(n.units, best.node.units)) < 0 {
			best = c
		}
	}
	if best == nil {
		return nil, false
	}
	return layout{*best}, true
}

// plan writes the layout out.
func (v *view) plan(l layout) farm.Plan {
	var p farm.Plan
	for _, c := range l {
		first := len(p.VCPUs)
		for _, u := range c.pick.cores {
			for _, cpu := range u.threads {
				p.VCPUs = append(p.VCPUs, farm.NewCPUSet(cpu))
			}
		}
		p.Cells = append(p.Cells, farm.Cell{
			VCPUs:    span(first, len(p.VCPUs)),
			Memory:   farm.Bytes(c.units) * v.unit,
			Node:     v.room.Topology.Nodes[c.node.memory].ID,
			PageSize: v.req.page(),
		})
	}
	p.Emulator = v.req.Service
	if p.Emulator.Empty() {
		p.Emulator = p.CPUs()
	}
	p.IOThread = p.Emulator
	p.Guest = v.guest(l)
	return p
}

func span(first, end int) farm.CPUSet {
	ids := make([]int, 0, end-first)
	for i := first; i < end; i++ {
		ids = append(ids, i)
	}
	return farm.NewCPUSet(ids...)
}

// guest is the wanted topology, or the one that the pins make true: SMT only when every core is the VM's alone and all are
// alike, several sockets only when each holds as many vCPUs.
func (v *view) guest(l layout) farm.GuestTopology {
	if v.req.Guest != (farm.GuestTopology{}) {
		return v.req.Guest
	}
	threads, sockets := len(l[0].pick.cores[0].threads), []int{}
	perSocket := map[int]int{}
	for _, c := range l {
		for _, u := range c.pick.cores {
			if !u.whole || len(u.threads) != threads {
				threads = 1
			}
			if len(sockets) == 0 || sockets[len(sockets)-1] != u.socket {
				sockets = append(sockets, u.socket)
			}
			perSocket[u.socket] += len(u.threads)
		}
	}
	n := len(sockets)
	for _, count := range perSocket {
		if n != len(perSocket) || count*n != v.req.VCPUs {
			n = 1
		}
	}
	return farm.GuestTopology{Sockets: n, Cores: v.req.VCPUs / n / threads, Threads: threads}
}
