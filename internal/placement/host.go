package placement

import (
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// host is one host with what is left of it.
type host struct {
	Host
	cell    *cell
	slot    int32            // in cell
	vms     map[string]*held // Fleet.at's
	scratch farm.Bytes       // that they hold
	booked  farm.Bandwidth   // by them
	empty   numa.Room        // without VMs of the fleet
	room    numa.Room
	outline numa.Outline // of room
	// crowded: the plans of its VMs do not fit beside each other, as after a change of its reserve. Room is
	// then not counted on and back, but made anew.
	crowded bool
}

// kind is what hosts must have in common to share an index; it is not enough.
type kind struct{ online, cores, nodes, caches int }

func kindOf(t farm.Topology) kind { return kind{t.Online.Len(), len(t.Cores), len(t.Nodes), len(t.L3)} }

// maxLike bounds how many different hosts of one kind are compared with a new one.
const maxLike = 16

// fill makes the room anew from the empty one.
func (h *host) fill() {
	h.room, h.crowded, h.scratch, h.booked = h.empty, false, 0, h.Booked
	for _, v := range h.vms {
		h.take(v)
	}
	if h.crowded {
		h.squeeze()
	}
	h.changed(true)
}

// take counts a VM's plan, or finds the host to be crowded.
func (h *host) take(v *held) {
	h.scratch += v.size.Scratch
	h.booked = h.booked.Plus(v.bandwidth)
	if h.crowded || !v.planned() {
		return
	}
	left, err := h.room.Take(v.plan())
	if err != nil {
		h.crowded = true
		return
	}
	h.room = left
}

// squeeze makes the room of a crowded host: what is left beside all plans, nothing where they have too much.
func (h *host) squeeze() {
	plans := append([]farm.Plan{}, h.Taken...)
	for _, v := range h.vms {
		plans = append(plans, v.plan())
	}
	h.room = numa.NewRoomLike(h.empty, h.empty.Topology, h.empty.Reserve, plans)
}

// restore takes room for a VM that is on the host, whether there is any or not.
func (h *host) restore(v *held) {
	if h.take(v); h.crowded {
		h.squeeze()
	}
	h.changed(false)
}

// release gives back what a VM held that is not in vms any more.
func (h *host) release(v *held) {
	if h.crowded {
		h.fill()
		return
	}
	h.scratch -= v.size.Scratch
	h.booked = h.booked.Minus(v.bandwidth)
	if v.planned() {
		h.room = h.room.Give(v.plan())
	}
}

// changed has the cell's classes look at the host again. Grew: there may be room that was not there before.
func (h *host) changed(grew bool) {
	h.outline.Read(h.room)
	h.cell.changed(h.slot, grew)
}

// request is what the host is asked for a shape.
func (h *host) request(r numa.Request) numa.Request {
	r.Allowed, r.Service = h.Topology.Online, h.Reserve.CPUs
	return r
}

// requestOf is the part of a shape that is planned on one host.
func requestOf(s farm.Shape) numa.Request {
	return numa.Request{VCPUs: s.CPUs, Memory: s.Memory, Pages: s.Pages, Guest: s.Guest, Threads: s.Threads,
		Emulator: s.Emulator, Cells: s.Cells}
}
