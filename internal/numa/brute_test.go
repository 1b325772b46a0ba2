package numa_test

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// brute decides by trying everything, on hosts of few nodes and CPUs, whether a request fits. It shares no code with
// the planner and reasons as little as it can.
type brute struct {
	room numa.Room
	req  numa.Request
}

// fits reports whether the request fits in at most so many cells; 0 means any number. A request that fixes its cells
// has those.
func (b brute) fits(most int) bool {
	nodes := len(b.room.Topology.Nodes)
	emulator := b.req.Emulator == farm.EmulatorIsolate
	switch {
	case len(b.req.Each) > 0:
		cells := make([]bruteCell, len(b.req.Each))
		for i, c := range b.req.Each {
			cells[i] = bruteCell{pinned: c.VCPUs.Minus(c.Floating).Len(), floating: c.Floating.Len(), memory: c.Memory,
				pages: c.Pages, threads: c.Threads, pieces: 1}
			if b.req.Contiguous {
				cells[i].pieces = pieces(c.VCPUs)
			}
		}
		cells[0].emulator = emulator
		return b.place(cells, make([]bool, nodes), map[bruteAccount]int{})
	case b.req.Cells > 0:
		cells := slices.Repeat([]bruteCell{b.part(b.req.VCPUs/b.req.Cells, b.req.Memory/farm.Bytes(b.req.Cells))},
			b.req.Cells)
		cells[0].emulator = emulator
		return b.place(cells, make([]bool, nodes), map[bruteAccount]int{})
	}
	for set := 1; set < 1<<nodes; set++ {
		var in []int
		for n := range nodes {
			if set>>n&1 == 1 {
				in = append(in, n)
			}
		}
		if (most == 0 || len(in) <= most) && b.splits(in) {
			return true
		}
	}
	return false
}

// shares reports whether no vCPU is pinned.
func (b brute) shares() bool {
	shares := len(b.req.Each) > 0 || b.req.CPU == farm.Shared
	for _, c := range b.req.Each {
		shares = shares && c.VCPUs.Equal(c.Floating)
	}
	return shares
}

func pieces(s farm.CPUSet) int {
	n := 0
	for id := range s.All() {
		if !s.Has(id - 1) {
			n++
		}
	}
	return n
}

type bruteCell struct {
	pinned, floating, pieces int
	memory                   farm.Bytes
	pages                    []farm.Bytes
	threads                  farm.ThreadPolicy
	emulator                 bool
}

type bruteAccount struct {
	node   int
	size   farm.Bytes
	shared bool
}

func (b brute) part(vcpus int, memory farm.Bytes) bruteCell {
	c := bruteCell{pinned: vcpus, memory: memory, pages: b.req.Pages, threads: b.req.Threads, pieces: 1}
	if b.req.CPU == farm.Shared {
		c.pinned, c.floating = 0, vcpus
	}
	return c
}

// place puts the cells on nodes that are not used, one by one.
func (b brute) place(cells []bruteCell, used []bool, taken map[bruteAccount]int) bool {
	if len(cells) == 0 {
		return true
	}
	c := cells[0]
	for n := range used {
		if used[n] || !b.cpus(n, c) {
			continue
		}
		for _, size := range orOrdinary(c.pages) {
			for _, m := range b.memory(n, size, fine) {
				if c.memory%m.unit != 0 || int(c.memory/m.unit) < c.pieces ||
					taken[m.account]+int(c.memory/m.unit) > m.have {
					continue
				}
				used[n] = true
				taken[m.account] += int(c.memory / m.unit)
				ok := b.place(cells[1:], used, taken)
				taken[m.account] -= int(c.memory / m.unit)
				used[n] = false
				if ok {
					return true
				}
			}
		}
	}
	return false
}

// splits reports whether the VM can be cut so that every node of the set has some of it.
func (b brute) splits(in []int) bool {
	carriers := []int{-1}
	if b.req.Emulator == farm.EmulatorIsolate {
		carriers = in
	}
	for _, carrier := range carriers {
		if b.cutCPUs(in, b.req.VCPUs, carrier) && b.cutMemory(in, b.req.Memory, map[bruteAccount]int{}) {
			return true
		}
	}
	return false
}

func (b brute) cutCPUs(in []int, vcpus, carrier int) bool {
	if len(in) == 0 {
		return vcpus == 0
	}
	for v := 1; v <= vcpus; v++ {
		c := b.part(v, 0)
		c.emulator = in[0] == carrier
		if b.cpus(in[0], c) && b.cutCPUs(in[1:], vcpus-v, carrier) {
			return true
		}
	}
	return false
}

