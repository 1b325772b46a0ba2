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

// Bounds of one choice. More would find a better place by little: scores are good guesses, and what is learned of a
// host is kept.
const (
	maxCandidates = 12 // hosts that are compared by their scores
	maxPlans      = 4  // of them planned, as long as one fits
)

// Claim finds the best host and takes the room there in one step; farm.NoCapacity when there is none.
//
// The cells are tried in order. In a cell the first of these that has a place: hosts with VMs of a group that is to be
// together; hosts with VMs of the project, where the cell groups by that; any host that leaves the cell its whole ones,
// and does not bring VMs of a group together that are to be apart where possible; any. Among those, the least cost
// (numa.Waste) comes first, or the emptiest host where the cell spreads; of hosts that are equal in that, one that has
// the image. A place is a whole plan: threads, memory and pages are claimed at once.
func (f *Fleet) Claim(r Request) (Placed, error) {
	size := sizeOf(r.Shape)
	for _, name := range r.Cells {
		c := f.cells[name]
		if c == nil {
			continue
		}
		if refusal, _ := c.refuses(size); refusal != "" || c.lacks(r) != "" {
			continue
		}
		k, err := f.class(c, r)
		if err != nil {
			return Placed{}, err
		}
		ch := chooser{fleet: f, class: k, request: &r, group: f.groups[r.Group]}
		if h, plan, ok := ch.choose(); ok {
			return f.claim(r, size, h, plan)
		}
	}
	return Placed{}, f.refusal(r, size)
}

func sizeOf(s farm.Shape) farm.Quota {
	return s.Quota()
}

func (f *Fleet) claim(r Request, size farm.Quota, h *host, plan farm.Plan) (Placed, error) {
	left, err := h.room.Take(plan)
	if err != nil {
		return Placed{}, err
	}
	f.Release(r.VM)
	p := Placed{VM: r.VM, Project: r.Project, Host: h.ID, Cell: h.cell.Name, Group: r.Group, Size: size,
		Bandwidth: r.Shape.Bandwidth, Plan: plan}
	f.enter(hold(p), h)
	h.room, h.scratch, h.booked = left, h.scratch+size.Scratch, h.booked.Plus(p.Bandwidth)
	h.changed(false)
	return p, nil
}

// Resize claims another size for a VM on its own host, in one step: what it has counts as free. Without room there it
// keeps what it has.
func (f *Fleet) Resize(vm string, s farm.Shape) (Placed, error) {
	v := f.vms[vm]
	if v == nil || f.hosts[v.host] == nil {
		return Placed{}, &farm.Error{Kind: farm.Conflict, Code: CodeNoPlace,
			Message: "the VM has no host that could be asked", Hint: "wait until it has one"}
	}
	h, was := f.hosts[v.host], v.placed()
	f.Release(vm)
	r := Request{VM: vm, Project: v.project, Shape: s, Cells: []string{h.cell.Name}, Group: v.group}
	plan, err := f.resized(r, h, was.Bandwidth)
	if err != nil {
		f.Restore(was)
		return Placed{}, err
	}
	return f.claim(r, sizeOf(s), h, plan)
}

// resized plans for a VM on a host that it is on already: neither cell nor host being closed keeps it from another
// size, and the bandwidth that it has is not asked for again.
func (f *Fleet) resized(r Request, h *host, has farm.Bandwidth) (farm.Plan, error) {
	if what := over(h.cell.Limits, h.cell.used, sizeOf(r.Shape)); what != "" {
		return farm.Plan{}, &farm.Error{Kind: farm.NoCapacity, Code: CodeNoPlace,
			Message: "cell " + h.cell.Name + " has as much as it may: " + what,
			Hint:    "ask for less, or ask the cell's operators for more"}
	}
	plan, err := numa.Plan(h.room, h.request(requestOf(r.Shape)))
	r.Shape.Bandwidth = r.Shape.Bandwidth.Beyond(has)
	if refused, message := lacking(r, h, err); refused != "" && refused != HostFull {
		return farm.Plan{}, &farm.Error{Kind: farm.NoCapacity, Code: CodeNoPlace,
			Message: "host " + h.Name + " has no room for it: " + message,
			Hint:    "ask for less, or make another VM and delete this one"}
	}
	return plan, err
}

