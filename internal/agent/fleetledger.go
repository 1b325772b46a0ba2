package agent

import (
	"errors"
	"fmt"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/wire"
)

// choice plans a cloud VM within a room. own are the CPUs of the batch job that holds its place, where that is
// confined to some.
type choice func(room numa.Room, own farm.CPUSet) (farm.Plan, error)

// settle gives a cloud VM its claim, in place of the one that it may have, in one step or not at all. What the
// batch job key holds is the VM's to take; "": it has none. Nobody waits here: the server has counted, and has other
// hosts. Error: farm.CodeNoRoom, naming who holds what.
func (l *ledger) settle(id, holder, key string, p part, choose choice) (farm.Plan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	plan, err := l.chooseLocked(id, key, p, choose)
	if err != nil {
		return farm.Plan{}, err
	}
	l.enterFleet(id, holder, key, p, plan)
	l.serve() // the earlier claim may have been larger
	return plan, nil
}

// fits is settle without taking anything.
func (l *ledger) fits(id, key string, p part, choose choice) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.chooseLocked(id, key, p, choose)
	return err
}

func (l *ledger) chooseLocked(id, key string, p part, choose choice) (farm.Plan, error) {
	l.look(key)
	before, had := l.parts[id]
	l.parts[id] = p
	err := l.spaceFor(id)
	if l.parts[id] = before; !had {
		delete(l.parts, id)
	}
	if err != nil {
		return farm.Plan{}, err
	}
	if old, had := l.grants[id]; had {
		delete(l.grants, id)
		defer func() { l.grants[id] = old }() // settle writes over it
	}
	plan, err := choose(l.room(key), l.confined[key].Extra)
	if farm.IsKind(err, farm.NoCapacity) || farm.IsCode(err, farm.CodeBadPlan) {
		e := new(farm.Error)
		errors.As(err, &e)
		err = &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom, Message: e.Message + "; " + l.holders(),
			Hint: "the server places it elsewhere, if there is room"}
	}
	return plan, err
}

// adoptFleet enters the claim of a cloud VM that was here before, running or not.
func (l *ledger) adoptFleet(id, holder, key string, p part, plan farm.Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enterFleet(id, holder, key, p, plan)
}

func (l *ledger) enterFleet(id, holder, key string, p part, plan farm.Plan) {
	l.parts[id] = p
	l.grants[id] = grant{holder, plan}
	l.fleet[id] = true
	if delete(l.keys, id); key != "" {
		l.keys[id] = key
	}
}

// others are the plans of all that the server did not place, and of its VMs that it does not want here any more, which
// its own list lacks; with what they are taken from. A batch job that holds the place of a cloud VM's is none
// of them.
func (l *ledger) others(unlisted map[string]bool) (farm.Topology, numa.Reserve, []farm.Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look("")
	return l.topology, l.reserve, l.plans("", func(id string) bool { return !l.fleet[id] || unlisted[id] })
}

// chooser plans as the server said, or here where it said nothing.
func (a *Agent) chooser(shape farm.Shape, exact *api.Plan) (choice, error) {
	if exact == nil {
		request := a.numaRequest(shape, a.allCPUs())
		return func(room numa.Room, own farm.CPUSet) (farm.Plan, error) {
			r := request
			if !own.Empty() {
				r.Allowed = own
			}
			return numa.Plan(room, r)
		}, nil
	}
	plan, err := wire.ParsePlan(*exact)
	if err != nil {
		return nil, err
	}
	if len(plan.VCPUs) != shape.CPUs || plan.Memory() != shape.Memory {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadPlan, Hint: "see the server's log",
			Message: fmt.Sprintf("the server's plan has %d CPUs and %v, and the VM's shape %d and %v", len(plan.VCPUs),
				plan.Memory(), shape.CPUs, shape.Memory)}
	}
	return func(room numa.Room, _ farm.CPUSet) (farm.Plan, error) {
		_, err := room.Take(plan)
		return plan, err
	}, nil
}
