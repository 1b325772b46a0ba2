package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// Bounds of the search for changes.
const (
	maxNetworks = 16   // other networks that are tried
	maxEnds     = 5000 // VMs whose end is tried
)

// changes finds what would admit a request that no host takes. Each is tried on the fleet before it is said. Order:
// ChangeKind, then what gives up the least of what was asked for.
func (f *Fleet) changes(r Request) []Change {
	var out []Change
	say := func(kind ChangeKind, format string, args ...any) {
		out = append(out, Change{Kind: kind, Text: fmt.Sprintf(format, args...)})
	}
	f.tuned(r, say)
	f.relabelled(r, say)
	f.ungrouped(r, say)
	f.smaller(r, say)
	f.renetworked(r, say)
	f.imported(r, say)
	f.opened(r, say)
	f.elsewhere(r, say)
	if v := f.ended(r); v != nil {
		say(ChangeEnd, "end a VM of %d CPUs and %v on host %s", v.size.CPUs, v.size.Memory, f.hosts[v.host].Name)
		out[len(out)-1].VM = v.vm
	}
	return out
}

type sayer func(kind ChangeKind, format string, args ...any)

// admits reports whether some host would take the request.
func (f *Fleet) admits(r Request) bool { return f.hostFor(r) != nil }

// hostFor is the host on which the choice would fall; nil when there is none.
func (f *Fleet) hostFor(r Request) *host {
	size := sizeOf(r.Shape)
	for _, name := range r.Cells {
		c := f.cells[name]
		if c == nil {
			continue
		}
		if refusal, _ := c.refuses(size); refusal == "" {
			if h := f.hostIn(c, r); h != nil {
				return h
			}
		}
	}
	return nil
}

// admitsIn looks at one cell's hosts, and not at whether the cell is open.
func (f *Fleet) admitsIn(c *cell, r Request) bool { return f.hostIn(c, r) != nil }

// hostIn is the host of a cell on which the choice would fall; nil when there is none.
func (f *Fleet) hostIn(c *cell, r Request) *host {
	k, err := newClass(c, r)
	if err != nil || r.Shape.Validate() != nil {
		return nil
	}
	k.follow()
	ch := chooser{fleet: f, class: k, request: &r, group: f.groups[r.Group]}
	h, _, _ := ch.choose()
	return h
}

// tuned tries other tuning of the same size, one thing at a time.
func (f *Fleet) tuned(r Request, say sayer) {
	asked := r.Shape
	try := func(s farm.Shape, format string, args ...any) {
		q := r
		if q.Shape = s; f.admits(q) {
			say(ChangeTuning, format, args...)
		}
	}
	if len(asked.Pages) > 0 && !slices.Contains(asked.Pages, 0) {
		for _, size := range []farm.Bytes{farm.GiB, 2 * farm.MiB, 0} {
			if s := asked; !slices.Contains(asked.Pages, size) {
				if s.Pages = []farm.Bytes{size}; size == 0 {
					s.Pages = nil
				}
				try(s, "%s instead of %s", pagesText(s.Pages), pagesText(asked.Pages))
			}
		}
	}
	if s := asked; s.Threads != farm.PreferSiblings {
		s.Threads = farm.PreferSiblings
		try(s, "thread policy prefer instead of %s", asked.Threads)
	}
	if s := asked; s.Emulator != farm.EmulatorBeside {
		s.Emulator = farm.EmulatorBeside
		try(s, "the emulator beside the vCPUs instead of on a CPU of its own")
	}
	if s := asked; s.Cells != 0 {
		s.Cells = 0
		try(s, "NUMA auto instead of %d cells", asked.Cells)
	}
}

func pagesText(sizes []farm.Bytes) string {
	if len(sizes) == 0 {
		return "ordinary pages"
	}
	var out []string
	for _, s := range sizes {
		out = append(out, s.String())
	}
	return "pages " + strings.Join(out, " or ")
}

// relabelled tries to leave selectors out: one of them, or all.
func (f *Fleet) relabelled(r Request, say sayer) {
	found := false
	for i, selector := range r.Needs {
		q := r
		q.Needs = slices.Delete(slices.Clone(r.Needs), i, i+1)
		if f.admits(q) {
			say(ChangeLabels, "without the label selector %s", selector)
			found = true
		}
	}
	if q := r; !found && len(r.Needs) > 1 {
		if q.Needs = nil; f.admits(q) {
			say(ChangeLabels, "without the label selectors %s", strings.Join(r.Needs, ", "))
		}
	}
}

