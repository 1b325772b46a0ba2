package main

import (
	"math"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// costFunc says what a plan costs a host that has room for it: how much harder it makes later VMs. The least is best.
type costFunc func(room numa.Room, plan farm.Plan) float64

// fleet is hosts that are all alike, and what each has left. It remembers what each host offers a request, until the host changes.
type fleet struct {
	rooms  []numa.Room
	cost   costFunc
	offers map[shape][]*offer // by host; nil where it is not known
}

// shape is what tells requests of a trace apart.
type shape struct {
	vcpus, cells int
	memory       farm.Bytes
}

// offer is a host's answer to a shape; ok is false where it refuses.
type offer struct {
	plan farm.Plan
	cost float64
	ok   bool
}

func newFleet(empty numa.Room, hosts int, cost costFunc) *fleet {
	f := &fleet{rooms: make([]numa.Room, hosts), cost: cost, offers: map[shape][]*offer{}}
	for i := range f.rooms {
		f.rooms[i] = empty
	}
	return f
}

// choose gives the host where the request costs least, and its plan there.
func (f *fleet) choose(req numa.Request) (host int, plan farm.Plan, ok bool) {
	s := shape{req.VCPUs, req.Cells, req.Memory}
	if f.offers[s] == nil {
		f.offers[s] = make([]*offer, len(f.rooms))
	}
	best, least := -1, math.Inf(1)
	for i, o := range f.offers[s] {
		if o == nil {
			o = f.offer(i, req)
			f.offers[s][i] = o
		}
		if o.ok && o.cost < least {
			best, least = i, o.cost
		}
	}
	if best < 0 {
		return 0, farm.Plan{}, false
	}
	return best, f.offers[s][best].plan, true
}

func (f *fleet) offer(host int, req numa.Request) *offer {
	plan, err := numa.Plan(f.rooms[host], req)
	if err != nil {
		return &offer{}
	}
	return &offer{plan: plan, cost: f.cost(f.rooms[host], plan), ok: true}
}

func (f *fleet) take(host int, plan farm.Plan) error {
	left, err := f.rooms[host].Take(plan)
	if err == nil {
		f.change(host, left)
	}
	return err
}

func (f *fleet) give(host int, plan farm.Plan) { f.change(host, f.rooms[host].Give(plan)) }

func (f *fleet) change(host int, room numa.Room) {
	f.rooms[host] = room
	for _, offers := range f.offers {
		offers[host] = nil
	}
}

// weights say what is dear to packed.
type weights struct {
	both    float64 // share of a node's worth that needs threads and memory together; the rest is threads alone
	threads float64 // what threads without memory cost
	memory  float64 // what memory without threads costs
	host    float64 // worth of a whole host, beside that of its nodes
	shares  float64 // what it costs to share a core with another VM
	breaks  float64 // what it costs to leave a thread of a core alone
	power   float64 // how much more a large hole is worth than small ones of the same sum; more than 1
}

// packed is the cost that keeps later large VMs possible. A hole in a node is worth more than two of half its size, so VMs go where
// they fill a hole; threads and memory are worth most together, so what is short of one goes with what is short of the other.
func (w weights) packed(room numa.Room, plan farm.Plan) float64 {
	held := plan.Held()
	cost, before, after := 0.0, 0.0, 0.0
	for _, n := range room.Topology.Nodes {
		free := room.Free.And(n.CPUs)
		all := float64(max(n.CPUs.Len(), 1))
		threads, left := float64(free.Len())/all, float64(free.Minus(held).Len())/all
		memory := memoryLeft(n, room.Nodes[n.ID])
		for _, c := range plan.Cells {
			if c.Node == n.ID {
				cost += w.worth(threads, memory) - w.worth(left, memory-float64(c.Memory)/float64(max(n.Memory, 1)))
			}
		}
		before, after = before+threads, after+left
	}
	nodes := float64(len(room.Topology.Nodes))
	cost += w.host * nodes * (math.Pow(before/nodes, w.power) - math.Pow(after/nodes, w.power))
	return cost + w.cores(room, held)
}

// memoryLeft is the share of a node's memory that is free, in pages or not.
func memoryLeft(n farm.Node, room numa.NodeRoom) float64 {
	left := room.Memory
	for size, pages := range room.Pages {
		left += size * farm.Bytes(pages)
	}
	return float64(left) / float64(max(n.Memory, 1))
}

// worth is of a node with these shares of its threads and memory free.
func (w weights) worth(threads, memory float64) float64 {
	alone := w.threads * max(threads-memory, 0) * max(threads-memory, 0)
	if threads < memory {
		alone = w.memory * (memory - threads) * (memory - threads)
	}
	return w.both*math.Pow(max(min(threads, memory), 0), w.power) + (1-w.both)*math.Pow(threads, w.power) - alone
}

// cores is the cost of cores that the plan does not fill.
func (w weights) cores(room numa.Room, held farm.CPUSet) float64 {
	cost := 0.0
	if w.shares == 0 && w.breaks == 0 {
		return cost
	}
	for _, c := range room.Topology.Cores {
		mine := c.Threads.And(held).Len()
		switch {
		case mine == 0 || mine == c.Threads.Len():
		case c.Threads.And(room.Free).Len() < c.Threads.Len():
			cost += w.shares
		default:
			cost += w.breaks
		}
	}
	return cost
}

// dense are the weights that are measured.
var dense = weights{threads: 1.5, memory: 0.6, host: 0.4, shares: 0.02, breaks: 0.003, power: 1.2}
