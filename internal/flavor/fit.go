package flavor

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// Answer says whether a case's guest fits its host, and where, or why not.
type Answer struct {
	ID     string       `json:"id"`
	Fits   bool         `json:"fits"`
	Cells  []AnswerCell `json:"cells"`  // by guest cell; empty when it does not fit
	Reason string       `json:"reason"` // why not; empty when it fits
}

// AnswerCell is where one guest cell goes.
type AnswerCell struct {
	HostCell int         `json:"host_cell"`
	PageKiB  *int64      `json:"pagesize_kb"`   // null where the host reports no pages
	Pin      map[int]int `json:"pin"`           // host CPU by guest CPU, of those that are dedicated
	Reserved []int       `json:"reserved_cpus"` // held beside the pins, for QEMU's own threads
}

// Fit answers a case.
func Fit(c Case) Answer {
	refused := func(err error) Answer { return Answer{ID: c.ID, Cells: []AnswerCell{}, Reason: err.Error()} }
	for i, g := range c.Guest {
		if g.CPUPolicy == "dedicated" && len(g.Dedicated) == 0 {
			return refused(fmt.Errorf("guest cell %d has the policy dedicated, and none of its vCPUs is", i))
		}
	}
	q := newQuestion(c)
	room := q.room()
	if c.Reserved > 1 && c.reserves() {
		return q.fitReserved(room)
	}
	plan, err := numa.Plan(room, q.request(room))
	if err != nil {
		return refused(err)
	}
	return Answer{ID: c.ID, Fits: true, Cells: q.cells(plan)}
}

// fitReserved is for more than one reserved CPU. The planner knows of one; the others come from what it leaves of the
// host cell. Nova asks this of guests of one cell only.
func (q *question) fitReserved(room numa.Room) Answer {
	refused := Answer{ID: q.c.ID, Cells: []AnswerCell{},
		Reason: fmt.Sprintf("no host cell has the CPUs and memory of the guest and %d more CPUs", q.c.Reserved)}
	if len(q.c.Guest) > 1 {
		refused.Reason = "more than one reserved CPU is for guests of one cell"
		return refused
	}
	for _, n := range room.Topology.Nodes {
		here := room
		here.Free = room.Free.And(n.CPUs)
		plan, err := numa.Plan(here, q.request(here))
		if err != nil {
			continue
		}
		spare := q.spare(here, plan)
		if more := q.c.Reserved - 1; len(spare) >= more {
			cells := q.cells(plan)
			cells[0].Reserved = plan.Emulator.Or(farm.NewCPUSet(spare[:more]...)).List()
			return Answer{ID: q.c.ID, Fits: true, Cells: cells}
		}
	}
	return refused
}

// spare is what a plan leaves free: with isolate nothing of the cores that its vCPUs are on.
func (q *question) spare(room numa.Room, plan farm.Plan) []int {
	left := room.Free.Minus(plan.CPUs()).Minus(plan.Emulator)
	if !q.isolate {
		return left.List()
	}
	for _, c := range room.Topology.Cores {
		if !c.Threads.And(plan.CPUs()).Empty() {
			left = left.Minus(c.Threads)
		}
	}
	return left.List()
}

// cells puts the plan back into the case's numbers.
func (q *question) cells(plan farm.Plan) []AnswerCell {
	out := make([]AnswerCell, len(q.c.Guest))
	first := 0
	for i, g := range q.c.Guest {
		cell := plan.Cells[slices.IndexFunc(plan.Cells, func(c farm.GuestCell) bool { return c.VCPUs.Has(first) })]
		out[i] = AnswerCell{HostCell: cell.Node, PageKiB: q.pageKiB(cell), Pin: map[int]int{}, Reserved: []int{}}
		dedicated := farm.NewCPUSet(g.Dedicated...).List()
		for j, vcpu := range dedicated {
			out[i].Pin[vcpu] = plan.VCPUs[first+j].List()[0]
		}
		first += len(dedicated) + farm.NewCPUSet(g.Shared...).Len()
	}
	if q.c.reserves() {
		out[0].Reserved = plan.Emulator.List()
	}
	return out
}

// pageKiB is the size of the pages that the cell gets; nil where its host cell reports none.
func (q *question) pageKiB(cell farm.GuestCell) *int64 {
	size := int64(cell.PageSize / farm.KiB)
	if size == 0 {
		i := slices.IndexFunc(q.c.Host, func(h HostCell) bool { return h.ID == cell.Node })
		if size = q.c.Host[i].leastPage(); size == 0 {
			return nil
		}
	}
	return &size
}
