package numa

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Cut returns how the cells of a guest cut through its cores or sockets; "" where each core lies in one cell, and
// sockets and cells lie within each other.
func Cut(g farm.GuestTopology, cells []farm.CPUSet) string {
	if len(cells) < 2 {
		return ""
	}
	vcpus := g.Sockets * g.Cores * g.Threads
	for i, core := range inRow(vcpus, g.Threads) {
		for id, cell := range cells {
			if both := cell.Common(core); both > 0 && both < core.Len() {
				return fmt.Sprintf("cell %d (vCPUs %v) holds a part of core %d (vCPUs %v)", id, cell, i, core)
			}
		}
	}
	sockets := inRow(vcpus, g.Cores*g.Threads)
	for id, cell := range cells {
		var crossed []string
		for i, socket := range sockets {
			if both := cell.Common(socket); both > 0 && both < socket.Len() && both < cell.Len() {
				crossed = append(crossed, fmt.Sprint(i))
			}
		}
		if len(crossed) > 0 {
			return fmt.Sprintf("cell %d (vCPUs %v) holds parts of the guest's sockets, of %s each: %s", id, cell,
				plural(sockets[0].Len(), "vCPU"), strings.Join(crossed, ", "))
		}
	}
	return ""
}

// cellSets returns the vCPUs of each cell that the request fixes; nil where the plan decides on cells.
func (r *Request) cellSets() []farm.CPUSet {
	var out []farm.CPUSet
	for _, c := range r.Each {
		out = append(out, c.VCPUs)
	}
	if len(r.Each) == 0 && r.Cells > 1 {
		out = inRow(r.VCPUs, r.VCPUs/r.Cells)
	}
	return out
}

// nests reports whether the cells of a layout nest with the guest topology that the request wants.
func (v *view) nests(l layout) bool { return v.cut(l, v.req.Guest) == "" }

// cut returns how the cells of a layout cut through a guest topology; "" where the topology is open.
func (v *view) cut(l layout, g farm.GuestTopology) string {
	if g == (farm.GuestTopology{}) {
		return ""
	}
	var cells []farm.CPUSet
	for _, c := range v.numbered(v.ordered(slices.Clone(l))) {
		cells = append(cells, c.VCPUs)
	}
	return Cut(g, cells)
}

// threadsRefused refuses a guest core with more threads than a core of the host has.
func (v *view) threadsRefused(room Room) error {
	g := v.req.Guest
	if g.Threads <= v.smt || len(room.Topology.Cores) == 0 {
		return nil
	}
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
		Message: fmt.Sprintf("this host can never hold a guest of %s: its cores have %s", shapeText(g),
			plural(v.smt, "thread")),
		Hint: "ask for fewer threads a core and for more cores, or leave the guest's topology out"}
}

// cutText says how the cells that the room allows would cut the guest topology; "" where something else is short.
func (v refusal) cutText(room Room) string {
	if v.req.Guest == (farm.GuestTopology{}) {
		return ""
	}
	free := *v.req
	free.Guest = farm.GuestTopology{}
	l, ok := newView(room, &free, v.wants).layout()
	if !ok {
		return ""
	}
	return fmt.Sprintf("the guest is to have %s, and of the cells that the free CPUs allow, %s", shapeText(v.req.Guest),
		v.cut(l, v.req.Guest))
}
