package numa

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// maxNodesNamed bounds how many nodes a refusal lists.
const maxNodesNamed = 8

// refusal says what a view lacks for its request.
type refusal struct{ *view }

// err reports why there is no layout in the room: never on this host, or not now.
func (v refusal) err(room Room) error {
	all := room.emptied()
	never := refusal{newView(all, v.req, v.wants)}
	if _, ok := never.layout(); !ok {
		if text := never.cutText(all); text != "" {
			return &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
				Message: "this host can never hold " + v.wanted() + ": " + text + " (even when the host is empty)",
				Hint:    "leave the guest's topology out, or ask for one that nests with the host's nodes"}
		}
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
			Message: "this host can never hold " + never.wanted() + ": " + never.shortages() +
				" (even when the host is empty)", Hint: never.tooBigHint(all)}
	}
	short := v.cutText(room)
	if short == "" {
		short = v.shortages()
	}
	return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
		Message: "no room for " + v.wanted() + ": " + short + " (now)",
		Hint:    v.noRoomHint(room)}
}

// emptied is the room of the same host without any VM. A room that was made by hand may have more than its topology
// tells, and what it has counts; how much its shared pools had nobody knows.
func (r Room) emptied() Room {
	out := emptyRoom(r.Topology, r.Reserve, r.indexed())
	out.Free = out.Free.Or(r.Free)
	for id, now := range r.Nodes {
		n := out.Nodes[id]
		n.Memory, n.Base = max(n.Memory, now.Memory), now.Base
		if n.Pages == nil {
			n.Pages = make(map[farm.Bytes]int, len(now.Pages))
		}
		for size, pages := range now.Pages {
			n.Pages[size] = max(n.Pages[size], pages)
		}
		if _, known := r.Reserve.Shared[id]; !known && !now.Shared.CPUs.Empty() {
			n.Shared = SharedRoom{CPUs: now.Shared.CPUs, VCPUs: math.MaxInt, Memory: maxMemory}
		}
		out.Nodes[id] = n
	}
	return out
}

func (v refusal) wanted() string {
	s := fmt.Sprintf("%s and %v", plural(v.req.VCPUs, "vCPU"), v.req.Memory)
	switch {
	case len(v.req.Each) > 0:
		return s + fmt.Sprintf(" in %s", plural(len(v.req.Each), "cell"))
	case v.req.Cells > 1:
		s += fmt.Sprintf(" in %d equal cells", v.req.Cells)
	}
	if in := pagesText(v.req.pagesOf(0)); in != "" {
		s += " in " + in
	}
	return s
}

// pagesText names page sizes that will do; nothing is said of ordinary pages alone.
func pagesText(pages []farm.Bytes) string {
	var names []string
	for _, size := range pages {
		if size == 0 {
			names = append(names, "ordinary pages")
		} else {
			names = append(names, fmt.Sprintf("pages of %v", size))
		}
	}
	if len(names) == 1 && pages[0] == 0 {
		return ""
	}
	return strings.Join(names, " or ")
}

func (v refusal) tooBigHint(room Room) string {
	switch {
	case v.req.Cells == 1 && len(v.nodes) > 1:
		return "leave the number of cells to the plan, so that it may use several nodes"
	case room.Free.Common(v.req.Allowed) < v.req.VCPUs && v.req.Allowed.Len() < room.Topology.Online.Len():
		return "ask the batch system for more CPUs, or for a smaller VM"
	case v.nodesFor(v.req.Memory) > v.req.VCPUs:
		return fmt.Sprintf("a VM's memory lies on the nodes of its vCPUs: ask for at least %s, or for less memory",
			plural(v.nodesFor(v.req.Memory), "vCPU"))
	case v.otherPages(room) != "":
		return v.otherPages(room)
	case v.shortOfPages():
		return "set up more huge pages on the host, or ask for ordinary pages"
	}
	return "ask for less, or take a larger host"
}

func (v refusal) noRoomHint(room Room) string {
	if other := v.otherPages(room); other != "" {
		return other + ", or wait until a VM ends here"
	}
	if v.req.Cells == 1 && len(v.nodes) > 1 {
		return "leave the number of cells to the plan, so that it may use several nodes, or wait until a VM ends here"
	}
	return "wait until a VM ends here, ask for less, or try another host"
}

// otherPages advises huge pages of another size where the VM fits in those; "" where it fits in none, or where ordinary
// pages would do for it.
func (v refusal) otherPages(room Room) string {
	asked := v.req.pagesOf(0)
	if slices.Contains(asked, 0) {
		return ""
	}
	var sizes []farm.Bytes
	for _, n := range room.Nodes {
		for size, pages := range n.Pages {
			if pages > 0 && !slices.Contains(asked, size) {
				sizes = append(sizes, size)
			}
		}
	}
	slices.Sort(sizes)
	for _, size := range slices.Backward(slices.Compact(sizes)) {
		other := v.req.inPages(size)
		wants, err := other.normal()
		if err != nil {
			continue
		}
		if _, ok := newView(room, &other, wants).layout(); ok {
			return fmt.Sprintf("ask for pages of %v, in which it fits", size)
		}
	}
	return ""
}

