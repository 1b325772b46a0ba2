package numa

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Repack looks at every choice of up to maxMoved VMs, but at no more than maxChoices of them: all, on a host with 28
// VMs.
const (
	maxMoved   = 3
	maxChoices = 4000
)

// Running is a VM that a host has.
type Running struct {
	Name    string
	Plan    farm.Plan
	Request Request // what it asked for
	Fixed   bool    // it must stay where it is, as with a device of the host in it
}

// Move is one VM that goes to other threads and nodes of the same host. What its guest sees stays as it is.
type Move struct {
	Name     string
	From, To farm.Plan
	Memory   farm.Bytes // that changes its node
}

// Repack proposes the moves that make room for want on a host that has it only in pieces: those with the least memory
// to copy, and of these the fewest. room is what the running VMs leave. The moves are to be made in the given order;
// each takes only what is free by then, or the VM's own. There are none when want fits already. It is a bounded search:
// of up to 3 VMs, among 4000 choices.
//
// Errors are Plan's; farm.CodeNoRoom where no such moves help.
func Repack(room Room, running []Running, want Request) ([]Move, error) {
	_, err := Plan(room, want)
	if err == nil {
		return nil, nil
	}
	if e := new(farm.Error); !errors.As(err, &e) || e.Code != farm.CodeNoRoom {
		return nil, err
	}
	s := repacker{room: room, want: want}
	for _, r := range running {
		if !r.Fixed {
			s.running = append(s.running, r)
		}
	}
	slices.SortStableFunc(s.running, func(a, b Running) int { return cmp.Compare(a.Plan.Memory(), b.Plan.Memory()) })
	for n := 1; n <= min(maxMoved, len(s.running)); n++ {
		s.choose(nil, 0, n)
	}
	if s.best == nil {
		return nil, &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Message: fmt.Sprintf("%v; and moving up to %s within the host does not make room", err,
				plural(maxMoved, "VM")), Hint: "wait until a VM ends here, ask for less, or try another host"}
	}
	return s.best, nil
}

type repacker struct {
	room    Room
	want    Request
	running []Running // those that may move
	tried   int
	best    []Move
	cost    farm.Bytes
}

// choose tries all choices of n more VMs, from first on.
func (s *repacker) choose(chosen []Running, first, n int) {
	if n == 0 {
		if s.tried++; s.tried <= maxChoices {
			s.try(chosen)
		}
		return
	}
	for i := first; i <= len(s.running)-n && s.tried < maxChoices && !(s.best != nil && s.cost == 0); i++ {
		s.choose(append(slices.Clip(chosen), s.running[i]), i+1, n-1)
	}
}

// try plans want and the chosen VMs on the room that is there without them: want first or last, and the VMs in either
// order.
func (s *repacker) try(chosen []Running) {
	without := s.room
	for _, r := range chosen {
		without = without.Give(r.Plan)
	}
	if _, err := Plan(without, s.want); err != nil {
		return
	}
	backwards := slices.Clone(chosen)
	slices.Reverse(backwards)
	for _, order := range [][]Running{backwards, chosen} {
		for _, wantFirst := range []bool{true, false} {
			if moves, ok := s.replan(without, order, wantFirst); ok {
				s.consider(moves)
			}
		}
		if len(chosen) == 1 {
			return
		}
	}
}

func (s *repacker) replan(room Room, order []Running, wantFirst bool) ([]Move, bool) {
	place := func(req Request) bool {
		p, err := Plan(room, req)
		if err == nil {
			room, err = room.Take(p)
		}
		return err == nil
	}
	if wantFirst && !place(s.want) {
		return nil, false
	}
	var moves []Move
	for _, r := range order {
		m, ok := r.move(room)
		if !ok {
			return nil, false
		}
		var err error
		if room, err = room.Take(m.To); err != nil {
			return nil, false
		}
		if !m.stays() {
			moves = append(moves, m)
		}
	}
	return moves, wantFirst || place(s.want)
}

