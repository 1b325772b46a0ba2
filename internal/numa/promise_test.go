package numa_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// checkPlan holds what Plan promises of a plan.
func (g *game) checkPlan(t *testing.T, what string, req numa.Request, p farm.Plan) {
	t.Helper()
	bad := func(format string, args ...any) { t.Errorf(what+": "+format, args...) }
	seen := numa.Observed{VCPUs: p.VCPUs, Emulator: p.Emulator}
	for _, c := range p.Cells {
		seen.Nodes = append(seen.Nodes, c.Node)
	}
	if problems := numa.Check(p, seen, g.running); len(problems) > 0 {
		bad("%v", problems)
	}
	g.checkCPUs(bad, req, p)
	g.checkCells(bad, req, p)
	g.checkEmulator(bad, req, p)
	g.checkThreads(bad, p)
	auto := req.Cells == 0 && len(req.Each) == 0
	remote := slices.ContainsFunc(p.Cells, func(c farm.GuestCell) bool { return c.Remote })
	beside := brute{besideMemory(g.room), req}
	if remote && beside.fits(0) {
		bad("CPUs beside memory would do")
	}
	if auto && !remote && len(p.Cells) > 1 && beside.fits(len(p.Cells)-1) {
		bad("fewer nodes would do")
	}
	if len(req.Pages) > 1 && len(req.Each) == 0 && p.Cells[0].PageSize != req.Pages[0] {
		best := req
		best.Pages = req.Pages[:1]
		if req.Memory%farm.Bytes(max(req.Cells, 1))/max(pageSize(best.Pages[0]), 1) == 0 &&
			divides(req, best.Pages[0]) && !remote && (brute{beside.room, best}).fits(len(p.Cells)) {
			bad("the best page size would do")
		}
	}
}

// besideMemory is a room without the CPUs of nodes that have no memory.
func besideMemory(r numa.Room) numa.Room {
	nodes := maps.Clone(r.Nodes)
	for _, n := range r.Topology.Nodes {
		room := nodes[n.ID]
		memory := n.Memory + room.Memory
		for size, count := range room.Pages {
			memory += size * farm.Bytes(count)
		}
		if memory > 0 {
			continue
		}
		r.Free = r.Free.Minus(n.CPUs)
		room.Shared.CPUs = farm.CPUSet{}
		nodes[n.ID] = room
	}
	r.Nodes = nodes
	return r
}

func pageSize(size farm.Bytes) farm.Bytes {
	if size == 0 {
		return farm.MiB
	}
	return size
}

func divides(req numa.Request, size farm.Bytes) bool {
	return req.Memory/farm.Bytes(max(req.Cells, 1))%pageSize(size) == 0
}

// checkCPUs holds every vCPU to its own thread or to its node's pool, and the thread policies.
func (g *game) checkCPUs(bad func(string, ...any), req numa.Request, p farm.Plan) {
	usable := g.room.Free.And(req.Allowed).Minus(req.Service)
	if out := p.Held().Minus(usable); !out.Empty() {
		bad("CPUs %v are not free and allowed", out)
	}
	pinned := 0
	for id, set := range p.VCPUs {
		if p.Floating.Has(id) {
			continue
		}
		pinned++
		if set.Len() != 1 {
			bad("vCPU %d is pinned to %v", id, set)
		}
	}
	if vcpus := wantedVCPUs(req); len(p.VCPUs) != vcpus || p.Held().Minus(p.Extra).Len() != pinned &&
		p.Held().Len() != pinned+p.Extra.Len() {
		bad("wanted %d vCPUs, got %d, of them %d pinned to %v", vcpus, len(p.VCPUs), pinned, p.Held())
	}
	for i, c := range wantedCells(req, p) {
		if want := c.Floating; !want.Equal(c.VCPUs.And(p.Floating)) {
			bad("cell %d floats %v, wanted %v", i, c.VCPUs.And(p.Floating), want)
		}
		g.checkPolicy(bad, c, p)
	}
}

func wantedVCPUs(req numa.Request) int {
	n := req.VCPUs
	for _, c := range req.Each {
		n += c.VCPUs.Len()
	}
	return n
}

// wantedCells is the request's cells, or those that the plan made of it.
func wantedCells(req numa.Request, p farm.Plan) []numa.CellRequest {
	if len(req.Each) > 0 {
		return req.Each
	}
	var out []numa.CellRequest
	for _, c := range p.Cells {
		r := numa.CellRequest{VCPUs: c.VCPUs, Memory: c.Memory, Pages: req.Pages, Threads: req.Threads}
		if req.CPU == farm.Shared {
			r.Floating = c.VCPUs
		}
		out = append(out, r)
	}
	return out
}

