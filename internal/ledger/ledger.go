// Package ledger keeps what of one host is claimed, and by whom: threads, memory, pages, and space for disks. It claims
// them for VMs in one step or not at all, in order of arrival; jobs that a batch system runs on the host beside them
// have been given theirs already, and are believed.
//
// It is pure: what it has to know of the host is brought, or asked by the functions in Host. It keeps nothing on disk:
// after a restart, what runs is adopted.
package ledger

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/policy"
)

// Ledger is what one host has, and what of it is claimed by whom. Its methods may be called from several goroutines.
type Ledger struct {
	host Host

	mu      sync.Mutex
	claims  *claims
	queue   []*waiter // in the order of arrival
	drained *Drain    // nil: the host is not drained

	limits policy.Limits // of one user
	keep   farm.Bytes    // of the file system of disks, for the host itself
}

// Host is what a ledger asks of its host. A function that is nil is not asked.
type Host struct {
	// Jobs returns the jobs that batch systems confine on the host; if key is one of a job, that job is surely among
	// them when it is here. It must not call the ledger.
	Jobs func(key string) []farm.Allotment

	// Space returns what a place of disks has beside those that were promised to VMs there, by the name of the disks:
	// an area of files, or volumes by the name of their group or pool. It must not call the ledger. Where it is nil, no
	// VM has disks.
	Space func(at string, promised func(at string) map[string]farm.Bytes) (farm.DiskSpace, error)

	// Bandwidth returns what the host's network carries each way, in bits a second; 0 where that is not known, and no
	// VM has a bandwidth. It must not call the ledger. Where it is nil, bandwidth is not counted.
	Bandwidth func() farm.Rate

	// Private reports whether users may not know what others hold. It must not call the ledger.
	Private func() bool

	// Reread reads the host anew, and calls SetTopology if it has changed. Where it is nil, the host does not change.
	Reread func()
}

type waiter struct {
	id, holder string
	request    numa.Request
	granted    chan farm.Plan // buffered
	aside      bool           // it waits for what nobody else waits for: others pass
	told       func(message string)
}

// New returns a ledger in which nothing is claimed.
func New(t farm.Topology, reserve numa.Reserve, host Host) *Ledger {
	l := &Ledger{host: host, claims: newClaims(t, reserve)}
	l.claims.private = func() bool { return host.Private != nil && host.Private() }
	return l
}

// SetBatchJob notes that a VM is for the batch job key: what the batch system gave to that job is the VM's to take. An
// empty key changes nothing.
func (l *Ledger) SetBatchJob(id, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key != "" {
		l.claims.keys[id] = key
	}
}

// Claim plans and claims room for the VM of a job. Without room it waits its turn, and calls told with the reason each
// time it was looked for in vain, until ctx ends: then it returns the cause. With noWait it fails instead, with a
// farm.NoCapacity that names who holds what. told must not call the ledger.
func (l *Ledger) Claim(ctx context.Context, id, holder string, r numa.Request, noWait bool,
	told func(string)) (farm.Plan, error) {
	w := &waiter{id: id, holder: holder, request: r, granted: make(chan farm.Plan, 1), told: told}
	l.mu.Lock()
	plan, err := l.tryFirst(w)
	if err == nil || noWait || !farm.IsKind(err, farm.NoCapacity) {
		if err != nil {
			l.claims.forget(id)
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

// tryFirst tries for one who has just come. A refusal for good is of the host as it is, not as it was some seconds ago,
// for huge pages may just have been made: before one the host is read anew, during which the lock is not held.
func (l *Ledger) tryFirst(w *waiter) (farm.Plan, error) {
	l.look(l.claims.keys[w.id])
	plan, err := l.try(w, l.blocked(w, len(l.queue)))
	forGood := farm.IsCode(err, farm.CodeTooBig) || farm.IsCode(err, CodeUserLimit)
	if !forGood || l.host.Reread == nil {
		return plan, err
	}
	l.mu.Unlock()
	l.host.Reread()
	l.mu.Lock()
	return l.try(w, l.blocked(w, len(l.queue)))
}

// leave takes a waiter out of the queue; a grant that came at the same moment is given back.
func (l *Ledger) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = slices.DeleteFunc(l.queue, func(o *waiter) bool { return o == w })
	select {
	case <-w.granted:
	default:
	}
	l.claims.forget(w.id)
	l.serve()
}

// Adopt enters the claim of a VM that runs already, after a restart. It may exceed what the host has, as after a change
// of the reserve.
func (l *Ledger) Adopt(id, holder string, plan farm.Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims.grants[id] = grant{holder, plan}
}

// Release ends the claim of a VM, of a job's or a cloud VM, and grants to those who wait. Releasing twice is no error.
func (l *Ledger) Release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims.forget(id)
	l.serve()
}

// SetTopology changes what the host has, and what of it the host keeps for itself. What is granted stays granted.
func (l *Ledger) SetTopology(t farm.Topology, r numa.Reserve) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims.topology, l.claims.reserve = t, r
	l.serve()
}

