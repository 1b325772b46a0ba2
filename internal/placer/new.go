package placer

import (
	"maps"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
)

// maxLockWait is how long a new VM waits for the placer, whose looks at the feed take less; not what it takes to read
// the whole farm.
const maxLockWait = time.Millisecond

// PlaceNew gives a VM that t is about to insert its place, where that takes no question to the database and no other VM
// comes before it; it returns the name of that host. All others are inserted without one (""), and the placer finds
// their rows in the change feed.
func (p *Placer) PlaceNew(t *store.Tx, vm *farm.VM) (host string) {
	if !p.mu.LockWithin(maxLockWait) {
		return "" // this is the writer of all
	}
	defer p.mu.Unlock()
	// A change that is not read yet may close a host or a cell. Changes of VMs do not matter here: VMs of others only
	// leave.
	if !p.leading || p.revision == 0 || !t.OnlyVMsSince(p.revision) || t.Fence(p.epoch) != nil {
		return ""
	}
	r, ok := p.requestNew(*vm)
	if !ok {
		return ""
	}
	placed, err := p.fleet.Claim(r)
	if err != nil {
		return ""
	}
	vm.Host, vm.Cell, vm.Plan = placed.Host, placed.Cell, placed.Plan
	p.hold(placed)
	t.OnEnd(func(err error) { p.settle(placed.VM, err) })
	return p.hosts[placed.Host].name
}

// requestNew returns what a new VM asks for; ok is false when it is not its turn, or a batch system is to be asked
// first.
func (p *Placer) requestNew(vm farm.VM) (r placement.Request, ok bool) {
	names, err := policy.ChooseCell(vm.Project, vm.Cell, p.cells)
	if err != nil || len(p.queue.projects[vm.Project]) > 0 {
		return r, false
	}
	cells, _ := p.placeable(names)
	r = p.request(vm, cells)
	if _, known := p.groups[r.Group]; len(cells) == 0 || vm.Group != "" && !known {
		return r, false
	}
	return r, p.queue.waitlists[placement.ClassOf(r)] == nil
}

// hold notes a claim for a transaction that is not over: a mirror that is read anew has to have it, too.
func (m *Mirror) hold(placed placement.Placed) {
	m.claims.Lock()
	defer m.claims.Unlock()
	m.held[placed.VM] = placed
}

// holds returns those claims.
func (m *Mirror) holds() map[string]placement.Placed {
	m.claims.Lock()
	defer m.claims.Unlock()
	return maps.Clone(m.held)
}

// settle ends a claim's transaction. A claim that is committed comes by the feed, too, and is there already.
func (m *Mirror) settle(vm string, err error) {
	if err == nil && m.options.Placed != nil {
		m.options.Placed(1, 0)
	}
	m.claims.Lock()
	delete(m.held, vm)
	m.claims.Unlock()
	if err == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if farm.IsCode(err, store.CodeUnsure) {
		m.revision = 0 // the store knows
		return
	}
	m.release(vm)
}