func (f *Fleet) ungrouped(r Request, say sayer) {
	if q := r; r.Group != "" {
		if q.Group, q.Affinity = "", ""; f.admits(q) {
			say(ChangeGroup, "outside of server group %s", r.Group)
		}
	}
}

// smaller tries fewer CPUs, less memory, less scratch: each alone, and CPUs with their memory where none of them does.
// What loses the smallest share comes first.
func (f *Fleet) smaller(r Request, say sayer) {
	type offer struct {
		text string
		lost float64
	}
	var offers []offer
	s := r.Shape
	if n := f.most(r, s.CPUs, max(s.Cells, 1), withCPUs); n > 0 {
		offers = append(offers, offer{fmt.Sprintf("%d fewer CPUs", s.CPUs-n), 1 - float64(n)/float64(s.CPUs)})
	}
	step := memoryStep(s)
	if n := f.most(r, int(s.Memory/step), 1, withMemory(step)); n > 0 {
		offers = append(offers, offer{fmt.Sprintf("%v of memory instead of %v", farm.Bytes(n)*step, s.Memory),
			1 - float64(farm.Bytes(n)*step)/float64(s.Memory)})
	}
	if unit := max(s.Scratch/64/farm.MiB*farm.MiB, 16*farm.MiB); s.Scratch > 0 {
		if n := f.most(r, int(s.Scratch/unit), 1, withScratch(unit)); n >= 0 {
			offers = append(offers, offer{fmt.Sprintf("%v of scratch instead of %v", farm.Bytes(n)*unit, s.Scratch),
				1 - float64(farm.Bytes(n)*unit)/float64(s.Scratch)})
		}
	}
	if each := s.Memory / farm.Bytes(s.CPUs) / step * step; len(offers) == 0 && each > 0 {
		if n := f.most(r, s.CPUs, max(s.Cells, 1), withBoth(each)); n > 0 {
			offers = append(offers, offer{fmt.Sprintf("%d CPUs and %v instead of %d and %v", n, farm.Bytes(n)*each,
				s.CPUs, s.Memory), 1})
		}
	}
	slices.SortStableFunc(offers, func(a, b offer) int { return cmp.Compare(a.lost, b.lost) })
	for _, o := range offers {
		say(ChangeSize, "%s", o.text)
	}
}

// memoryStep is in what steps memory is tried: such as its pages and cells allow, and large ones of large VMs.
func memoryStep(s farm.Shape) farm.Bytes {
	step := 64 * farm.MiB
	if s.Memory >= 4*farm.GiB || len(s.Pages) > 0 && slices.Min(s.Pages) == farm.GiB {
		step = farm.GiB
	}
	return step * farm.Bytes(max(s.Cells, 1))
}

func withCPUs(r *Request, n int) { r.Shape.CPUs, r.Shape.Guest = n, farm.GuestTopology{} }

func withMemory(step farm.Bytes) func(*Request, int) {
	return func(r *Request, n int) { r.Shape.Memory = farm.Bytes(n) * step }
}

func withScratch(step farm.Bytes) func(*Request, int) {
	return func(r *Request, n int) { r.Shape.Scratch = farm.Bytes(n) * step }
}

func withBoth(each farm.Bytes) func(*Request, int) {
	return func(r *Request, n int) {
		withCPUs(r, n)
		r.Shape.Memory = farm.Bytes(n) * each
	}
}

// most is the largest number below now, a multiple of step, with which the request is admitted; -1 when there is none.
// What fits with more is taken to fit with less.
func (f *Fleet) most(r Request, now, step int, with func(*Request, int)) int {
	found := -1
	low, high := 0, (now-1)/step
	for low <= high {
		middle := (low + high + 1) / 2
		q := r
		if with(&q, middle*step); q.Shape.CPUs > 0 && f.admits(q) {
			found, low = middle*step, middle+1
		} else {
			high = middle - 1
		}
	}
	return found
}

