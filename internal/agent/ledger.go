package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// ledger is what this host has, has granted, and to whom: to VMs, which it grants threads, memory and pages in one step
// or not at all; and to jobs on the host, whose batch system has granted them already and says so.
type ledger struct {
	mu       sync.Mutex
	topology farm.Topology
	reserve  numa.Reserve
	grants   map[string]grant     // by job ID
	keys     map[string]string    // of VMs for batch jobs, by job ID: farm.Allotment.Key
	parts    map[string]part      // by job ID: what is taken beside the plans
	fleet    map[string]bool      // IDs of grants that are cloud VMs
	metal    map[string]farm.Plan // what batch systems have given, by farm.Allotment.Key
	queue    []*waiter            // in the order of arrival
	drained  *api.Drain           // nothing is granted to jobs until it ends; nil: there is none

	limits config.Limits                                            // of one user
	keep   farm.Bytes                                               // of the file system of disks, for the host itself
	disks  func(promised map[string]farm.Bytes) (disk.Space, error) // nil: no VM has disks

	reread func() // reads the host anew and calls setReserve; nil: the host does not change

	// jobs that batch systems confine, key surely among them if it is one; nil: nobody tells
	running  func(key string) []farm.Allotment
	confined map[string]farm.Plan // what those hold, by farm.Allotment.Key, at the last look
}

// grant is what one job holds.
type grant struct {
	holder string // for people: "grange-1a2b3c4d (alice: make test)"
	plan   farm.Plan
}

type waiter struct {
	id, holder string
	request    numa.Request
	granted    chan farm.Plan // buffered
	aside      bool           // it waits for what nobody else waits for: others pass
	told       func(message string)
}

func newLedger(t farm.Topology, reserve numa.Reserve) *ledger {
	return &ledger{topology: t, reserve: reserve, grants: map[string]grant{}, keys: map[string]string{},
		parts: map[string]part{}, fleet: map[string]bool{}, metal: map[string]farm.Plan{}}
}

// belongs says that a VM is for a batch job: what the batch system gave that job is the VM's to take.
func (l *ledger) belongs(id, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key != "" {
		l.keys[id] = key
	}
}

// claim plans and takes room for a job. Without room it waits its turn, telling why each time that changes, until ctx
// ends; or, with noWait, fails with farm.NoCapacity naming who holds what.
func (l *ledger) claim(ctx context.Context, id, holder string, r numa.Request, noWait bool,
	told func(string)) (farm.Plan, error) {
	w := &waiter{id: id, holder: holder, request: r, granted: make(chan farm.Plan, 1), told: told}
	l.mu.Lock()
	l.look(l.keys[id])
	plan, err := l.try(w, l.blocked(w, len(l.queue)))
	if (farm.IsCode(err, farm.CodeTooBig) || farm.IsCode(err, CodeUserLimit)) && l.reread != nil {
		// A refusal for good is of the host as it is, not as it was some seconds ago: huge pages may just have been
		// made.
		l.mu.Unlock()
		l.reread()
		l.mu.Lock()
		plan, err = l.try(w, l.blocked(w, len(l.queue)))
	}
	if err == nil || noWait || !farm.IsKind(err, farm.NoCapacity) {
		if err != nil {
			l.forget(id)
		}
		l.mu.Unlock()
		return plan, err
	}
	l.queue = append(l.queue, w)
	told(err.Error())
	l.mu.Unlock()
	select {
	case plan := <-w.granted:
		return plan, nil
	case <-ctx.Done():
		l.leave(w)
		return farm.Plan{}, context.Cause(ctx)
	}
}

// leave takes a waiter out of the queue; a grant that came at the same moment is given back.
func (l *ledger) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = slices.DeleteFunc(l.queue, func(o *waiter) bool { return o == w })
	select {
	case <-w.granted:
	default:
	}
	l.forget(w.id)
	l.serve()
}

// adopt enters what already runs, after a restart. It may exceed what the host has, as after a change of the reserve.
func (l *ledger) adopt(id, holder string, plan farm.Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants[id] = grant{holder, plan}
}

// release gives back what a job holds. Releasing twice is no error.
func (l *ledger) release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(id)
	l.serve()
}

func (l *ledger) forget(id string) {
	delete(l.grants, id)
	delete(l.keys, id)
	delete(l.parts, id)
	delete(l.fleet, id)
}

// setReserve changes what the host keeps for itself. What is granted stays granted.
func (l *ledger) setReserve(t farm.Topology, r numa.Reserve) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.topology, l.reserve = t, r
	l.serve()
}

// serve grants to waiters in order. One may pass an earlier one only where they want none of the same CPUs, or where
// blocked says so.
func (l *ledger) serve() {
	if len(l.queue) > 0 {
		l.look("")
	}
	for i := 0; i < len(l.queue); {
		w := l.queue[i]
		plan, err := l.try(w, l.blocked(w, i))
		if err != nil {
			w.told(err.Error())
			i++
			continue
		}
		w.granted <- plan
		l.queue = slices.Delete(l.queue, i, i+1)
	}
}