func (g *game) checkPolicy(bad func(string, ...any), c numa.CellRequest, p farm.Plan) {
	nodes := map[int]bool{}
	var on []int // vCPUs of the cell on each core that it uses
	for _, core := range g.room.Topology.Cores {
		used := 0
		for id := range c.VCPUs.Minus(c.Floating).All() {
			used += core.Threads.Common(p.VCPUs[id])
		}
		if used == 0 {
			continue
		}
		nodes[core.Node] = true
		on = append(on, used)
		if c.Threads == farm.IsolateCores && (used > 1 || !core.Threads.Minus(p.Held()).Empty()) {
			bad("core %v has %d isolated vCPUs, held is %v", core.Threads, used, p.Held())
		}
	}
	for id := range c.Floating.All() {
		for _, n := range g.room.Topology.Nodes {
			if pool := g.room.Nodes[n.ID].Shared.CPUs; !pool.Empty() && !pool.And(p.VCPUs[id]).Empty() {
				nodes[n.ID] = true
			}
		}
		if p.VCPUs[id].Empty() {
			bad("vCPU %d floats over nothing", id)
		}
	}
	if len(nodes) != 1 {
		bad("cell with vCPUs %v is on nodes %v", c.VCPUs, nodes)
	}
	slices.Sort(on)
	if c.Threads == farm.RequireSiblings && len(on) > 1 && on[1] < 2 { // one core may have what is left over
		bad("cell with vCPUs %v has %v vCPUs on its cores", c.VCPUs, on)
	}
}

// checkCells holds the cells to have all vCPUs and all memory, in pages that were asked for, on nodes of their own.
func (g *game) checkCells(bad func(string, ...any), req numa.Request, p farm.Plan) {
	var all farm.CPUSet
	count := 0
	for _, c := range p.Cells {
		all, count = all.Or(c.VCPUs), count+c.VCPUs.Len()
		if c.VCPUs.Empty() || c.Memory == 0 || c.Memory%pageSize(c.PageSize) != 0 {
			bad("cell %+v", c)
		}
		if (req.Contiguous || len(req.Each) == 0) && pieces(c.VCPUs) != 1 {
			bad("cell %+v has gaps", c)
		}
	}
	if !all.Equal(farm.CPURange(0, len(p.VCPUs))) || count != len(p.VCPUs) {
		bad("the cells have vCPUs %v, in all %d", all, count)
	}
	used := map[int]bool{}
	for i, want := range wantedCells(req, p) {
		var memory farm.Bytes
		for _, c := range p.Cells {
			if c.VCPUs.Minus(want.VCPUs).Empty() {
				memory += c.Memory
				if !slices.Contains(orOrdinary(want.Pages), c.PageSize) {
					bad("cell %+v is not in pages of %v", c, want.Pages)
				}
			}
		}
		if memory != want.Memory {
			bad("cell %d has %v, wanted %v", i, memory, want.Memory)
		}
		node := g.nodeOf(want, p)
		if used[node] {
			bad("two cells on node %d", node)
		}
		used[node] = true
	}
	if req.Memory != 0 && p.Memory() != req.Memory || req.Cells != 0 && len(p.Cells) != req.Cells {
		bad("%v in %d cells, wanted %v in %d", p.Memory(), len(p.Cells), req.Memory, req.Cells)
	}
}

// nodeOf is the node whose CPUs a cell uses.
func (g *game) nodeOf(c numa.CellRequest, p farm.Plan) int {
	for id := range c.VCPUs.All() {
		for _, core := range g.room.Topology.Cores {
			if core.Threads.Common(p.VCPUs[id]) > 0 {
				return core.Node
			}
		}
	}
	return -1
}

func (g *game) checkEmulator(bad func(string, ...any), req numa.Request, p farm.Plan) {
	if p.Emulator.Empty() || !p.IOThread.Equal(p.Emulator) {
		bad("emulator on %q, I/O on %q", p.Emulator, p.IOThread)
	}
	if req.Emulator != farm.EmulatorIsolate {
		return
	}
	first := g.nodeOf(wantedCells(req, p)[0], p)
	for _, core := range g.room.Topology.Cores {
		if core.Threads.Common(p.Emulator) > 0 && core.Node != first {
			bad("emulator on node %d, the first cell on %d", core.Node, first)
		}
	}
	if p.Emulator.Len() != 1 || p.Emulator.Common(p.CPUs()) > 0 || p.Emulator.Common(p.Extra) != 1 {
		bad("emulator on %v beside vCPUs on %v, extra %v", p.Emulator, p.CPUs(), p.Extra)
	}
}

// checkThreads holds the guest's SMT to be true: its threads are the threads of one core, all of them.
func (g *game) checkThreads(bad func(string, ...any), p farm.Plan) {
	n := p.Guest.Threads
	if p.Guest.Sockets*p.Guest.Cores*n != len(p.VCPUs) {
		bad("guest %+v", p.Guest)
	}
	if n == 1 {
		return
	}
	for i := 0; i < len(p.VCPUs); i += n {
		ids := farm.Union(p.VCPUs[i : i+n]...)
		if !slices.ContainsFunc(g.room.Topology.Cores, func(c farm.Core) bool { return c.Threads.Equal(ids) }) {
			bad("guest core of CPUs %v is no core of the host", ids)
		}
	}
}
