package placement

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// maxDetailed is of how many hosts Why says node by node what they lack. Of the others it says it of the whole host,
// which takes a tenth of the time.
const maxDetailed = 500

// Why explains host by host without claiming, and looks for changes that would admit the request: in a tenth of a
// second or two for ten thousand hosts. The error is of farm.CodeBadShape: no host at all could hold such a VM.
func (f *Fleet) Why(r Request) (Explanation, error) {
	d, err := requestOf(r.Shape).Demand()
	if err != nil {
		return Explanation{}, err
	}
	var e Explanation
	for i, h := range f.inOrder(r.Cells) {
		e.Each = append(e.Each, f.brief(r, h, &d, i < maxDetailed))
	}
	e.count()
	if e.Fits == 0 {
		e.Changes = f.changes(r)
	}
	return e, nil
}

// With is e with other answers of some hosts, of somebody who knows more of them.
func (e Explanation) With(better []Answer) Explanation {
	at := map[string]Answer{}
	for _, a := range better {
		at[a.Host] = a
	}
	out := Explanation{Changes: e.Changes, Each: slices.Clone(e.Each)}
	for i, a := range out.Each {
		if b, ok := at[a.Host]; ok {
			out.Each[i] = b
		}
	}
	if out.count(); out.Fits > 0 {
		out.Changes = nil
	}
	return out
}

// count sums up the answers.
func (e *Explanation) count() {
	e.Hosts = len(e.Each)
	sums := map[Constraint]*Sum{}
	for _, a := range e.Each {
		if a.Fits {
			e.Fits++
			continue
		}
		s := sums[a.Constraint]
		if s == nil {
			s = &Sum{Constraint: a.Constraint, Example: a.Name + ": " + a.Message}
			sums[a.Constraint] = s
		}
		s.Hosts++
	}
	for _, s := range sums {
		e.Sums = append(e.Sums, *s)
	}
	slices.SortFunc(e.Sums, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(b.Hosts, a.Hosts), strings.Compare(string(a.Constraint), string(b.Constraint)))
	})
}

