package placement

import (
	"github.com/grange-project/grange/internal/farm"
)

// cell is hosts with one policy.
type cell struct {
	farm.Cell
	known    bool    // it was told of; others are only named
	slots    []*host // nil where one has left
	vacant   []int32 // those slots
	used     farm.Quota
	unused   int                      // hosts that could take a VM, and have none
	members  map[string]map[int32]int // by project: slots of hosts with its VMs, and how many
	images   owners                   // by name or digest
	networks owners                   // by network
	classes  map[classKey]*class
	journal  []change // of hosts, oldest first
	dropped  int      // changes before the journal's first
}

// owners is which hosts have something, by its name. Names that no host has are not in it.
type owners map[string]*slotSet

// slotSet is slots of hosts. The nil one is empty.
type slotSet struct {
	in []bool // by slot
	n  int
}

func (s *slotSet) has(slot int32) bool { return s != nil && int(slot) < len(s.in) && s.in[slot] }

func (o owners) add(slot int32, names []string) {
	for _, name := range names {
		s := o[name]
		if s == nil {
			s = &slotSet{}
			o[name] = s
		}
		if s.has(slot) {
			continue // named twice
		}
		if more := int(slot) + 1 - len(s.in); more > 0 {
			s.in = append(s.in, make([]bool, more)...)
		}
		s.in[slot] = true
		s.n++
	}
}

func (o owners) remove(slot int32, names []string) {
	for _, name := range names {
		s := o[name]
		if !s.has(slot) {
			continue
		}
		s.in[slot] = false
		if s.n--; s.n == 0 {
			delete(o, name)
		}
	}
}

// change has classes look at a slot again.
type change struct {
	slot int32
	grew bool // there may be room that was not there before
}

func newCell(name string) *cell {
	return &cell{Cell: farm.Cell{Name: name}, members: map[string]map[int32]int{}, images: owners{}, networks: owners{},
		classes: map[classKey]*class{}}
}

// factor is how much of its memory a host may grant.
func (c *cell) factor() float64 { return factorOf(c.Cell) }

func factorOf(c farm.Cell) float64 {
	if c.Overcommit <= 0 {
		return 1
	}
	return c.Overcommit
}

func (c *cell) join(h *host) {
	if n := len(c.vacant); n > 0 {
		h.slot, c.vacant = c.vacant[n-1], c.vacant[:n-1]
		c.slots[h.slot] = h
	} else {
		h.slot = int32(len(c.slots))
		c.slots = append(c.slots, h)
	}
	for _, v := range h.vms {
		c.addProject(v.project, h.slot, 1)
	}
}

func (c *cell) leave(h *host) {
	for _, v := range h.vms {
		c.addProject(v.project, h.slot, -1)
	}
	c.slots[h.slot] = nil
	c.vacant = append(c.vacant, h.slot)
	c.changed(h.slot, true)
}

// count adds the host to the sums that follow from what it is and holds; lose takes it out, before either changes.
func (c *cell) count(h *host) { c.tally(h, 1) }

func (c *cell) lose(h *host) { c.tally(h, -1) }

func (c *cell) tally(h *host, n int) {
	if h.Refuses == "" && len(h.vms) == 0 {
		c.unused += n
	}
}

// equip enters what the host has; strip takes it out. Both are apart from tally, for this changes with the host only.
func (c *cell) equip(h *host) {
	c.images.add(h.slot, h.Images)
	c.networks.add(h.slot, h.Networks)
}

func (c *cell) strip(h *host) {
	c.images.remove(h.slot, h.Images)
	c.networks.remove(h.slot, h.Networks)
}

func (c *cell) addProject(project string, slot int32, n int) {
	slots := c.members[project]
	if slots == nil {
		slots = map[int32]int{}
		c.members[project] = slots
	}
	if slots[slot] += n; slots[slot] == 0 {
		delete(slots, slot)
	}
	if len(slots) == 0 {
		delete(c.members, project)
	}
}

func (c *cell) use(size farm.Quota, n int) {
	c.used.VMs += n * size.VMs
	c.used.CPUs += n * size.CPUs
	if n > 0 {
		c.used.Memory, c.used.Scratch = c.used.Memory+size.Memory, c.used.Scratch+size.Scratch
	} else {
		c.used.Memory, c.used.Scratch = c.used.Memory-size.Memory, c.used.Scratch-size.Scratch
	}
}

// refuses returns why the cell takes no VM of this size at all; "" when it does.
func (c *cell) refuses(size farm.Quota) (Constraint, string) {
	switch {
	case !c.known:
		return CellClosed, "no cell " + c.Name
	case c.Broker != "" && c.Broker != farm.BrokerGrange:
		return OfABatch, "VMs of cell " + c.Name + " are placed by " + c.Broker
	case c.Closed:
		return CellClosed, withReason("cell "+c.Name+" is closed to new VMs", c.Reason)
	case c.Drain.Active():
		return CellClosed, withReason("cell "+c.Name+" is being drained", c.Drain.Reason)
	}
	if what := over(c.Limits, c.used, size); what != "" {
		return CellLimit, "cell " + c.Name + " has as much as it may: " + what
	}
	return "", ""
}

// differ reports whether some hosts have an image, and some do not.
func (c *cell) differ(image string) bool {
	s := c.images[image]
	return s != nil && s.n < c.hosts()
}

// hosts is how many the cell has.
func (c *cell) hosts() int { return len(c.slots) - len(c.vacant) }

// lacks names what no host of the cell has, and the request needs: then none has to be asked. "" when some host has it.
func (c *cell) lacks(r Request) Constraint {
	switch {
	case r.Network != "" && c.networks[r.Network] == nil:
		return NoNetwork
	case r.Image != "" && c.images[r.Image] == nil:
		return NoImage
	}
	return ""
}

func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// over returns what limits would be exceeded; "" for none.
func over(limit, used, more farm.Quota) string {
	switch {
	case limit.VMs > 0 && used.VMs+more.VMs > limit.VMs:
		return "VMs"
	case limit.CPUs > 0 && used.CPUs+more.CPUs > limit.CPUs:
		return "CPUs"
	case limit.Memory > 0 && used.Memory+more.Memory > limit.Memory:
		return "memory"
	case limit.Scratch > 0 && used.Scratch+more.Scratch > limit.Scratch:
		return "scratch"
	}
	return ""
}

// changed enters a change of a host for the cell's classes. Those that were not asked for long look at every host
// again.
func (c *cell) changed(slot int32, grew bool) {
	c.journal = append(c.journal, change{slot, grew})
	if keep := 2*len(c.slots) + 256; len(c.journal) > 2*keep {
		drop := len(c.journal) - keep
		c.journal = append(c.journal[:0], c.journal[drop:]...)
		c.dropped += drop
	}
}

// written is the journal's end, counted from its first change ever.
func (c *cell) written() int { return c.dropped + len(c.journal) }
