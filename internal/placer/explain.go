package placer

import (
	"context"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/sleep"
)

// Explain explains host by host where a VM could be. It does one thing at a time, and rests as long as the last one
// took: placing goes before explaining.
func (m *Mirror) Explain(ctx context.Context, vm farm.VM) (placement.Explanation, error) {
	m.asking.Lock()
	defer m.asking.Unlock()
	if sleep.For(ctx, time.Until(m.rested)) != nil {
		return placement.Explanation{}, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	begun := time.Now()
	defer func() { m.rested = time.Now().Add(time.Since(begun)) }()
	if err := m.catchUp(ctx); err != nil {
		return placement.Explanation{}, err
	}
	names, err := policy.ChooseCell(vm.Project, vm.Cell, m.cells)
	if err != nil {
		names = closedToo(vm, m.cells)
	}
	return m.fleet.Why(m.request(vm, names))
}

// ExplainMove explains where a VM could go that has a place: what it holds there is not counted, neither there nor in
// its cell.
func (m *Mirror) ExplainMove(ctx context.Context, vm farm.VM) (placement.Explanation, error) {
	m.asking.Lock()
	defer m.asking.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.catchUp(ctx); err != nil {
		return placement.Explanation{}, err
	}
	if was, ok := m.fleet.Release(vm.ID); ok {
		defer m.fleet.Restore(was)
	}
	return m.fleet.Why(m.request(vm, []string{vm.Cell}))
}

// closedToo returns the cells of a VM for which ChooseCell names none: those that it might have if they were open.
func closedToo(vm farm.VM, cells []farm.Cell) []string {
	open := slices.Clone(cells)
	for i := range open {
		open[i].Closed, open[i].Drain = false, farm.Drain{}
	}
	names, err := policy.ChooseCell(vm.Project, vm.Cell, open)
	if err != nil {
		return nil
	}
	return names
}

// catchUp brings the mirror up to date where no placer does. It is locked.
func (m *Mirror) catchUp(ctx context.Context) error {
	if m.leading && m.revision != 0 {
		return nil
	}
	err := m.refresh(ctx)
	if !m.leading {
		m.pending = newPending(false)
	}
	return err
}
