package flavor

import (
	"cmp"
	"math"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// question is a case in the planner's words.
//
// The room is the host as this guest may use it. Each guest cell has a host cell to itself, so what one cell may take
// of a host cell can be counted out beforehand:
//
//   - The smallest pages of a host cell are its ordinary memory, with their size as its unit. They are huge pages as
//     well where the guest names their size, for the same size may be the smallest on one host cell and not on the
//     next.
//   - A node never borrows its neighbour's memory.
//   - Overcommit ends at the limits, and at the host cell's own size: no guest overcommits against itself.
type question struct {
	c       Case
	isolate bool // some cell wants cores to itself
	pinned  bool // some cell has vCPUs of its own
	free    bool // pages must be free ones, for some cell names them or has vCPUs of its own
	named   map[int64]bool
	words   bool // some cell wants pages by a word, which a host cell without pages does not know
	phantom int  // the next CPU number that the host does not have
}

func newQuestion(c Case) *question {
	q := &question{c: c, named: map[int64]bool{}, phantom: 1}
	for _, g := range c.Guest {
		q.isolate = q.isolate || g.pinned() && g.Threads == "isolate"
		q.pinned = q.pinned || g.pinned()
		q.free = q.free || g.pinned() || g.PageSize != PageSize{}
		q.words = q.words || g.PageSize.Word != ""
		if g.PageSize.KiB > 0 {
			q.named[g.PageSize.KiB] = true
		}
	}
	for _, h := range c.Host {
		for _, set := range append([][]int{h.CPUs, h.Dedicated}, h.Siblings...) {
			for _, cpu := range set {
				q.phantom = max(q.phantom, cpu+1)
			}
		}
	}
	return q
}

// pinned reports whether the cell has CPUs of its own.
func (g GuestCell) pinned() bool {
	return g.CPUPolicy == "dedicated" || g.CPUPolicy == "mixed" || len(g.Dedicated) > 0
}

func (q *question) room() numa.Room {
	room := numa.Room{Nodes: map[int]numa.NodeRoom{}}
	var online, free, dedicated []int
	for _, h := range q.c.Host {
		cpus := h.all()
		online = append(online, cpus.List()...)
		dedicated = append(dedicated, h.Dedicated...)
		free = append(free, farm.NewCPUSet(h.Dedicated...).Minus(farm.NewCPUSet(h.Pinned...)).List()...)
		room.Topology.Cores = append(room.Topology.Cores, q.cores(h)...)
		room.Topology.Nodes = append(room.Topology.Nodes, node(h, cpus))
		room.Nodes[h.ID] = q.nodeRoom(h)
	}
	slices.SortFunc(room.Topology.Cores,
		func(a, b farm.Core) int { return cmp.Compare(a.Threads.List()[0], b.Threads.List()[0]) })
	slices.SortFunc(room.Topology.Nodes, func(a, b farm.Node) int { return cmp.Compare(a.ID, b.ID) })
	room.Topology.Sockets = sockets(room.Topology.Cores)
	room.Topology.Online = farm.NewCPUSet(online...)
	room.Reserve.CPUs = room.Topology.Online.Minus(farm.NewCPUSet(dedicated...))
	if q.pinned {
		room.Free = farm.NewCPUSet(free...)
	}
	return room
}

// all is every CPU that the cell names.
func (h HostCell) all() farm.CPUSet {
	cpus := append(slices.Clone(h.CPUs), h.Dedicated...)
	for _, s := range h.Siblings {
		cpus = append(cpus, s...)
	}
	return farm.NewCPUSet(cpus...)
}

func (h HostCell) socket() int {
	if h.Socket != nil {
		return *h.Socket
	}
	return h.ID
}

// cores are the cell's sets of siblings; where it names none, each CPU is a core. Threads outside of every set cannot
// be pinned.
//
// A core that may not be had whole gets a sibling that the host does not have, which is never free. Those are cores
// with fewer threads than the cell's others (a sibling is offline), and, where a host sets aside some CPUs for sharing,
// all cores with siblings: there Nova lets no VM hold a core's other thread idle.
func (q *question) cores(h HostCell) []farm.Core {
	sets := h.Siblings
	if len(sets) == 0 {
		for _, cpu := range h.all().List() {
			sets = append(sets, []int{cpu})
		}
	}
	threads := 1
	for _, s := range sets {
		threads = max(threads, len(s))
	}
	if q.isolate && threads > 1 && !farm.NewCPUSet(h.CPUs...).Equal(farm.NewCPUSet(h.Dedicated...)) {
		threads++
	}
	var cores []farm.Core
	for _, s := range sets {
		if len(s) == 0 {
			continue
		}
		for s = slices.Clone(s); len(s) < threads; q.phantom++ {
			s = append(s, q.phantom)
		}
		cores = append(cores, farm.Core{Socket: h.socket(), Node: h.ID, Threads: farm.NewCPUSet(s...)})
	}
	return cores
}

func sockets(cores []farm.Core) []farm.Socket {
	threads := map[int][]int{}
	for _, c := range cores {
		threads[c.Socket] = append(threads[c.Socket], c.Threads.List()...)
	}
	var out []farm.Socket
	for id, cpus := range threads {
		out = append(out, farm.Socket{ID: id, CPUs: farm.NewCPUSet(cpus...)})
	}
	slices.SortFunc(out, func(a, b farm.Socket) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// node is the cell's size. It always has a little memory, for the planner lets the CPUs of a node without any use the
// nearest.
func node(h HostCell, cpus farm.CPUSet) farm.Node {
	n := farm.Node{ID: h.ID, CPUs: cpus, Memory: max(farm.Bytes(h.MemoryMiB), 1) * farm.MiB}
	for _, p := range h.Pages {
		n.Pages = append(n.Pages, farm.HugePages{Size: farm.Bytes(p.SizeKiB) * farm.KiB, Total: int(p.Total),
			Free: int(p.Free())})
	}
	return n
}

func (q *question) nodeRoom(h HostCell) numa.NodeRoom {
	limit := q.memoryLimit(h)
	room := numa.NodeRoom{Pages: map[farm.Bytes]int{}}
	least := h.leastPage()
	for _, p := range h.Pages {
		if p.SizeKiB != least || q.named[least] {
			size := farm.Bytes(p.SizeKiB) * farm.KiB
			room.Pages[size] = int(min(p.Free(), int64(limit/size)))
		}
		if p.SizeKiB == least {
			room.Base = farm.Bytes(least) * farm.KiB
			room.Memory = min(farm.Bytes(p.Free())*room.Base, limit)
			room.Shared.Memory = room.Memory
			if !q.free {
				room.Shared.Memory = min(farm.Bytes(p.Total)*room.Base, limit)
			}
		}
	}
	if len(h.Pages) == 0 && !q.words {
		room.Memory, room.Shared.Memory = limit, limit
	}
	room.Shared.CPUs, room.Shared.VCPUs = q.pool(h)
	return room
}

// leastPage is the cell's smallest page size in KiB, 0 where it reports none.
func (h HostCell) leastPage() int64 {
	least := int64(0)
	for _, p := range h.Pages {
		if least == 0 || p.SizeKiB < least {
			least = p.SizeKiB
		}
	}
	return least
}

// memoryLimit is what one guest cell may have of the host cell's memory, whatever its pages. A VM with CPUs of its own
// has its memory for itself; others may overcommit the host cell, but never by themselves alone.
func (q *question) memoryLimit(h HostCell) farm.Bytes {
	left := int64(maxMemoryMiB)
	if len(h.Pages) == 0 {
		left = h.MemoryMiB
	}
	switch {
	case q.pinned:
		left = min(left, h.MemoryMiB-h.MemoryUsage)
	case q.c.Limits != nil:
		left = min(left, ratio(h.MemoryMiB, q.c.Limits.Memory)-h.MemoryUsage)
	}
	return farm.Bytes(max(left, 0)) * farm.MiB
}

// pool is where vCPUs float that share CPUs, and how many may.
func (q *question) pool(h HostCell) (cpus farm.CPUSet, vcpus int) {
	cpus = farm.NewCPUSet(h.CPUs...)
	vcpus = cpus.Len()
	if q.c.Limits != nil {
		vcpus = int(max(min(int64(vcpus), ratio(int64(vcpus), q.c.Limits.CPU)-int64(h.CPUUsage)), 0))
	}
	if q.pinned {
		cpus = cpus.Minus(farm.NewCPUSet(h.Dedicated...))
	}
	return cpus, min(vcpus, cpus.Len())
}

// reserves reports whether CPUs are held beside the first guest cell. A cell that shares its CPUs has none to hold them
// with.
func (c Case) reserves() bool {
	return c.Guest[0].pinned() && (c.Emulator == "isolate" || c.Reserved > 0)
}

// ratio is n × by, rounded down; a hair more than the product counts as the next number, for ratios are written in
// decimals.
func ratio(n int64, by float64) int64 {
	if n == 0 {
		return 0
	}
	return int64(min(math.Floor(float64(n)*by+1e-6), maxMemoryMiB*maxUsage))
}

func (q *question) request(room numa.Room) numa.Request {
	req := numa.Request{Allowed: room.Topology.Online}
	if q.c.reserves() {
		req.Emulator = farm.EmulatorIsolate
	}
	if !q.pinned {
		req.CPU = farm.Shared
	}
	for _, g := range q.c.Guest {
		dedicated, shared := farm.NewCPUSet(g.Dedicated...).Len(), farm.NewCPUSet(g.Shared...).Len()
		cell := numa.CellRequest{
			VCPUs:    span(req.VCPUs, dedicated+shared),
			Floating: span(req.VCPUs+dedicated, shared),
			Memory:   farm.Bytes(g.MemoryMiB) * farm.MiB,
			Pages:    q.pages(g.PageSize),
		}
		if g.pinned() {
			cell.Threads = threadPolicy(g.Threads)
		}
		req.VCPUs += cell.VCPUs.Len()
		req.Memory += cell.Memory
		req.Each = append(req.Each, cell)
	}
	return req
}

// span is count numbers from first on. A case numbers vCPUs as it likes; to the planner those of a cell are adjacent,
// its dedicated ones first.
func span(first, count int) farm.CPUSet {
	ids := make([]int, count)
	for i := range ids {
		ids[i] = first + i
	}
	return farm.NewCPUSet(ids...)
}

func threadPolicy(word string) farm.ThreadPolicy {
	if word == "prefer" {
		return farm.PreferSiblings
	}
	return farm.ThreadPolicy(word)
}

// pages are the sizes that will do, in Nova's order: the largest first.
func (q *question) pages(want PageSize) []farm.Bytes {
	switch {
	case want.KiB > 0:
		return []farm.Bytes{farm.Bytes(want.KiB) * farm.KiB}
	case want.Word == "" || want.Word == "small":
		return []farm.Bytes{0}
	}
	var sizes []farm.Bytes
	for _, h := range q.c.Host {
		for _, p := range h.Pages {
			if p.SizeKiB != h.leastPage() {
				sizes = append(sizes, farm.Bytes(p.SizeKiB)*farm.KiB)
			}
		}
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	slices.Reverse(sizes)
	if want.Word == "any" {
		sizes = append(sizes, 0)
	}
	return sizes
}
