package placer

import (
	"maps"
	"reflect"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/store"
)

// Of a host, its labels follow from its cell's, and what it can carry from the fleet's networks. Both are made anew
// from what the mirror keeps of it: all hosts with their facts take seconds to read, in which no VM is placed.

// readCells reads cells, and tells placement of those that changed.
func (m *Mirror) readCells(t *store.Tx) error {
	cells, err := t.Cells()
	if err != nil {
		return err
	}
	old := m.cells
	m.cells = cells
	labels := map[string]bool{} // cells that have others than before
	for _, c := range old {
		if _, there := cellNamed(cells, c.Name); !there {
			m.fleet.RemoveCell(c.Name)
			labels[c.Name] = len(c.Labels) > 0
		}
	}
	for _, c := range cells {
		was, there := cellNamed(old, c.Name)
		if there && reflect.DeepEqual(was, c) {
			continue
		}
		m.fleet.SetCell(c)
		labels[c.Name] = !maps.Equal(was.Labels, c.Labels)
	}
	for id, n := range m.hosts {
		if labels[n.cell] {
			cell, _ := cellNamed(cells, n.cell)
			m.fleet.Label(id, placement.LabelsOf(n.host(), cell))
		}
	}
	return nil
}

// readNetworks reads networks, and tells placement which hosts can carry them.
func (m *Mirror) readNetworks(t *store.Tx) error {
	networks, err := t.Networks()
	if err != nil {
		return err
	}
	old := m.networks
	m.networks = networks
	if slices.EqualFunc(old, networks, placement.SameHosts) {
		return nil
	}
	for id, n := range m.hosts {
		m.fleet.Connect(id, placement.NetworksOf(n.host(), networks))
	}
	return nil
}

// cellNamed returns a cell; the zero cell when it is not there.
func cellNamed(cells []farm.Cell, name string) (c farm.Cell, there bool) {
	if i := slices.IndexFunc(cells, func(c farm.Cell) bool { return c.Name == name }); i >= 0 {
		return cells[i], true
	}
	return c, false
}
