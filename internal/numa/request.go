package numa

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// MaxVCPUs bounds one VM. QEMU's q35 machine stops at 1024 before version 8.1 raised it.
const MaxVCPUs = 1024

// maxPages bounds the list of page sizes that will do. No processor has more sizes.
const maxPages = 8

// libvirt rounds every guest cell up to 1 MiB, so a finer size would take more than was claimed; cells are cut at 2 MiB
// where that divides the size, for the guest's transparent huge pages.
const (
	fineUnit  = farm.MiB
	roundUnit = 2 * farm.MiB
)

// want is one guest cell, or a whole VM, on the way to its node.
type want struct {
	pinned, floating int // vCPUs
	memory           farm.Bytes
	sizes            []farm.Bytes // page sizes that will do and divide memory, best first; 0 stands for ordinary pages
	threads          farm.ThreadPolicy
	pieces           int // cells that it will be cut into, all on one node; at least 1
}

func (w want) vcpus() int { return w.pinned + w.floating }

// normal fills in the sums of the request's cells, and gives the cells to place: one for all of it where the plan
// decides on them. The error is of farm.CodeBadShape.
func (r *Request) normal() ([]want, error) {
	if len(r.Each) > 0 {
		if err := r.sumCells(); err != nil {
			return nil, err
		}
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	wants := r.wants()
	for i, w := range wants {
		if err := w.validate(r.pagesOf(i)); err != nil {
			return nil, err
		}
	}
	return wants, r.validateGuest()
}

func bad(hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadShape, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// sumCells fills in VCPUs and Memory, or holds them to be the sums, and holds the guest numbers to be all there once.
func (r *Request) sumCells() error {
	vcpus, memory, seen := 0, farm.Bytes(0), make([]farm.CPUSet, 0, min(len(r.Each), MaxVCPUs))
	for i, c := range r.Each {
		if i == MaxVCPUs {
			return bad("ask for fewer cells", "a VM cannot have %d cells", len(r.Each))
		}
		if c.VCPUs.Empty() || !c.Floating.Minus(c.VCPUs).Empty() {
			return bad("give every cell the vCPUs that it has", "cell %d has vCPUs %q, of which %q float", i,
				c.VCPUs, c.Floating)
		}
		if c.Memory > maxMemory {
			return tooMuch(c.Memory)
		}
		vcpus, memory, seen = vcpus+c.VCPUs.Len(), min(memory+c.Memory, maxMemory+1), append(seen, c.VCPUs)
	}
	if all := farm.Union(seen...); !all.Equal(farm.CPURange(0, vcpus)) {
		return bad("number the vCPUs of all cells from 0 on, each once", "the cells have vCPUs %q, in all %d", all,
			vcpus)
	}
	if r.VCPUs != 0 && r.VCPUs != vcpus || r.Memory != 0 && r.Memory != memory || r.Cells != 0 &&
		r.Cells != len(r.Each) {
		return bad("leave the sums out", "the %d cells have %d vCPUs and %v, not %d and %v in %d", len(r.Each), vcpus,
			memory, r.VCPUs, r.Memory, r.Cells)
	}
	r.VCPUs, r.Memory = vcpus, memory
	return nil
}

const maxMemory = farm.Bytes(1) << 62

func tooMuch(memory farm.Bytes) error {
	return bad("ask for less", "%v of memory is more than any host has", memory)
}

func (r *Request) validate() error {
	switch {
	case r.VCPUs < 1 || r.VCPUs > MaxVCPUs:
		return bad(fmt.Sprintf("ask for 1 to %d vCPUs", MaxVCPUs), "a VM cannot have %d vCPUs", r.VCPUs)
	case r.Memory == 0:
		return bad("ask for example for 2G of memory", "a VM cannot be without memory")
	case r.Memory > maxMemory:
		return tooMuch(r.Memory)
	case r.CPU != farm.Pinned && r.CPU != farm.Shared:
		return bad("take pinned or shared CPUs", "%q is not a CPU policy", r.CPU)
	case r.Emulator != farm.EmulatorBeside && r.Emulator != farm.EmulatorIsolate:
		return bad("leave it out, or isolate the emulator", "%q is not an emulator policy", r.Emulator)
	case r.CPU == farm.Shared && len(r.Each) == 0 && r.Threads != farm.PreferSiblings:
		return bad("pin the vCPUs, or leave the thread policy out", "vCPUs that share host CPUs cannot %s siblings",
			r.Threads)
	case r.Cells < 0 || r.Cells > r.VCPUs:
		return bad("ask for no more cells than vCPUs", "%d vCPUs cannot be in %d cells", r.VCPUs, r.Cells)
	case len(r.Each) == 0 && r.Cells > 1 && r.VCPUs%r.Cells != 0:
		return bad("take a number of cells that divides the vCPUs, or give the cells one by one",
			"%d vCPUs do not divide into %d equal cells", r.VCPUs, r.Cells)
	case len(r.Each) == 0 && r.Cells > 1 && r.Memory%farm.Bytes(r.Cells) != 0:
		return bad("take a number of cells that divides the memory, or give the cells one by one",
			"%v of memory does not divide into %d equal cells", r.Memory, r.Cells)
	}
	return nil
}

// validate holds the cell to have memory and threads that make sense; pages are the sizes it asked for.
func (w want) validate(pages []farm.Bytes) error {
	switch w.threads {
	case farm.PreferSiblings, farm.RequireSiblings, farm.IsolateCores:
	default:
		return bad("leave it out, or take require or isolate", "%q is not a thread policy", w.threads)
	}
	if w.memory == 0 {
		return bad("give every cell memory", "a cell cannot be without memory")
	}
	if len(pages) > maxPages {
		return bad("name the sizes that the host has", "%d page sizes are too many", len(pages))
	}
	smallest := maxMemory
	for _, size := range pages {
		if size != 0 && (bits.OnesCount64(uint64(size)) != 1 || size < 4*farm.KiB) {
			return bad("take a page size of the host, for example 2M or 1G, or none", "%v is not a page size", size)
		}
		smallest = min(smallest, max(size, pageUnit(size)))
	}
	switch {
	case len(w.sizes) > 0 && w.memory >= smallest*farm.Bytes(w.pieces):
		return nil
	case w.memory < smallest*farm.Bytes(w.pieces):
		return bad(fmt.Sprintf("ask for at least %v", smallest*farm.Bytes(w.pieces)),
			"%v of memory is less than one page of %v", w.memory, smallest)
	}
	return bad(fmt.Sprintf("ask for %v", (w.memory/smallest+1)*smallest), "%v of memory is not a multiple of %v",
		w.memory, smallest)
}

// pageUnit is what memory in pages of size must be a multiple of.
func pageUnit(size farm.Bytes) farm.Bytes {
	if size == 0 {
		return fineUnit
	}
	return size
}

func (r *Request) validateGuest() error {
	g := r.Guest
	if g == (farm.GuestTopology{}) {
		return nil
	}
	const hint = "make sockets × cores × threads equal to the number of vCPUs, or leave all three out"
	for _, n := range []int{g.Sockets, g.Cores, g.Threads} {
		if n < 1 || n > r.VCPUs {
			return bad(hint, "a guest of %d sockets × %d cores × %d threads does not have %d vCPUs", g.Sockets, g.Cores,
				g.Threads, r.VCPUs)
		}
	}
	if g.Sockets*g.Cores*g.Threads != r.VCPUs {
		return bad(hint, "a guest of %d sockets × %d cores × %d threads does not have %d vCPUs", g.Sockets, g.Cores,
			g.Threads, r.VCPUs)
	}
	if text := Cut(g, r.cellSets()); text != "" {
		return bad("give each cell the vCPUs of whole cores and sockets, in a row, or leave the guest's topology out",
			"a guest of %s does not nest with its cells: %s", shapeText(g), text)
	}
	return nil
}

// pagesOf is the page sizes that will do for cell i, never none.
func (r *Request) pagesOf(i int) []farm.Bytes {
	pages := r.Pages
	if len(r.Each) > 0 {
		pages = r.Each[i].Pages
	}
	if len(pages) == 0 {
		return []farm.Bytes{0}
	}
	return pages
}

func (r *Request) wants() []want {
	if len(r.Each) == 0 {
		cells := max(r.Cells, 1)
		w := want{pinned: r.VCPUs / cells, memory: r.Memory / farm.Bytes(cells), threads: r.Threads, pieces: 1}
		if r.CPU == farm.Shared {
			w.pinned, w.floating = 0, w.pinned
		}
		w.sizes = divisors(w.memory, r.pagesOf(0))
		return slices.Repeat([]want{w}, cells)
	}
	out := make([]want, len(r.Each))
	for i, c := range r.Each {
		w := want{floating: c.Floating.Len(), memory: c.Memory, threads: c.Threads, pieces: 1}
		w.pinned = c.VCPUs.Len() - w.floating
		if r.Contiguous {
			w.pieces = len(runs(c.VCPUs))
		}
		w.sizes = divisors(c.Memory, r.pagesOf(i))
		out[i] = w
	}
	return out
}

// divisors is the page sizes that memory is a multiple of, each once.
func divisors(memory farm.Bytes, pages []farm.Bytes) []farm.Bytes {
	out := make([]farm.Bytes, 0, min(len(pages), maxPages))
	for _, size := range pages {
		if memory%max(pageUnit(size), 1) == 0 && !slices.Contains(out, size) && len(out) < maxPages {
			out = append(out, size)
		}
	}
	return out
}

// runs cuts a set at its gaps.
func runs(s farm.CPUSet) []farm.CPUSet {
	var out []farm.CPUSet
	first, last := -1, -2
	for id := range s.All() {
		if id != last+1 {
			if first >= 0 {
				out = append(out, farm.CPURange(first, last+1))
			}
			first = id
		}
		last = id
	}
	if first < 0 {
		return nil
	}
	return append(out, farm.CPURange(first, last+1))
}
