package numa

import "github.com/grange-project/grange/internal/farm"

// Cost is how much harder a placement makes later big VMs, in threads more or less. Costs compare across hosts, of
// different kinds too; lower is better.
type Cost float64

// Less reports whether c is the better placement.
func (c Cost) Less(o Cost) bool { return c < o }

// The weights were searched for on traces of arrivals and departures on 100 hosts: these placed most, and refused least
// while a host had the room in pieces. Half or twice any of them changes little.
const (
	bothWeight   = 0.8  // of threads and memory that are free together; the rest is of threads alone
	threadsAlone = 1    // what free threads cost that have no memory left
	memoryAlone  = 0.3  // what free memory costs that has no threads left
	hostWeight   = 0.02 // of the whole host beside its nodes
	sharedCore   = 0.08 // what it costs to share a core with another VM, in threads
)

// Waste returns what the plan costs the host that the room is of. A free node is worth more than two halves, so VMs go
// where they fill a hole; and free threads are worth most with free memory, so what is short of one is for VMs that
// want little of it.
func Waste(room Room, plan farm.Plan) Cost {
	ix := room.indexed()
	held, claims := plan.Held(), room.claims(plan)
	var cost, threads, before, after float64
	for i := range ix.nodes {
		n := &ix.nodes[i]
		free, taken := room.Free.Common(n.cpus), held.Common(n.cpus)
		threads, before, after = threads+float64(n.cpus.Len()), before+float64(free), after+float64(free-taken)
		was, is := newHole(n, free), newHole(n, free-taken)
		touched := taken > 0
		for _, c := range claims {
			if c.node == n.id {
				was.memory, is.memory = room.memoryShares(i, c, was.memory, is.memory)
				cost += room.poolCost(c)
				touched = true
			}
		}
		if touched {
			cost += was.worth() - is.worth()
		}
	}
	if threads > 0 {
		cost += hostWeight * threads * (cube(before/threads) - cube(after/threads))
	}
	return Cost(cost + sharedCore*float64(ix.sharedCores(room.Free, held)))
}

// hole is what is free of a node, as shares of it.
type hole struct{ size, threads, memory float64 }

// newHole is a hole with so many free threads, and as much memory as goes with them.
func newHole(n *nodeIndex, free int) hole {
	size := float64(n.cpus.Len())
	share := float64(free) / max(size, 1)
	return hole{size: size, threads: share, memory: share}
}

// worth is what VMs to come could make of the hole, in threads.
func (h hole) worth() float64 {
	alone := threadsAlone * (h.threads - h.memory)
	if h.threads < h.memory {
		alone = memoryAlone * (h.memory - h.threads)
	}
	return h.size * (bothWeight*cube(min(h.threads, h.memory)) + (1-bothWeight)*cube(h.threads) - alone*alone)
}

func cube(x float64) float64 { return x * x * x }

// memoryShares is how much of the memory that a claim is on is free before and after it: was and is where it is on
// none.
func (r Room) memoryShares(node int, c claim, was, is float64) (before, after float64) {
	n, left := r.Topology.Nodes[node], r.Nodes[c.node]
	var total, free, take farm.Bytes
	switch {
	case c.pages > 0:
		for _, p := range n.Pages {
			if p.Size == c.size {
				total = farm.Bytes(max(p.Total, 0))
			}
		}
		free, take = farm.Bytes(max(left.Pages[c.size], 0)), farm.Bytes(c.pages)
	case c.shared > 0:
		total, free, take = r.Reserve.Shared[c.node].Memory, left.Shared.Memory, c.shared
	case c.memory > 0:
		total, free, take = ordinary(n), left.Memory, c.memory
	default:
		return was, is
	}
	total = max(total, free, 1)
	return float64(free) / float64(total), float64(less(free, take)) / float64(total)
}

// poolCost is what vCPUs that float cost the pool of their node.
func (r Room) poolCost(c claim) float64 {
	if c.vcpus == 0 {
		return 0
	}
	left := r.Nodes[c.node].Shared
	total := float64(max(r.Reserve.Shared[c.node].VCPUs, left.VCPUs, 1))
	return float64(left.CPUs.Len()) * (cube(float64(left.VCPUs)/total) - cube(float64(left.VCPUs-c.vcpus)/total))
}

// sharedCores is how many cores a VM with these CPUs shares with others.
func (ix *index) sharedCores(free, held farm.CPUSet) int {
	n := 0
	for i := range ix.cores {
		cpus := ix.cores[i].cpus
		if mine := cpus.Common(held); mine > 0 && mine < cpus.Len() && cpus.Common(free) < cpus.Len() {
			n++
		}
	}
	return n
}
