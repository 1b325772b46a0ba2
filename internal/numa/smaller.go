package numa

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Smaller returns the request for the largest VM of the same kind that fits: with most vCPUs, and as much memory for
// each, rounded down to the smallest page size that fits. Cells stay as many, and equal. false where no such VM fits,
// or where the request's cells are not equal.
func Smaller(room Room, req Request) (Request, bool) {
	cells := max(len(req.Each), req.Cells, 1)
	if !equalCells(req.Each) {
		return Request{}, false
	}
	most, free, roundings := min(req.VCPUs-1, room.mostVCPUs(req)), room.mostMemory(req), req.roundings()
	for n := most / cells * cells; n >= cells; n -= cells {
		for _, unit := range roundings {
			memory := scaled(req.Memory, n, req.VCPUs) / (unit * farm.Bytes(cells)) * (unit * farm.Bytes(cells))
			if memory < farm.MinMemory || memory > free {
				continue
			}
			if small := req.resized(n, memory); small.fits(room) {
				return small, true
			}
		}
	}
	return Request{}, false
}

// mostVCPUs returns a number of vCPUs that no VM of the request's kind exceeds.
func (r Room) mostVCPUs(req Request) int {
	sum := r.Free.Common(req.Allowed)
	if req.allPinned() {
		return sum
	}
	for _, n := range r.Nodes {
		sum += max(n.Shared.VCPUs, 0)
	}
	return sum
}

// mostMemory returns how much memory all nodes have in the page sizes of the request.
func (r Room) mostMemory(req Request) farm.Bytes {
	var sum farm.Bytes
	for _, n := range r.Nodes {
		for _, size := range req.pagesOf(0) {
			have := n.Memory + n.Shared.Memory
			if size != 0 {
				have = farm.Bytes(max(n.Pages[size], 0)) * size
			}
			sum = min(sum+min(have, maxMemory), maxMemory)
		}
	}
	return sum
}

// scaled is memory × n ÷ of, rounded down.
func scaled(memory farm.Bytes, n, of int) farm.Bytes {
	whole, part := farm.Bytes(of), farm.Bytes(n)
	return memory/whole*part + memory%whole*part/whole
}

func equalCells(each []CellRequest) bool {
	return !slices.ContainsFunc(each, func(c CellRequest) bool {
		return c.VCPUs.Len() != each[0].VCPUs.Len() || c.Floating.Len() != each[0].Floating.Len() ||
			c.Memory != each[0].Memory || !slices.Equal(c.Pages, each[0].Pages)
	})
}

func (r Request) allPinned() bool {
	floats := func(c CellRequest) bool { return !c.Floating.Empty() }
	return (len(r.Each) > 0 || r.CPU != farm.Shared) && !slices.ContainsFunc(r.Each, floats)
}

// roundings are the units that the memory of a cell may be rounded down to, the smallest first.
func (r Request) roundings() []farm.Bytes {
	var out []farm.Bytes
	for _, size := range r.pagesOf(0) {
		out = append(out, max(size, roundUnit))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// resized is the request with other numbers of vCPUs and memory, shared by its cells, and no guest topology.
func (r Request) resized(vcpus int, memory farm.Bytes) Request {
	r.VCPUs, r.Memory, r.Guest = vcpus, memory, farm.GuestTopology{}
	if len(r.Each) == 0 {
		return r
	}
	each := make([]CellRequest, len(r.Each))
	per := vcpus / len(each)
	var stay []int // vCPUs of the larger VM
	for _, c := range r.Each {
		stay = append(stay, c.VCPUs.List()[:per]...)
	}
	slices.Sort(stay)
	for i, c := range r.Each {
		own := farm.NewCPUSet(c.VCPUs.List()[:per]...)
		each[i] = c
		each[i].VCPUs, each[i].Floating = renumbered(own, stay), renumbered(own.And(c.Floating), stay)
		each[i].Memory = memory / farm.Bytes(len(each))
	}
	r.Each = each
	return r
}

// renumbered replaces each vCPU by its position in all.
func renumbered(set farm.CPUSet, all []int) farm.CPUSet {
	var out []int
	for id := range set.All() {
		out = append(out, slices.Index(all, id))
	}
	return farm.NewCPUSet(out...)
}

// fits reports whether the room has a place for the request.
func (r Request) fits(room Room) bool {
	wants, err := r.normal()
	if err != nil {
		return false
	}
	_, ok := newView(room, &r, wants).layout()
	return ok
}