// serve grants to waiters in order. One may pass an earlier one only where they want none of the same CPUs, or where
// blocked says so.
func (l *Ledger) serve() {
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
func (l *Ledger) blocked(w *waiter, n int) farm.CPUSet {
	var cpus farm.CPUSet
	for _, front := range l.queue[:n] {
		if !front.aside && (l.claims.keys[w.id] == "" || l.claims.keys[front.id] != "") {
			cpus = cpus.Or(front.request.Allowed)
		}
	}
	return cpus
}

func (l *Ledger) try(w *waiter, blocked farm.CPUSet) (farm.Plan, error) {
	if l.drained != nil {
		return farm.Plan{}, l.drained.Refusal()
	}
	c := l.claims.charges[w.id]
	err := l.beside(w.id, held{w.request.VCPUs, w.request.Memory, c.all(), c.Bandwidth})
	if w.aside = err != nil; w.aside {
		return farm.Plan{}, err
	}
	if !w.request.Allowed.And(blocked).Empty() {
		return farm.Plan{}, &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Message: "others wait in front; " + l.claims.holders(l.claims.sightOf(w.id)), Hint: noRoomHint}
	}
	plan, err := numa.Plan(l.claims.room(l.claims.keys[w.id]), w.request)
	if err == nil { // which may hold CPUs beside those of its vCPUs
		err = l.withinSums(w.id, heldBy(plan, c))
		w.aside = err != nil
	}
	if w.aside {
		return farm.Plan{}, err
	}
	if err == nil {
		l.claims.grants[w.id] = grant{w.holder, plan}
		return plan, nil
	}
	refused := new(farm.Error)
	if errors.As(err, &refused) && refused.Kind == farm.NoCapacity {
		return farm.Plan{}, &farm.Error{Kind: farm.NoCapacity, Code: refused.Code,
			Message: refused.Message + "; " + l.claims.holders(l.claims.sightOf(w.id)), Hint: noRoomHint}
	}
	return farm.Plan{}, err
}

const noRoomHint = "wait with --wait, or ask for less"

// Neighbours returns the plans of all VMs but this one, and who holds each, as its owner may know. Jobs on the host are
// no neighbours: where they run is between them and their batch system.
func (l *Ledger) Neighbours(id string) (plans []farm.Plan, holders []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := l.claims.sightOf(id)
	for other, g := range l.claims.grants {
		if other == id {
			continue
		}
		plans = append(plans, g.plan)
		holders = append(holders, nameOr(l.claims.visible(by, other), g.holder))
	}
	return plans, holders
}

// View returns the room there is, who holds each CPU, as a user may know it, and how many wait.
func (l *Ledger) View(uid uint32) (room numa.Room, holders map[int]string, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look("")
	by := l.claims.sightFor(uid, "")
	holders = map[int]string{}
	for _, jobs := range []map[string]farm.Plan{l.claims.confined, l.claims.metal} {
		for key, plan := range jobs {
			for cpu := range plan.Held().All() {
				holders[cpu] = nameOr(by.all, key)
			}
		}
	}
	for id, g := range l.claims.grants {
		name, _, _ := strings.Cut(g.holder, " ")
		for cpu := range g.plan.Held().All() {
			holders[cpu] = nameOr(l.claims.visible(by, id), name)
		}
	}
	return l.claims.room(""), holders, len(l.queue)
}
