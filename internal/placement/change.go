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

// trials tries what would admit a request that no host takes.
type trials struct {
	fleet   *Fleet
	request Request
	found   []Change
}

// changes finds what would admit a request that no host takes. Each is tried on the fleet before it is said. Order:
// ChangeKind, then what gives up the least of what was asked for.
func (f *Fleet) changes(r Request) []Change {
	t := &trials{fleet: f, request: r}
	t.tuned()
	t.relabelled()
	t.ungrouped()
	t.smaller()
	t.renetworked()
	t.imported()
	t.opened()
	t.elsewhere()
	if v := t.ended(); v != nil {
		t.say(ChangeEnd, "end a VM of %d CPUs and %v on host %s", v.size.CPUs, v.size.Memory, f.hosts[v.host].Name)
		t.found[len(t.found)-1].VM = v.vm
	}
	return t.found
}

func (t *trials) say(kind ChangeKind, format string, args ...any) {
	t.found = append(t.found, Change{Kind: kind, Text: fmt.Sprintf(format, args...)})
}

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
func (t *trials) tuned() {
	asked := t.request.Shape
	try := func(s farm.Shape, format string, args ...any) {
		q := t.request
		if q.Shape = s; t.fleet.admits(q) {
			t.say(ChangeTuning, format, args...)
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
func (t *trials) relabelled() {
	found := false
	for i, selector := range t.request.Needs {
		q := t.request
		q.Needs = slices.Delete(slices.Clone(t.request.Needs), i, i+1)
		if t.fleet.admits(q) {
			t.say(ChangeLabels, "without the label selector %s", selector)
			found = true
		}
	}
	if q := t.request; !found && len(t.request.Needs) > 1 {
		if q.Needs = nil; t.fleet.admits(q) {
			t.say(ChangeLabels, "without the label selectors %s", strings.Join(t.request.Needs, ", "))
		}
	}
}

func (t *trials) ungrouped() {
	if q := t.request; t.request.Group != "" {
		if q.Group, q.Affinity = "", ""; t.fleet.admits(q) {
			t.say(ChangeGroup, "outside of server group %s", t.request.Group)
		}
	}
}

// smaller tries fewer CPUs, less memory, less scratch: each alone, and CPUs with their memory where none of them does.
// The offer that loses the smallest share comes first.
func (t *trials) smaller() {
	type offer struct {
		text string
		lost float64
	}
	var offers []offer
	s := t.request.Shape
	if n := t.most(s.CPUs, max(s.Cells, 1), withCPUs); n > 0 {
		offers = append(offers, offer{fmt.Sprintf("%d fewer CPUs", s.CPUs-n), 1 - float64(n)/float64(s.CPUs)})
	}
	step := memoryStep(s)
	if n := t.most(int(s.Memory/step), 1, withMemory(step)); n > 0 {
		offers = append(offers, offer{fmt.Sprintf("%v of memory instead of %v", farm.Bytes(n)*step, s.Memory),
			1 - float64(farm.Bytes(n)*step)/float64(s.Memory)})
	}
	if unit := max(s.Scratch/64/farm.MiB*farm.MiB, 16*farm.MiB); s.Scratch > 0 {
		if n := t.most(int(s.Scratch/unit), 1, withScratch(unit)); n >= 0 {
			offers = append(offers, offer{fmt.Sprintf("%v of scratch instead of %v", farm.Bytes(n)*unit, s.Scratch),
				1 - float64(farm.Bytes(n)*unit)/float64(s.Scratch)})
		}
	}
	if each := s.Memory / farm.Bytes(s.CPUs) / step * step; len(offers) == 0 && each > 0 {
		if n := t.most(s.CPUs, max(s.Cells, 1), withBoth(each)); n > 0 {
			offers = append(offers, offer{fmt.Sprintf("%d CPUs and %v instead of %d and %v", n, farm.Bytes(n)*each,
				s.CPUs, s.Memory), 1})
		}
	}
	slices.SortStableFunc(offers, func(a, b offer) int { return cmp.Compare(a.lost, b.lost) })
	for _, o := range offers {
		t.say(ChangeSize, "%s", o.text)
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
// It assumes that a request which fits with more also fits with less.
func (t *trials) most(now, step int, with func(*Request, int)) int {
	found := -1
	low, high := 0, (now-1)/step
	for low <= high {
		middle := (low + high + 1) / 2
		q := t.request
		if with(&q, middle*step); q.Shape.CPUs > 0 && t.fleet.admits(q) {
			found, low = middle*step, middle+1
		} else {
			high = middle - 1
		}
	}
	return found
}

func (t *trials) renetworked() {
	if t.request.Network == "" {
		return
	}
	others := map[string]bool{}
	for _, h := range t.fleet.inOrder(t.request.Cells) {
		for _, n := range h.Networks {
			if n != t.request.Network && len(others) < maxNetworks {
				others[n] = true
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(others)) {
		q := t.request
		if q.Network = n; t.fleet.admits(q) {
			t.say(ChangeNetwork, "network %s instead of %s", n, t.request.Network)
		}
	}
}

// imported looks for a host that would take the VM if it had its image.
func (t *trials) imported() {
	q := t.request
	if q.Image = ""; t.request.Image == "" {
		return
	}
	if h := t.fleet.hostFor(q); h != nil {
		t.say(ChangeImage, "image %s on host %s: `grange image import` there", t.request.Image, h.Name)
	}
}

// opened looks for a host that people closed and that would take the VM.
func (t *trials) opened() {
	for _, h := range t.fleet.inOrder(t.request.Cells) {
		if !h.Closed || h.Refuses == "" {
			continue
		}
		refuses := h.Refuses
		h.Refuses = ""
		a := t.fleet.answer(t.request, h)
		h.Refuses = refuses
		if a.Fits {
			t.say(ChangeHost, "open host %s (%s)", h.Name, refuses)
			return
		}
	}
}

// elsewhere looks at cells that are closed, at their limits, or not the request's.
func (t *trials) elsewhere() {
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(t.fleet.cells)),
		func(name string) bool { return slices.Contains(t.request.Cells, name) })
	for _, name := range slices.Concat(t.request.Cells, others) {
		c := t.fleet.cells[name]
		if c == nil || !c.known || slices.Contains(t.request.Cells, name) && c.open(t.request) {
			continue
		}
		if !t.fleet.admitsIn(c, t.request) {
			continue
		}
		refusal, _ := c.refuses(sizeOf(t.request.Shape))
		switch its := slices.Contains(t.request.Cells, name); {
		case its && refusal == CellClosed:
			t.say(ChangeCell, "open cell %s", name)
		case its && refusal == CellLimit:
			t.say(ChangeCell, "raise the limits of cell %s", name)
		case refusal == "":
			t.say(ChangeCell, "let project %s use cell %s", t.request.Project, name)
		}
	}
}

func (c *cell) open(r Request) bool {
	refusal, _ := c.refuses(sizeOf(r.Shape))
	return refusal == ""
}

// ended finds the smallest VM whose end would admit the request on its host.
func (t *trials) ended() *held {
	var vms []*held
	for _, h := range t.fleet.inOrder(t.request.Cells) {
		if refusal, _ := t.fleet.barred(t.request, h); refusal != "" {
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
	d, err := requestOf(t.request.Shape).Demand()
	if err != nil {
		return nil
	}
	var outline numa.Outline
	tries := 0
	for _, v := range vms {
		h := t.fleet.hosts[v.host]
		if _, free := h.outline.Threads(); h.crowded || !v.planned() || free+v.cpus.Len() < t.request.Shape.CPUs {
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
		if t.admitsWithout(h, v, room) {
			return v
		}
	}
	return nil
}

// admitsWithout reports whether a host would take the request if one of its VMs ended and left room.
func (t *trials) admitsWithout(h *host, v *held, room numa.Room) bool {
	without := *h
	without.room, without.scratch, without.vms = room, h.scratch-v.size.Scratch, maps.Clone(h.vms)
	without.booked = h.booked.Minus(v.bandwidth)
	delete(without.vms, v.vm)
	without.outline = numa.Outline{}
	without.outline.Read(room)
	if v.group != "" && v.group == t.request.Group {
		t.fleet.groups.add(v, -1)
		defer t.fleet.groups.add(v, 1)
	}
	return t.fleet.answer(t.request, &without).Fits
}