// inOrder is all hosts, those of the request's cells first.
func (f *Fleet) inOrder(cells []string) []*host {
	rank := map[string]int{}
	for i, name := range cells {
		rank[name] = i - len(cells)
	}
	return slices.SortedFunc(maps.Values(f.hosts), func(a, b *host) int {
		return cmp.Or(cmp.Compare(rank[a.cell.Name], rank[b.cell.Name]), strings.Compare(a.cell.Name, b.cell.Name),
			strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
}

// brief is answer for one of very many hosts, of which numbers of the whole host are enough where they refuse.
func (f *Fleet) brief(r Request, h *host, d *numa.Demand, detailed bool) Answer {
	if detailed {
		return f.answer(r, h)
	}
	a := Answer{Host: h.ID, Name: h.Name, Cell: h.cell.Name}
	if a.Constraint, a.Message = f.barred(r, h); a.Constraint != "" {
		return a
	}
	_, short := h.outline.Estimate(d)
	if short == numa.ShortOfNothing || short == numa.ShortOfTogether {
		return f.answer(r, h)
	}
	a.Constraint, a.Message = constraintOf[verdictOf[short]], h.left(r.Shape)
	if perHost := h.cell.PerHost; perHost > 0 && len(h.vms) >= perHost {
		a.Constraint = HostFull
	}
	var empty numa.Outline
	empty.Read(h.empty)
	if _, short := empty.Estimate(d); short != numa.ShortOfNothing || r.Shape.DiskSpace() > h.Scratch ||
		!r.Shape.Bandwidth.Fits(h.Bandwidth, farm.Bandwidth{}) {
		a.Constraint = TooBig
	}
	return a
}

// left returns what is free on the whole host.
func (h *host) left(s farm.Shape) string {
	all, free := h.outline.Threads()
	text := fmt.Sprintf("%d of %d CPUs and %v of memory are free", free, all, h.outline.Memory(0)/farm.MiB*farm.MiB)
	for _, size := range s.Pages {
		if size != 0 {
			text += fmt.Sprintf(", and %v in pages of %v", h.outline.Memory(size), size)
		}
	}
	return text
}

// answer is one host's, in the order of the constraints.
func (f *Fleet) answer(r Request, h *host) Answer {
	a := Answer{Host: h.ID, Name: h.Name, Cell: h.cell.Name}
	if a.Constraint, a.Message = f.barred(r, h); a.Constraint != "" {
		return a
	}
	plan, err := numa.Plan(h.room, h.request(requestOf(r.Shape)))
	if a.Constraint, a.Message = lacking(r, h, err); a.Constraint != "" {
		return a
	}
	if a.Constraint, a.Message = f.parted(r, h); a.Constraint != "" {
		return a
	}
	a.Fits, a.Score = true, float64(numa.Waste(h.room, plan))
	return a
}

// barred reports whether a constraint looks at nothing that VMs hold of the host.
func (f *Fleet) barred(r Request, h *host) (Constraint, string) {
	if !slices.Contains(r.Cells, h.cell.Name) {
		return NotItsCell, "the VM may not go to cell " + h.cell.Name
	}
	if refusal, message := h.cell.refuses(sizeOf(r.Shape)); refusal != "" {
		return refusal, message
	}
	if h.Refuses != "" {
		return HostRefuses, h.Refuses
	}
	for _, selector := range r.Needs {
		if !matches(h.Labels, selector) {
			return WrongLabels, mismatch(h.Labels, selector)
		}
	}
	if r.Network != "" && !h.cell.networks[r.Network].has(h.slot) {
		return NoNetwork, "it does not carry network " + r.Network
	}
	if r.Image != "" && !h.cell.images[r.Image].has(h.slot) {
		return NoImage, "it has no image " + r.Image
	}
	return "", ""
}

// lacking returns what the host has too little of, where err is what numa.Plan said of it.
func lacking(r Request, h *host, err error) (Constraint, string) {
	said := new(farm.Error)
	if err != nil && !errors.As(err, &said) {
		return InPieces, err.Error()
	}
	perHost, scratch, bandwidth := h.cell.PerHost, r.Shape.DiskSpace(), r.Shape.Bandwidth
	switch {
	case said.Code == farm.CodeTooBig:
		return TooBig, said.Message
	case scratch > h.Scratch:
		return TooBig, fmt.Sprintf("it has %v of disk for VMs, and %v are asked for", h.Scratch, scratch)
	case !bandwidth.Fits(h.Bandwidth, farm.Bandwidth{}):
		return TooBig, fmt.Sprintf("its network carries %vbit/s each way, as far as it is known, and %vbit/s in and "+
			"%vbit/s out are asked for", h.Bandwidth, bandwidth.In, bandwidth.Out)
	case perHost > 0 && len(h.vms) >= perHost:
		return HostFull, fmt.Sprintf("it has %d VMs, and hosts of cell %s may have %d", len(h.vms),
			h.cell.Name, perHost)
	case err != nil:
		if d, bad := requestOf(r.Shape).Demand(); bad == nil {
			_, short := h.outline.Estimate(&d)
			return cmp.Or(constraintOf[verdictOf[short]], InPieces), said.Message
		}
		return InPieces, said.Message
	case scratch > 0 && h.scratch+scratch > h.Scratch:
		return NoScratch, fmt.Sprintf("%v of its %v of disk for VMs are taken", h.scratch, h.Scratch)
	case !bandwidth.Fits(h.Bandwidth, h.booked):
		return NoBandwidth, fmt.Sprintf("%vbit/s in and %vbit/s out of its %vbit/s are booked", h.booked.In,
			h.booked.Out, h.Bandwidth)
	}
	return "", ""
}

// parted reports whether a constraint is about this VM alone.
func (f *Fleet) parted(r Request, h *host) (Constraint, string) {
	group := f.groups[r.Group]
	switch {
	case len(group) > 0 && r.Affinity == farm.Together && group[h.ID] == 0:
		return GroupRule, "the VMs of group " + r.Group + " are elsewhere, and are to be together"
	case r.Affinity == farm.Apart && group[h.ID] > 0:
		return GroupRule, "a VM of group " + r.Group + " is here, and they are to be apart"
	case slices.Contains(r.Avoid, h.ID):
		return Refused, "it refused this VM lately"
	}
	return "", ""
}