// chooser is one choice in one cell.
type chooser struct {
	fleet   *Fleet
	class   *class
	request *Request
	group   map[string]int // VMs of the request's group on each host
	whole   bool           // hosts without VMs are left alone
	apart   bool           // so are hosts with VMs of the group
}

func (ch *chooser) choose() (*host, farm.Plan, bool) {
	c, r := ch.class.cell, ch.request
	if len(ch.group) > 0 && (r.Affinity == farm.Together || r.Affinity == farm.SoftTogether) {
		if h, plan, ok := ch.among(maps.Keys(ch.group)); ok || r.Affinity == farm.Together {
			return h, plan, ok
		}
	}
	ch.apart = len(ch.group) > 0 && (r.Affinity == farm.Apart || r.Affinity == farm.SoftApart)
	if slots := c.members[r.Project]; c.Packing == farm.Group && len(slots) > 0 {
		if h, plan, ok := ch.inSlots(maps.Keys(slots)); ok {
			return h, plan, true
		}
	}
	if c.KeepWhole > 0 && c.unused <= c.KeepWhole {
		ch.whole = true
		if h, plan, ok := ch.anywhere(); ok {
			return h, plan, true
		}
		ch.whole = false
	}
	h, plan, ok := ch.anywhere()
	if !ok && ch.apart && r.Affinity == farm.SoftApart {
		ch.apart = false
		return ch.leastTogether()
	}
	return h, plan, ok
}

// accept reports whether the choice may fall on a host, beside what their class says.
func (ch *chooser) accept(h *host) bool {
	return !(ch.whole && len(h.vms) == 0) && !(ch.apart && ch.group[h.ID] > 0) &&
		(len(ch.request.Avoid) == 0 || !slices.Contains(ch.request.Avoid, h.ID))
}

// anywhere chooses among all hosts of the class.
func (ch *chooser) anywhere() (*host, farm.Plan, bool) {
	var buffer [maxCandidates]int32
	for { // refused hosts leave the class, so that each round has others
		slots := ch.class.first(maxCandidates, ch.accept, buffer[:0])
		if h, plan, ok := ch.best(slots); ok || len(slots) == 0 {
			return h, plan, ok
		}
	}
}

// among chooses among hosts by ID, those of other cells left out.
func (ch *chooser) among(ids func(yield func(string) bool)) (*host, farm.Plan, bool) {
	return ch.inSlots(func(yield func(int32) bool) {
		for id := range ids {
			if h := ch.fleet.hosts[id]; h != nil && h.cell == ch.class.cell && !yield(h.slot) {
				return
			}
		}
	})
}

// inSlots chooses among some slots of the cell.
func (ch *chooser) inSlots(slots func(yield func(int32) bool)) (*host, farm.Plan, bool) {
	k := ch.class
	var found []int32
	for slot := range slots {
		if k.answers[slot].verdict == fits && ch.accept(k.cell.slots[slot]) {
			found = append(found, slot)
		}
	}
	slices.SortFunc(found, k.compare)
	return ch.best(found)
}

// leastTogether is for a group that is to be apart, and cannot be any more: the hosts with the fewest of its VMs come
// first.
func (ch *chooser) leastTogether() (*host, farm.Plan, bool) {
	by := map[int][]string{}
	for id, n := range ch.group {
		by[n] = append(by[n], id)
	}
	for _, n := range slices.Sorted(maps.Keys(by)) {
		if h, plan, ok := ch.among(slices.Values(by[n])); ok {
			return h, plan, true
		}
	}
	return nil, farm.Plan{}, false
}