// inPages is the request in pages of one size.
func (r Request) inPages(size farm.Bytes) Request {
	r.Pages = []farm.Bytes{size}
	r.Each = slices.Clone(r.Each)
	for i := range r.Each {
		r.Each[i].Pages = r.Pages
	}
	return r
}

// nodesFor is how many of the roomiest nodes hold so much memory together; 0 where all do not, or where the cells are
// given.
func (v refusal) nodesFor(memory farm.Bytes) int {
	if len(v.req.Each) > 0 || v.req.Cells > 0 {
		return 0
	}
	var have []farm.Bytes
	for n := range v.nodes {
		if v.state[n].home {
			have = append(have, v.mostMemory(n, v.req.pagesOf(0)))
		}
	}
	slices.Sort(have)
	for i, size := range slices.Backward(have) {
		if memory <= size {
			return len(have) - i
		}
		memory -= size
	}
	return 0
}

// shortOfPages reports that huge pages are wanted and nothing else will do, and that all nodes together have too few.
func (v refusal) shortOfPages() bool {
	var have farm.Bytes
	for n := range v.nodes {
		if v.state[n].home {
			have += v.mostMemory(n, v.req.pagesOf(0))
		}
	}
	return !slices.Contains(v.req.pagesOf(0), 0) && have < v.req.Memory
}

// shortages returns what each node lacks, and why all together do not do.
func (v refusal) shortages() string {
	if len(v.req.Each) > 0 || v.req.Cells > 1 {
		return v.unmatched()
	}
	parts := v.lackingNodes(&v.wants[0], v.isolatesEmulator())
	switch together := v.lacksTogether(); {
	case v.req.Cells == 1:
		parts = append(parts, "it is to stay on one node")
	case len(v.nodes) > 1 && together != "":
		parts = append(parts, "all nodes together lack "+together)
	case len(v.nodes) > 1:
		parts = append(parts, "no set of nodes has the CPUs and the memory side by side")
	}
	return strings.Join(parts, "; ")
}

// lackingNodes says of each node what it lacks for the cell.
func (v refusal) lackingNodes(w *want, emulator bool) []string {
	var parts []string
	for n := range v.nodes {
		if v.state[n].threads == 0 && v.nodes[n].cpus.Empty() && v.state[n].pool.Empty() {
			continue // it has memory only
		}
		lacks := v.lacks(w, n, emulator)
		if lacks == "" {
			continue
		}
		if len(parts) == maxNodesNamed {
			parts = append(parts, "other nodes are short as well")
			break
		}
		parts = append(parts, fmt.Sprintf("node %d lacks %s", v.nodes[n].id, lacks))
	}
	if len(parts) == 0 && v.noCPUs() {
		parts = append(parts, "it has no node with CPUs")
	}
	return parts
}

func (v refusal) noCPUs() bool {
	for n := range v.nodes {
		if !v.nodes[n].cpus.Empty() || !v.state[n].pool.Empty() {
			return false
		}
	}
	return true
}

// lacks returns what the node is short of for the cell: CPUs, room in the shared pool, memory.
func (v refusal) lacks(w *want, node int, emulator bool) string {
	var parts []string
	if short := w.pinned - v.pinnable(node, w.threads, false); short > 0 && w.pinned > 0 {
		parts = append(parts, v.lacksCPUs(w, short))
	} else if emulator && v.pinnable(node, w.threads, true) < w.pinned {
		parts = append(parts, "a CPU for the emulator")
	}
	if short := w.floating - v.state[node].pool.Len(); short > 0 {
		parts = append(parts, plural(short, "shared CPU"))
	} else if short := w.floating - v.state[node].floats; short > 0 {
		parts = append(parts, "shared room for "+plural(short, "vCPU"))
	}
	if _, ok := v.memoryFor(w, node, w.sizes); !ok {
		parts = append(parts, v.lacksMemory(w, node))
	}
	return strings.Join(parts, " and ")
}

func (v refusal) lacksCPUs(w *want, short int) string {
	switch {
	case w.threads == farm.IsolateCores:
		return plural(short, "whole core")
	case w.threads == farm.RequireSiblings && v.smt < 2:
		return "cores with siblings"
	case w.threads == farm.RequireSiblings:
		return plural(short, "CPU") + " beside a free sibling"
	}
	return plural(short, "CPU")
}