func (b brute) cutMemory(in []int, memory farm.Bytes, taken map[bruteAccount]int) bool {
	if len(in) == 0 {
		return memory == 0
	}
	grain := fine
	if b.req.Memory%(2*farm.MiB) == 0 {
		grain = 2 * farm.MiB
	}
	for _, size := range orOrdinary(b.req.Pages) {
		for _, m := range b.memory(in[0], size, grain) {
			for n := 1; n <= m.have-taken[m.account] && farm.Bytes(n)*m.unit <= memory; n++ {
				taken[m.account] += n
				ok := b.cutMemory(in[1:], memory-farm.Bytes(n)*m.unit, taken)
				taken[m.account] -= n
				if ok {
					return true
				}
			}
		}
	}
	return false
}

const fine = farm.MiB

func orOrdinary(pages []farm.Bytes) []farm.Bytes {
	if len(pages) == 0 {
		return []farm.Bytes{0}
	}
	return pages
}

type bruteMemory struct {
	account bruteAccount
	unit    farm.Bytes
	have    int // units
}

// memory is what CPUs of node n can have of one page size: their own node's, or else that of any of the nearest.
func (b brute) memory(n int, size, grain farm.Bytes) []bruteMemory {
	t := b.room.Topology
	home := func(i int) bool {
		r := b.room.Nodes[t.Nodes[i].ID]
		return t.Nodes[i].Memory > 0 || r.Memory > 0 || len(r.Pages) > 0
	}
	at := func(i int) bruteMemory {
		r := b.room.Nodes[t.Nodes[i].ID]
		base := max(grain, r.Base)
		switch {
		case size != 0:
			return bruteMemory{bruteAccount{i, size, false}, size, r.Pages[size]}
		case b.shares() && !r.Shared.CPUs.Empty():
			return bruteMemory{bruteAccount{i, 0, true}, base, int(r.Shared.Memory / base)}
		}
		return bruteMemory{bruteAccount{i, 0, false}, base, int(r.Memory / base)}
	}
	if home(n) {
		return []bruteMemory{at(n)}
	}
	var out []bruteMemory
	nearest := 1 << 30
	for i := range t.Nodes {
		d := 20
		if t.Distance != nil {
			d = t.Distance[n][i]
		}
		if home(i) && d < nearest {
			nearest, out = d, nil
		}
		if home(i) && d == nearest {
			out = append(out, at(i))
		}
	}
	return out
}

// cpus tries every number of vCPUs on every core of the node.
func (b brute) cpus(n int, c bruteCell) bool {
	node := b.room.Topology.Nodes[n]
	shared := b.room.Nodes[node.ID].Shared
	if c.floating > 0 && (c.floating > shared.VCPUs || c.floating > shared.CPUs.Minus(b.req.Service).Len()) {
		return false
	}
	usable := b.room.Free.And(b.req.Allowed).Minus(b.req.Service)
	var free, all []int
	for _, core := range b.room.Topology.Cores {
		if core.Node == node.ID {
			free, all = append(free, core.Threads.And(usable).Len()), append(all, core.Threads.Len())
		}
	}
	if c.threads != farm.RequireSiblings || c.pinned == 0 {
		return b.spread(c, free, all, make([]int, len(free)), 0, c.pinned)
	}
	// Nova's rule: cores with that many free, filled one after the other
	for depth := 2; depth <= slices.Max(append(all, 1)); depth++ {
		cores, left := 0, -c.pinned
		for _, f := range free {
			if f >= depth {
				cores++
			}
			left += f
		}
		if depth*cores >= c.pinned && (!c.emulator || left > 0) {
			return true
		}
	}
	return false
}

func (b brute) spread(c bruteCell, free, all, taken []int, core, need int) bool {
	if core == len(free) {
		if need > 0 {
			return false
		}
		spare := !c.emulator
		for i := range free {
			spare = spare || free[i] > taken[i] && (c.threads != farm.IsolateCores || taken[i] == 0)
		}
		return spare
	}
	most := min(free[core], need)
	if c.threads == farm.IsolateCores {
		most = min(most, 1)
		if free[core] < all[core] {
			most = 0
		}
	}
	for n := 0; n <= most; n++ {
		taken[core] = n
		if b.spread(c, free, all, taken, core+1, need-n) {
			return true
		}
	}
	taken[core] = 0
	return false
}
