package numa

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// written is a plan being written out.
type written struct {
	farm.Plan
	cpus []int       // by vCPU number: the thread it is pinned to, or -1 when it floats
	own  farm.CPUSet // the emulator's own CPU
}

// write writes the layout out.
func (v *view) write(l layout) farm.Plan {
	w := &written{cpus: make([]int, v.req.VCPUs)}
	w.Cells = make([]farm.GuestCell, 0, len(l))
	given := v.numbered(l)
	for i := range l {
		w.Floating = w.Floating.Or(given[i].Floating)
		w.addCells(given[i].VCPUs, l[i].want.pieces, l[i].from, farm.GuestCell{Memory: l[i].want.memory,
			Node: v.nodes[l[i].from.node].id, PageSize: l[i].from.size, Remote: l[i].from.node != l[i].node})
		v.pin(w, &l[i], given[i])
	}
	w.VCPUs = farm.EachCPU(w.cpus)
	for i := range l {
		for id := range given[i].Floating.All() {
			w.VCPUs[id] = v.state[l[i].node].pool
		}
	}
	switch {
	case !w.own.Empty():
		w.Emulator = w.own
	case !v.req.Service.Empty():
		w.Emulator = v.req.Service
	default:
		w.Emulator = w.CPUs()
	}
	w.IOThread = w.Emulator
	w.Guest = v.guest(w.cpus, w.Cells)
	return w.Plan
}

// numbered is the guest numbers of each cell: as asked for, or counted on from cell to cell.
func (v *view) numbered(l layout) []CellRequest {
	if len(v.req.Each) > 0 {
		return v.req.Each
	}
	given, next := make([]CellRequest, len(l)), 0
	for i, c := range l {
		given[i].VCPUs = farm.CPURange(next, next+c.want.vcpus())
		if c.want.pinned == 0 {
			given[i].Floating = given[i].VCPUs
		}
		next += c.want.vcpus()
	}
	return given
}

// pin gives a cell's pinned vCPUs their threads, and the emulator its own if it is to be beside them.
func (v *view) pin(w *written, c *cell, given CellRequest) {
	for id := range given.Floating.All() {
		w.cpus[id] = -1
	}
	if c.want.pinned == 0 && !c.emulator {
		return
	}
	v.picker.pick(v, c.node, &c.want)
	cpus := v.picker.cpus()
	for id := range given.VCPUs.All() {
		if !given.Floating.Has(id) {
			w.cpus[id], cpus = cpus[0], cpus[1:]
		}
	}
	if c.want.threads == farm.IsolateCores {
		w.Extra = w.Extra.Or(v.picker.idle())
	}
	if c.emulator {
		cpu, held := v.picker.emulator(c.want.threads)
		w.own, w.Extra = farm.NewCPUSet(cpu), w.Extra.Or(held)
	}
}

// addCells enters the cell, or one for each run of its vCPUs where the hypervisor wants that; whole is the cell without
// its vCPUs.
func (w *written) addCells(vcpus farm.CPUSet, pieces int, from source, whole farm.GuestCell) {
	if pieces == 1 {
		whole.VCPUs = vcpus
		w.Cells = append(w.Cells, whole)
		return
	}
	parts := runs(vcpus)
	weights, caps := make([]int, len(parts)), make([]int, len(parts))
	step := from.unit
	if whole.Memory%roundUnit == 0 && units(whole.Memory, roundUnit) >= len(parts) {
		step = max(step, roundUnit)
	}
	for i, p := range parts {
		weights[i], caps[i] = p.Len(), units(whole.Memory, step)
	}
	for i, n := range share(units(whole.Memory, step), weights, caps) {
		part := whole
		part.VCPUs, part.Memory = parts[i], farm.Bytes(n)*step
		w.Cells = append(w.Cells, part)
	}
}

// guest is the wanted topology, or the one that the pins make true: SMT only when every core is the VM's alone and all
// are alike, several sockets only when each holds as many vCPUs in one run of numbers.
func (v *view) guest(cpus []int, cells []farm.GuestCell) farm.GuestTopology {
	if v.req.Guest != (farm.GuestTopology{}) {
		return v.req.Guest
	}
	threads, sockets := v.guestThreads(cpus), v.guestSockets(cpus)
	g := farm.GuestTopology{Sockets: sockets, Cores: len(cpus) / sockets / threads, Threads: threads}
	sets := make([]farm.CPUSet, len(cells))
	for i, c := range cells {
		sets[i] = c.VCPUs
	}
	if sockets > 1 && Cut(g, sets) != "" { // a node of several sockets beside a node of one
		g.Sockets, g.Cores = 1, len(cpus)/threads
	}
	return g
}

// guestThreads is the number of threads of a guest core: each run of so many vCPUs has all threads of one host core.
func (v *view) guestThreads(cpus []int) int {
	first := v.core(cpus[0])
	if first == nil || len(cpus)%len(first.threads) != 0 {
		return 1
	}
	threads := len(first.threads)
	for i := 0; i < len(cpus); i += threads {
		core := v.core(cpus[i])
		if core == nil || len(core.threads) != threads {
			return 1
		}
		for _, cpu := range cpus[i : i+threads] {
			if v.core(cpu) != core {
				return 1
			}
		}
	}
	return threads
}

// guestSockets is the number of guest sockets: equal runs of vCPUs, each on a host socket of its own.
func (v *view) guestSockets(cpus []int) int {
	sockets, starts := make([]int, 0, 8), make([]int, 0, 8)
	for i, cpu := range cpus {
		core := v.core(cpu)
		switch {
		case core == nil:
			return 1
		case i > 0 && core.socket == sockets[len(sockets)-1]:
			continue
		case slices.Contains(sockets, core.socket):
			return 1
		}
		sockets, starts = append(sockets, core.socket), append(starts, i)
	}
	size := len(cpus) / len(sockets)
	for i, start := range starts {
		if start != i*size || len(cpus)%len(sockets) != 0 {
			return 1
		}
	}
	return len(sockets)
}