// lacksMemory returns what is short in each page size that would do.
func (v refusal) lacksMemory(w *want, node int) string {
	var parts []string
	for _, size := range w.sizes {
		if len(v.state[node].givers) == 0 {
			return "memory near it"
		}
		s := v.source(v.state[node].givers[0], size)
		for _, giver := range v.state[node].givers[1:] {
			if o := v.source(giver, size); o.bytes() > s.bytes() {
				s = o
			}
		}
		switch {
		case w.memory%s.unit != 0:
			parts = append(parts, fmt.Sprintf("memory in units other than %v", s.unit))
		case units(w.memory, s.unit) < w.pieces:
			parts = append(parts, fmt.Sprintf("pages smaller than %v for %s", s.unit, plural(w.pieces, "cell")))
		default:
			parts = append(parts, lackedUnits(units(w.memory, s.unit)-s.free, s))
		}
	}
	return strings.Join(parts, " or ")
}

func lackedUnits(short int, s source) string {
	switch {
	case s.size != 0:
		return plural(short, "page") + fmt.Sprintf(" of %v", s.size)
	case s.shared:
		return sized(farm.Bytes(short)*s.unit) + " of shared memory"
	}
	return sized(farm.Bytes(short)*s.unit) + " of memory"
}

// sized is a size in words: a bare number says bytes.
func sized(size farm.Bytes) string {
	size = size.Rounded()
	if size%farm.KiB != 0 {
		return plural(int(size), "byte")
	}
	return size.String()
}

// lacksTogether returns what all nodes together lack for the VM, if that explains the refusal.
func (v refusal) lacksTogether() string {
	w := &v.wants[0]
	vcpus, parts := 0, []string(nil)
	for n := range v.nodes {
		vcpus += max(v.capacity(n, false), 0)
	}
	if short := w.vcpus() - vcpus; short > 0 && w.pinned > 0 {
		parts = append(parts, v.lacksCPUs(w, short))
	} else if short > 0 {
		parts = append(parts, "shared room for "+plural(short, "vCPU"))
	}
	var lacked []string
	for _, size := range w.sizes {
		var have farm.Bytes
		s := source{unit: 1}
		for _, n := range v.allGivers() {
			s = v.source(n, size)
			have += farm.Bytes(min(s.free, units(w.memory, s.unit))) * s.unit
		}
		if have >= w.memory {
			return strings.Join(parts, " and ")
		}
		lacked = append(lacked, lackedUnits(units(w.memory-have, s.unit), s))
	}
	return strings.Join(append(parts, strings.Join(lacked, " or ")), " and ")
}

// allGivers lists the nodes whose memory some CPU could use.
func (v refusal) allGivers() []int {
	var out []int
	for n := range v.nodes {
		if v.nodes[n].cpus.Empty() && v.state[n].pool.Empty() {
			continue
		}
		for _, giver := range v.state[n].givers {
			if !slices.Contains(out, giver) {
				out = append(out, giver)
			}
		}
	}
	return out
}

// unmatched returns which cells find no nodes of their own, and what the other nodes lack for the first of them.
func (v refusal) unmatched() string {
	lists := make([][]farm.Bytes, len(v.wants))
	for i, w := range v.wants {
		lists[i] = w.sizes
	}
	m := v.newMatcher(v.wants, lists)
	cells, nodes := m.shortfall()
	if cells == nil {
		return "the cells would have to share a node's memory, and it is short"
	}
	w := &v.wants[cells[0]]
	lacking := v.lackingNodes(w, m.emulator(cells[0]))
	said := make([]int, 0, len(nodes))
	for _, n := range nodes {
		said = append(said, v.nodes[n].id)
	}
	what, where := "no node", ""
	if len(said) == 1 {
		what = fmt.Sprintf("only node %d", said[0])
	} else if len(said) > 1 {
		what = fmt.Sprintf("only nodes %v", farm.NewCPUSet(said...))
	}
	if len(lacking) > 0 {
		where = ": " + strings.Join(lacking, "; ")
	}
	if len(v.req.Each) > 0 {
		who := fmt.Sprintf("cell %d (%s)", cells[0], w.text())
		if len(cells) > 1 {
			who = fmt.Sprintf("cells %v (the first wants %s)", farm.NewCPUSet(cells...), w.text())
		}
		return fmt.Sprintf("%s can have %s%s", who, what, where)
	}
	return fmt.Sprintf("%d cells of %s want as many nodes, and %s can hold one%s", len(v.wants), w.text(), what, where)
}

func (w *want) text() string {
	s := fmt.Sprintf("%s and %v", plural(w.vcpus(), "vCPU"), w.memory)
	if in := pagesText(w.sizes); in != "" {
		s += " in " + in
	}
	return s
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
