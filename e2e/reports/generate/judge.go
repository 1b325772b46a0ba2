// Package generate makes up machines and virtual machines, has the planner and the audit judge them, and holds what
// they say against rules that are written down here and share no code with them.
package generate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// Result is what came out of a generator.
type Result struct {
	Generated int
	Bad       []string // what breaks a rule, a line each
}

func (r *Result) add(errs []error, what func() string) {
	r.Generated++
	if len(errs) > 0 {
		r.Bad = append(r.Bad, fmt.Sprintf("%s: %v", what(), errors.Join(errs...)))
	}
}

// ledger is what a host has left, counted apart from the planner.
type ledger struct {
	host   farm.Topology
	free   farm.CPUSet
	memory map[int]farm.Bytes                // ordinary memory by node
	pages  map[int]map[farm.Bytes]farm.Bytes // bytes in huge pages by node and size
}

func newLedger(host farm.Topology) *ledger {
	l := &ledger{host: host, free: host.Online, memory: map[int]farm.Bytes{},
		pages: map[int]map[farm.Bytes]farm.Bytes{}}
	for _, n := range host.Nodes {
		l.memory[n.ID], l.pages[n.ID] = n.Memory, map[farm.Bytes]farm.Bytes{}
		for _, p := range n.Pages {
			size := p.Size * farm.Bytes(p.Total)
			l.memory[n.ID] -= size
			l.pages[n.ID][p.Size] = size
		}
	}
	return l
}

// have is what a node has left in pages of one size; 0 is ordinary memory.
func (l *ledger) have(node int, size farm.Bytes) farm.Bytes {
	if size == 0 {
		return l.memory[node]
	}
	return l.pages[node][size]
}

// take takes what a plan uses.
func (l *ledger) take(p farm.Plan) {
	l.free = l.free.Minus(p.Held())
	for _, c := range p.Cells {
		if c.PageSize == 0 {
			l.memory[c.Node] -= c.Memory
		} else {
			l.pages[c.Node][c.PageSize] -= c.Memory
		}
	}
}

// home reports whether the node has any memory.
func (l *ledger) home(node int) bool {
	i := slices.IndexFunc(l.host.Nodes, func(n farm.Node) bool { return n.ID == node })
	return l.host.Nodes[i].Memory > 0
}

// nodeOf is the node of a CPU; -1 for one that the host does not have.
func (l *ledger) nodeOf(cpu int) int {
	for _, n := range l.host.Nodes {
		if n.CPUs.Has(cpu) {
			return n.ID
		}
	}
	return -1
}

// threads is the number of threads of the host's largest core.
func (l *ledger) threads() int {
	most := 1
	for _, c := range l.host.Cores {
		most = max(most, c.Threads.Len())
	}
	return most
}

// plan judges a plan of pinned vCPUs for a request.
func (l *ledger) plan(req numa.Request, p farm.Plan) []error {
	errs := append(l.cpus(req, p), l.cells(req, p)...)
	errs = append(errs, guest(p)...)
	if t := p.Guest.Threads; t > l.threads() {
		errs = append(errs, fmt.Errorf("a guest core has %d threads, a core of the host %d", t, l.threads()))
	}
	if req.Guest != (farm.GuestTopology{}) && p.Guest != req.Guest {
		errs = append(errs, fmt.Errorf("the guest is %+v, wanted %+v", p.Guest, req.Guest))
	}
	if req.Guest == (farm.GuestTopology{}) && p.Guest.Threads > 1 {
		errs = append(errs, l.siblings(p)...)
	}
	return errs
}

// cpus: each vCPU has a free CPU of its own.
func (l *ledger) cpus(req numa.Request, p farm.Plan) (errs []error) {
	if len(p.VCPUs) != req.VCPUs {
		return []error{fmt.Errorf("%d vCPUs, wanted %d", len(p.VCPUs), req.VCPUs)}
	}
	var used farm.CPUSet
	for i, v := range p.VCPUs {
		if v.Len() != 1 || !v.Minus(l.free).Empty() || v.Common(used) > 0 {
			errs = append(errs, fmt.Errorf("vCPU %d is on CPUs %q, which are not one free CPU", i, v))
		}
		used = used.Or(v)
	}
	return errs
}

// cells: they hold all vCPUs and all memory; the CPUs of each are on one node, and its memory is there; where that node
// has none, on the nearest that has any. Memory and pages are there.
func (l *ledger) cells(req numa.Request, p farm.Plan) (errs []error) {
	var memory farm.Bytes
	var vcpus farm.CPUSet
	taken := map[[2]int]farm.Bytes{}
	for i, c := range p.Cells {
		memory += c.Memory
		if c.VCPUs.Common(vcpus) > 0 {
			errs = append(errs, fmt.Errorf("cell %d shares vCPUs with another", i))
		}
		vcpus = vcpus.Or(c.VCPUs)
		errs = append(errs, l.near(i, c, p)...)
		key := [2]int{c.Node, int(c.PageSize)}
		if taken[key] += c.Memory; taken[key] > l.have(c.Node, c.PageSize) {
			errs = append(errs, fmt.Errorf("node %d has %v in pages of %v, taken are %v", c.Node,
				l.have(c.Node, c.PageSize), c.PageSize, taken[key]))
		}
		if c.PageSize != 0 && c.Memory%c.PageSize != 0 || !slices.Contains(sizesOf(req), c.PageSize) {
			errs = append(errs, fmt.Errorf("cell %d has %v in pages of %v", i, c.Memory, c.PageSize))
		}
	}
	if memory != req.Memory || !vcpus.Equal(farm.CPURange(0, req.VCPUs)) {
		errs = append(errs, fmt.Errorf("the cells have vCPUs %v and %v", vcpus, memory))
	}
	if req.Cells > 0 && len(p.Cells) != req.Cells {
		errs = append(errs, fmt.Errorf("%d cells, wanted %d", len(p.Cells), req.Cells))
	}
	return errs
}