// consider keeps the moves if they are better than the best so far and can be made one after the other.
func (s *repacker) consider(moves []Move) {
	var cost farm.Bytes
	for _, m := range moves {
		cost += m.Memory
	}
	if s.best != nil && cmp.Or(cmp.Compare(cost, s.cost), cmp.Compare(len(moves), len(s.best))) >= 0 {
		return
	}
	ordered, after := inOrder(s.room, moves)
	if len(ordered) == 0 {
		return
	}
	if _, err := Plan(after, s.want); err == nil {
		s.best, s.cost = ordered, cost
	}
}

// inOrder finds an order in which each move has room when its turn comes, and gives the room after them; nil when there
// is none.
func inOrder(room Room, moves []Move) ([]Move, Room) {
	if len(moves) == 0 {
		return []Move{}, room
	}
	for i, m := range moves {
		next, err := room.Give(m.From).Take(m.To)
		if err != nil {
			continue
		}
		rest := append(slices.Clone(moves[:i]), moves[i+1:]...)
		if ordered, after := inOrder(next, rest); ordered != nil {
			return append([]Move{m}, ordered...), after
		}
	}
	return nil, Room{}
}

// move plans the VM anew, on its own nodes if it can, for then no memory moves. Its guest must not see a difference.
func (r Running) move(room Room) (Move, bool) {
	req := r.same()
	near := req
	near.Allowed = req.Allowed.And(room.around(r.Plan))
	for _, req := range []Request{near, req} {
		p, err := Plan(room, req)
		if err != nil || !stillTrue(r.Plan.Guest, p.Guest) {
			continue
		}
		p.Guest = r.Plan.Guest
		m := Move{Name: r.Name, From: r.Plan, To: p}
		for i, c := range p.Cells {
			if c.Node != r.Plan.Cells[i].Node {
				m.Memory += c.Memory
			}
		}
		return m, true
	}
	return Move{}, false
}

// stillTrue reports whether what the guest was told of siblings and sockets holds on pins that would make another
// guest.
func stillTrue(told, now farm.GuestTopology) bool {
	return (told.Threads == 1 || told.Threads == now.Threads) && (told.Sockets == 1 || told.Sockets == now.Sockets)
}

// same is a request for what the VM has: its cells, in their pages, wherever.
func (r Running) same() Request {
	req := r.Request
	req.Cells, req.VCPUs, req.Memory, req.Pages = 0, 0, 0, nil
	if len(req.Each) == 0 {
		for _, c := range r.Plan.Cells {
			req.Each = append(req.Each, CellRequest{VCPUs: c.VCPUs, Floating: c.VCPUs.And(r.Plan.Floating),
				Memory: c.Memory, Threads: req.Threads})
		}
	}
	req.Each = slices.Clone(req.Each)
	for i := range req.Each {
		for _, c := range r.Plan.Cells {
			if c.VCPUs.Minus(req.Each[i].VCPUs).Empty() {
				req.Each[i].Pages = []farm.Bytes{c.PageSize}
			}
		}
	}
	req.CPU, req.Threads = farm.Pinned, farm.PreferSiblings
	return req
}

// around is all CPUs of the nodes that a plan holds CPUs of.
func (r Room) around(p farm.Plan) farm.CPUSet {
	var out farm.CPUSet
	held := p.Held()
	for i := range r.indexed().nodes {
		if n := &r.indexed().nodes[i]; n.cpus.Common(held) > 0 {
			out = out.Or(n.cpus)
		}
	}
	return out
}

// stays reports that the move changes nothing.
func (m Move) stays() bool {
	for i := range m.To.VCPUs {
		if !m.To.VCPUs[i].Equal(m.From.VCPUs[i]) {
			return false
		}
	}
	return m.Memory == 0 && m.To.Emulator.Equal(m.From.Emulator) && m.To.Extra.Equal(m.From.Extra)
}