// best plans on slots in order of their score, and takes the one whose plan costs least. A host that refuses leaves the
// class until it has more room. Where VMs are spread, the first plan is the best.
func (ch *chooser) best(slots []int32) (at *host, plan farm.Plan, ok bool) {
	k := ch.class
	least, plans := 0.0, 0
	for _, slot := range slots {
		a := k.answers[slot]
		if ok && (a.score >= least || plans >= maxPlans || k.cell.Packing == farm.Spread) {
			break
		}
		h := k.cell.slots[slot]
		p, err := numa.Plan(h.room, h.request(k.request))
		plans++
		if err != nil {
			k.put(slot, answer{verdict: inPieces})
			continue
		}
		if k.cell.Packing != farm.Spread && !a.exact {
			a.score, a.exact = float64(numa.Waste(h.room, p)), true
			k.put(slot, a)
		}
		if !ok || a.score < least {
			at, plan, least, ok = h, p, a.score, true
		}
	}
	return at, plan, ok
}

// refusal reports why no host took the request. It names what refuses most hosts first, without numbers: a text that
// changes with every host would have to be written again and again. Why has the numbers.
func (f *Fleet) refusal(r Request, size farm.Quota) error {
	counts, lacking := map[Constraint]int{}, map[Constraint][]string{} // hosts, and cells of which no host has it
	for _, name := range r.Cells {
		c := f.cells[name]
		if c == nil {
			counts[CellClosed]++
			continue
		}
		if refusal, _ := c.refuses(size); refusal != "" {
			counts[refusal] += max(c.hosts(), 1)
			continue
		}
		if missing := c.lacks(r); missing != "" && c.hosts() > 0 {
			counts[missing] += c.hosts()
			lacking[missing] = append(lacking[missing], name)
			continue
		}
		if err := f.countIn(c, r, counts); err != nil {
			return err
		}
	}
	var said []string
	for _, c := range slices.SortedFunc(maps.Keys(counts), func(a, b Constraint) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(string(a), string(b)))
	}) {
		if cells := lacking[c]; len(cells) > 0 {
			said = append(said, nobody(c, cells, r))
		} else {
			said = append(said, phrases[c])
		}
	}
	if len(said) == 0 {
		said = []string{"no host"}
	}
	return &farm.Error{Kind: farm.NoCapacity, Code: CodeNoPlace,
		Message: "no host takes the VM now: " + strings.Join(said, "; "),
		Hint:    "`grange why` shows it host by host, and what would change it"}
}

// countIn adds how many hosts of a cell each constraint refuses.
func (f *Fleet) countIn(c *cell, r Request, counts map[Constraint]int) error {
	k, err := f.class(c, r)
	if err != nil {
		return err
	}
	for v, n := range k.counts {
		if n > 0 && constraintOf[v] != "" {
			counts[constraintOf[v]] += n
		}
	}
	if n := k.counts[fits]; n > 0 && r.Group != "" {
		counts[GroupRule] += n
	} else if n > 0 {
		counts[Refused] += n
	}
	return nil
}

// nobody says of what no host of some cells has, with what makes it right.
func nobody(c Constraint, cells []string, r Request) string {
	if c == NoNetwork {
		return fmt.Sprintf("no host of %s carries network %s", cellsText(cells), r.Network)
	}
	return fmt.Sprintf("no host of %s has image %s: `grange image import` on a host brings it",
		cellsText(cells), r.Image)
}

func cellsText(names []string) string {
	if len(names) == 1 {
		return "cell " + names[0]
	}
	return "cells " + strings.Join(names, ", ")
}

// phrases say what refused, of several hosts.
var phrases = map[Constraint]string{
	OfABatch: "a batch system places a cell's VMs", CellClosed: "a cell is closed",
	CellLimit: "a cell has as much as it may", HostRefuses: "hosts are closed, draining, silent or short of something",
	WrongLabels: "hosts have other labels", NoNetwork: "hosts do not carry the network",
	NoImage: "hosts do not have the image", TooBig: "hosts are too small",
	HostFull: "hosts have as many VMs as they may",
	NoCPUs:   "too few free CPUs", NoMemory: "too little free memory", NoPages: "too few free huge pages",
	NoScratch: "too little disk", NoBandwidth: "too little free bandwidth",
	InPieces: "enough is free, and not side by side", GroupRule: "the rule of its server group",
	Refused: "hosts refused it lately",
}