// sizesOf is the page sizes that will do for any cell.
func sizesOf(req numa.Request) []farm.Bytes {
	out := slices.Clone(req.Pages)
	for _, c := range req.Each {
		out = append(out, c.Pages...)
		if len(c.Pages) == 0 {
			out = append(out, 0)
		}
	}
	if len(out) == 0 {
		return []farm.Bytes{0}
	}
	return out
}

// near judges where the CPUs and the memory of a cell are.
func (l *ledger) near(i int, c farm.GuestCell, p farm.Plan) (errs []error) {
	at := -1
	for _, v := range c.VCPUs.List() {
		for _, cpu := range p.VCPUs[v].List() {
			node := l.nodeOf(cpu)
			if at >= 0 && node != at {
				return []error{fmt.Errorf("cell %d has CPUs of nodes %d and %d", i, at, node)}
			}
			at = node
		}
	}
	switch {
	case at < 0:
		return []error{fmt.Errorf("cell %d has no CPUs", i)}
	case c.Remote != (at != c.Node):
		errs = append(errs, fmt.Errorf("cell %d has CPUs of node %d and memory of node %d, remote %v", i, at, c.Node,
			c.Remote))
	case l.home(at) && c.Node != at:
		errs = append(errs, fmt.Errorf("cell %d has memory of node %d, though its node %d has some", i, c.Node, at))
	case !l.home(at) && l.distance(at, c.Node) > l.nearest(at):
		errs = append(errs, fmt.Errorf("cell %d on node %d has memory of node %d, which is not the nearest", i, at,
			c.Node))
	}
	return errs
}

func (l *ledger) distance(a, b int) int {
	if l.host.Distance == nil || a == b {
		return 10 + 10*number(a != b)
	}
	index := func(id int) int { return slices.IndexFunc(l.host.Nodes, func(n farm.Node) bool { return n.ID == id }) }
	return l.host.Distance[index(a)][index(b)]
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// nearest is the distance of the nearest node with memory.
func (l *ledger) nearest(from int) int {
	least := 1 << 30
	for _, n := range l.host.Nodes {
		if l.home(n.ID) {
			least = min(least, l.distance(from, n.ID))
		}
	}
	return least
}

// guest: QEMU fills threads, then cores, then sockets in the order of vCPU numbers. Each core lies in one cell, and a
// socket and a cell either have nothing in common, or one holds the other.
func guest(p farm.Plan) (errs []error) {
	g := p.Guest
	if g.Sockets < 1 || g.Cores < 1 || g.Threads < 1 || g.Sockets*g.Cores*g.Threads != len(p.VCPUs) {
		return []error{fmt.Errorf("a guest of %+v does not have %d vCPUs", g, len(p.VCPUs))}
	}
	cellOf := map[int]int{}
	for i, c := range p.Cells {
		for _, v := range c.VCPUs.List() {
			cellOf[v] = i
		}
	}
	inSocket := make([]map[int]int, g.Sockets) // vCPUs by cell
	for v := range p.VCPUs {
		if first := v / g.Threads * g.Threads; cellOf[v] != cellOf[first] {
			errs = append(errs, fmt.Errorf("vCPUs %d and %d are one core, and in cells %d and %d", first, v,
				cellOf[first], cellOf[v]))
		}
		s := v / (g.Threads * g.Cores)
		if inSocket[s] == nil {
			inSocket[s] = map[int]int{}
		}
		inSocket[s][cellOf[v]]++
	}
	for s, byCell := range inSocket {
		for cell, n := range byCell {
			if len(byCell) > 1 && n < p.Cells[cell].VCPUs.Len() {
				errs = append(errs, fmt.Errorf("socket %d and cell %d cut each other", s, cell))
			}
		}
	}
	return errs
}

// siblings: where the planner decides, the vCPUs of a guest core have all threads of a host core.
func (l *ledger) siblings(p farm.Plan) (errs []error) {
	for first := 0; first < len(p.VCPUs); first += p.Guest.Threads {
		set := farm.Union(p.VCPUs[first : first+p.Guest.Threads]...)
		if !slices.ContainsFunc(l.host.Cores, func(c farm.Core) bool { return c.Threads.Equal(set) }) {
			errs = append(errs, fmt.Errorf("vCPUs %d to %d are one core, and on CPUs %v", first,
				first+p.Guest.Threads-1, set))
		}
	}
	return errs
}