// blocked is the CPUs that the first n waiters may be given before w. A batch job was in its batch system's queue
// already: it waits behind other batch jobs, and behind nobody else.
func (l *ledger) blocked(w *waiter, n int) farm.CPUSet {
	var cpus farm.CPUSet
	for _, front := range l.queue[:n] {
		if !front.aside && (l.keys[w.id] == "" || l.keys[front.id] != "") {
			cpus = cpus.Or(front.request.Allowed)
		}
	}
	return cpus
}

func (l *ledger) try(w *waiter, blocked farm.CPUSet) (farm.Plan, error) {
	if l.drained != nil {
		return farm.Plan{}, hostDrained(*l.drained)
	}
	err := l.beside(w.id, held{w.request.VCPUs, w.request.Memory, l.parts[w.id].bytes})
	if w.aside = err != nil; w.aside {
		return farm.Plan{}, err
	}
	if !w.request.Allowed.And(blocked).Empty() {
		return farm.Plan{}, &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Message: "others wait in front; " + l.holders(), Hint: noRoomHint}
	}
	plan, err := numa.Plan(l.room(l.keys[w.id]), w.request)
	if err == nil { // which may hold CPUs beside those of its vCPUs
		err = l.withinSums(w.id, heldBy(plan, l.parts[w.id].bytes))
		w.aside = err != nil
	}
	if w.aside {
		return farm.Plan{}, err
	}
	if err == nil {
		l.grants[w.id] = grant{w.holder, plan}
		return plan, nil
	}
	refused := new(farm.Error)
	if errors.As(err, &refused) && refused.Kind == farm.NoCapacity {
		return farm.Plan{}, &farm.Error{Kind: farm.NoCapacity, Code: refused.Code,
			Message: refused.Message + "; " + l.holders(), Hint: noRoomHint}
	}
	return farm.Plan{}, err
}

const noRoomHint = "wait with --wait, or ask for less"

// room is what is left for a VM of the batch job key, "" for any other: what its batch system set aside for that job is
// its own.
func (l *ledger) room(key string) numa.Room {
	return numa.NewRoom(l.topology, l.reserve, l.plans(key, func(string) bool { return true }))
}

// plans are what is held, of VMs what those hold that counts says. What batch systems hold for a VM that does not count
// does not, either.
func (l *ledger) plans(key string, counts func(id string) bool) []farm.Plan {
	plans := make([]farm.Plan, 0, len(l.grants)+len(l.metal))
	inVMs, passed := map[string]bool{}, map[string]bool{}
	for id, g := range l.grants {
		if counts(id) {
			plans = append(plans, g.plan)
		} else if of := l.keys[id]; of != "" {
			passed[of] = true
		}
		inVMs[l.keys[id]] = true
	}
	for of, plan := range l.metal {
		if of == key || passed[of] {
			continue
		}
		if inVMs[of] {
			plan.Cells = nil // the VM's memory is that job's
		}
		plans = append(plans, plan)
	}
	return append(plans, l.besides(key, inVMs, passed)...)
}

// holders says who holds what, for people.
func (l *ledger) holders() string {
	lines := l.confinedHolders()
	for key, plan := range l.metal {
		lines = append(lines, fmt.Sprintf("%s on metal holds CPUs %v and %v", key, plan.Held(), plan.Memory()))
	}
	for _, g := range l.grants {
		lines = append(lines, fmt.Sprintf("%s holds CPUs %v and %v", g.holder, g.plan.Held(), g.plan.Memory()))
	}
	if len(lines) == 0 {
		return "nobody holds anything"
	}
	slices.Sort(lines)
	const most = 8
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
	}
	return strings.Join(lines, ", ")
}

// neighbours are the plans of all other VMs. Jobs on the host are none: where they run is between them and their batch
// system.
func (l *ledger) neighbours(id string) (plans []farm.Plan, holders []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, g := range l.grants {
		if other != id {
			plans, holders = append(plans, g.plan), append(holders, g.holder)
		}
	}
	return plans, holders
}

// view is the room there is, who holds each CPU, and how many wait.
func (l *ledger) view() (room numa.Room, holders map[int]string, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look("")
	holders = map[int]string{}
	for key, plan := range l.confined {
		for cpu := range plan.Held().All() {
			holders[cpu] = key
		}
	}
	for key, plan := range l.metal {
		for cpu := range plan.Held().All() {
			holders[cpu] = key
		}
	}
	for _, g := range l.grants {
		name, _, _ := strings.Cut(g.holder, " ")
		for cpu := range g.plan.Held().All() {
			holders[cpu] = name
		}
	}
	return l.room(""), holders, len(l.queue)
}
