package placer

import (
	"context"
	"fmt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/store"
)

// group is what one commit writes.
type group struct {
	placed   []claimed
	waiting  []waits
	resized  []resized
	rejected []farm.VM     // by their hosts: they are to have another
	reserve  []reservation // not written here
}

// claimed is a VM with the place that was claimed for it.
type claimed struct {
	candidate *candidate
	placed    placement.Placed
}

// waits is a VM that has no place, and why.
type waits struct{ vm, why string }

// resized is a VM that is to have another size; refused says why it cannot.
type resized struct {
	vm      farm.VM
	now     placement.Placed
	refused error
}

// reservation is a VM for a cell of a batch system.
type reservation struct {
	vm   farm.VM
	cell string
}

func (g *group) empty() bool {
	return len(g.placed)+len(g.waiting)+len(g.resized)+len(g.rejected) == 0
}

func (g *group) place(c *candidate, p placement.Placed) {
	g.placed = append(g.placed, claimed{c, p})
}

// wait notes why a VM has no place, where its row does not say so already.
func (g *group) wait(c *candidate, why error) {
	if text := why.Error(); text != c.reason {
		c.reason = text
		g.waiting = append(g.waiting, waits{c.vm.ID, text})
	}
}

// commit writes a group, in one transaction that fails when another server leads. Claims for VMs that people have
// changed or deleted since are given back; when the commit fails, run reads everything anew.
func (p *Placer) commit(ctx context.Context, g *group) error {
	if g.empty() {
		return nil
	}
	var stale []int
	var own int64
	revision, err := p.options.Store.UpdateAhead(ctx, func(t *store.Tx) (err error) {
		own = t.Revision()
		if err := t.Fence(p.epoch); err != nil {
			return err
		}
		if stale, err = writePlaced(t, g); err != nil {
			return err
		}
		return p.writeOthers(t, g)
	})
	if err != nil {
		return fmt.Errorf("place %d VMs: %w", len(g.placed), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case revision != own: // nothing was as it was, and nothing is written: this is the last one of somebody else
	case len(g.resized)+len(g.rejected) > 0: // these are read again
	case revision == p.revision+1:
		p.revision = revision // nobody wrote in between
	default:
		p.own[revision] = true
	}
	for _, i := range stale {
		p.release(g.placed[i].placed.VM) // the feed tells what has become of it
	}
	return nil
}

// writePlaced gives VMs the places that were claimed for them. It returns which of them are not as they were.
func writePlaced(t *store.Tx, g *group) (stale []int, err error) {
	for i, c := range g.placed {
		vm := *c.candidate.vm
		vm.Host, vm.Cell, vm.Plan = c.placed.Host, c.placed.Cell, c.placed.Plan
		ok, err := t.PlaceVM(vm)
		if err != nil {
			return nil, err
		}
		if !ok {
			stale = append(stale, i)
		}
	}
	return stale, nil
}

func (p *Placer) writeOthers(t *store.Tx, g *group) error {
	for _, w := range g.waiting {
		if err := t.SetVMWaiting(w.vm, w.why); err != nil {
			return err
		}
	}
	for _, r := range g.resized {
		if err := writeResized(t, r); err != nil {
			return err
		}
	}
	for _, vm := range g.rejected {
		if err := p.writeRejected(t, vm); err != nil {
			return err
		}
	}
	return nil
}

// NotResized begins the notice of a VM whose host had no room for another size.
const NotResized = "not resized"

// resize claims another size for a VM on its host.
func (p *Placer) resize(vm farm.VM, g *group) {
	r := resized{vm: vm}
	if r.now, r.refused = p.fleet.Resize(vm.ID, *vm.Resize); r.refused == nil {
		p.freed(vm.Host)
	}
	g.resized = append(g.resized, r)
}

// writeResized gives a VM its new size with the place that was claimed for it, and has its machine made anew; or drops
// the wish and says why.
func writeResized(t *store.Tx, r resized) error {
	vm, err := t.VM(r.vm.ID)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if vm.Changed != r.vm.Changed || vm.Host != r.vm.Host || vm.Resize == nil {
		return nil // it is looked at again, for the feed tells of it
	}
	shape := *vm.Resize
	vm.Resize = nil
	if r.refused != nil {
		vm.Waiting = fmt.Sprintf("%s to %s and %v: %v", NotResized, farm.Count(shape.CPUs, "CPU"),
			shape.Memory, r.refused)
	} else {
		vm.Shape, vm.Plan, vm.Waiting = shape, r.now.Plan, ""
		vm.WantBuild()
	}
	if err := t.SetVM(vm); err != nil {
		return err
	}
	return t.SetVMPlace(vm)
}
