package numa

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Trial is a host on which VMs are placed in thought, one after the other.
type Trial struct {
	Room    Room
	Running []Running
}

// Place plans a VM and puts it there. With repack, VMs that run are moved where that makes room for it; the moves are
// returned.
func (t *Trial) Place(name string, req Request, repack bool) (farm.Plan, []Move, error) {
	plan, err := Plan(t.Room, req)
	var moves []Move
	if repack && farm.IsCode(err, farm.CodeNoRoom) {
		if moves, err = Repack(t.Room, t.Running, req); err == nil {
			if err = t.move(moves); err == nil {
				plan, err = Plan(t.Room, req)
			}
		}
	}
	if err != nil {
		return farm.Plan{}, nil, err
	}
	room, err := t.Room.Take(plan)
	if err != nil {
		return farm.Plan{}, nil, err
	}
	t.Room = room
	t.Running = append(t.Running, Running{Name: name, Plan: plan, Request: req})
	return plan, moves, nil
}

// move makes the moves, one after the other.
func (t *Trial) move(moves []Move) error {
	for _, m := range moves {
		room, err := t.Room.Give(m.From).Take(m.To)
		if err != nil {
			return fmt.Errorf("move %s: %w", m.Name, err)
		}
		t.Room = room
		for i := range t.Running {
			if t.Running[i].Name == m.Name {
				t.Running[i].Plan = m.To
			}
		}
	}
	return nil
}

// Remove takes VMs away, by name.
func (t *Trial) Remove(names []string) {
	var stay []Running
	for _, vm := range t.Running {
		if slices.Contains(names, vm.Name) {
			t.Room = t.Room.Give(vm.Plan)
			continue
		}
		stay = append(stay, vm)
	}
	t.Running = stay
}