func (f *Fleet) renetworked(r Request, say sayer) {
	if r.Network == "" {
		return
	}
	others := map[string]bool{}
	for _, h := range f.inOrder(r.Cells) {
		for _, n := range h.Networks {
			if n != r.Network && len(others) < maxNetworks {
				others[n] = true
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(others)) {
		q := r
		if q.Network = n; f.admits(q) {
			say(ChangeNetwork, "network %s instead of %s", n, r.Network)
		}
	}
}

// imported looks for a host that would take the VM if it had its image.
func (f *Fleet) imported(r Request, say sayer) {
	q := r
	if q.Image = ""; r.Image == "" {
		return
	}
	if h := f.hostFor(q); h != nil {
		say(ChangeImage, "image %s on host %s: `grange image import` there", r.Image, h.Name)
	}
}

// opened looks for a host that people closed and that would take the VM.
func (f *Fleet) opened(r Request, say sayer) {
	for _, h := range f.inOrder(r.Cells) {
		if !h.Closed || h.Refuses == "" {
			continue
		}
		refuses := h.Refuses
		h.Refuses = ""
		a := f.answer(r, h)
		h.Refuses = refuses
		if a.Fits {
			say(ChangeHost, "open host %s (%s)", h.Name, refuses)
			return
		}
	}
}

// elsewhere looks at cells that are closed, at their limits, or not the request's.
func (f *Fleet) elsewhere(r Request, say sayer) {
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(f.cells)),
		func(name string) bool { return slices.Contains(r.Cells, name) })
	for _, name := range slices.Concat(r.Cells, others) {
		c := f.cells[name]
		if c == nil || !c.known || slices.Contains(r.Cells, name) && c.open(r) {
			continue
		}
		if !f.admitsIn(c, r) {
			continue
		}
		refusal, _ := c.refuses(sizeOf(r.Shape))
		switch its := slices.Contains(r.Cells, name); {
		case its && refusal == CellClosed:
			say(ChangeCell, "open cell %s", name)
		case its && refusal == CellLimit:
			say(ChangeCell, "raise the limits of cell %s", name)
		case refusal == "":
			say(ChangeCell, "let project %s use cell %s", r.Project, name)
		}
	}
}

func (c *cell) open(r Request) bool {
	refusal, _ := c.refuses(sizeOf(r.Shape))
	return refusal == ""
}

// ended finds the smallest VM whose end would admit the request on its host.
func (f *Fleet) ended(r Request) *held {
	var vms []*held
	for _, h := range f.inOrder(r.Cells) {
		if refusal, _ := f.barred(r, h); refusal != "" {
			continue
		}
		for _, v := range h.vms {
			vms = append(vms, v)
		}
	}
	slices.SortFunc(vms, func(a, b *held) int {
		return cmp.Or(cmp.Compare(a.size.CPUs, b.size.CPUs), cmp.Compare(a.size.Memory, b.size.Memory),
			strings.Compare(a.vm, b.vm))
	})
	d, err := requestOf(r.Shape).Demand()
	if err != nil {
		return nil
	}
	var outline numa.Outline
	tries := 0
	for _, v := range vms {
		h := f.hosts[v.host]
		if _, free := h.outline.Threads(); h.crowded || !v.planned() || free+v.cpus.Len() < r.Shape.CPUs {
			continue
		}
		room := h.room.Give(v.plan())
		outline.Read(room)
		if _, short := outline.Estimate(&d); short != numa.ShortOfNothing {
			continue
		}
		if tries++; tries > maxEnds {
			return nil
		}
		if f.admitsWithout(r, h, v, room) {
			return v
		}
	}
	return nil
}

// admitsWithout reports whether a host would take the request if one of its VMs ended and left room.
func (f *Fleet) admitsWithout(r Request, h *host, v *held, room numa.Room) bool {
	without := *h
	without.room, without.scratch, without.vms = room, h.scratch-v.size.Scratch, maps.Clone(h.vms)
	delete(without.vms, v.vm)
	without.outline = numa.Outline{}
	without.outline.Read(room)
	if v.group != "" && v.group == r.Group {
		f.addGroup(v, -1)
		defer f.addGroup(v, 1)
	}
	return f.answer(r, &without).Fits
}
