package ledger

import (
	"errors"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// Planner plans a cloud VM within a room. own are the CPUs of the batch job that holds its place, where that is
// confined to some. It must not call the ledger.
type Planner func(room numa.Room, own farm.CPUSet) (farm.Plan, error)

// ClaimCloud plans and claims room for a cloud VM, in place of the claim that it may have, in one step or not at all.
// The VM may take the room that the batch job of this key holds; "" is no job. ClaimCloud never waits: the server has
// counted the room, and has other hosts. Without room the error is a farm.CodeNoRoom that names who holds what.
func (l *Ledger) ClaimCloud(id, holder, key string, c Charge, plan Planner) (farm.Plan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	planned, err := l.planCloud(id, key, c, plan)
	if err != nil {
		return farm.Plan{}, err
	}
	l.claims.enterCloud(id, holder, key, c, planned)
	l.serve() // the earlier claim may have been larger
	return planned, nil
}

// CheckCloud returns the error that ClaimCloud would return, and claims nothing.
func (l *Ledger) CheckCloud(id, key string, c Charge, plan Planner) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.planCloud(id, key, c, plan)
	return err
}

func (l *Ledger) planCloud(id, key string, c Charge, plan Planner) (farm.Plan, error) {
	l.look(key)
	if err := l.spaceForCloud(id, c); err != nil {
		return farm.Plan{}, err
	}
	if err := l.carriedCloud(id, c); err != nil {
		return farm.Plan{}, err
	}
	if old, had := l.claims.grants[id]; had {
		delete(l.claims.grants, id)
		defer func() { l.claims.grants[id] = old }() // ClaimCloud writes over it
	}
	planned, err := plan(l.claims.room(key), l.claims.confined[key].Extra)
	if farm.IsKind(err, farm.NoCapacity) || farm.IsCode(err, farm.CodeBadPlan) {
		e := new(farm.Error)
		errors.As(err, &e)
		err = &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Message: e.Message + "; " + l.claims.holders(l.claims.sightOfServer(key)),
			Hint:    "the server places it elsewhere, if there is room"}
	}
	return planned, err
}

// carriedCloud refuses a cloud VM more bandwidth than is left, beside what it has already: the server has counted, but
// for what jobs have booked meanwhile.
func (l *Ledger) carriedCloud(id string, c Charge) error {
	has := farm.Bandwidth{}
	if _, granted := l.claims.grants[id]; granted {
		has = l.claims.charges[id].Bandwidth
	}
	return l.carried(id, c.Bandwidth.Beyond(has))
}

// spaceForCloud refuses disks of a cloud VM that would not find their space, were they charged as c says.
func (l *Ledger) spaceForCloud(id string, c Charge) error {
	before, had := l.claims.charges[id]
	l.claims.charges[id] = c
	err := l.spaceFor(id)
	if l.claims.charges[id] = before; !had {
		delete(l.claims.charges, id)
	}
	return err
}

// AdoptCloud enters the claim of a cloud VM that was here before, running or not.
func (l *Ledger) AdoptCloud(id, holder, key string, c Charge, plan farm.Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims.enterCloud(id, holder, key, c, plan)
}

// Taken returns the plans of all that the server did not place, and of its VMs that are unlisted, by ID: those that it
// does not want here any more, which its own list lacks; with what they are taken from. A batch job that holds the
// place of a cloud VM is none of them.
func (l *Ledger) Taken(unlisted map[string]bool) (farm.Topology, numa.Reserve, []farm.Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look("")
	c := l.claims
	return c.topology, c.reserve, c.plans("", func(id string) bool { return !c.cloud[id] || unlisted[id] })
}
