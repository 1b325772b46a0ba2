package placer

import (
	"cmp"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/store"
)

// hostNote is what the mirror keeps of a host beside what placement has.
type hostNote struct {
	name, cell string
	refuses    string // beside the next two
	closed     bool
	drains     bool
	silent     bool
	backsOff   string // it refuses one VM after the other
	// Its labels and its networks follow from these, and from cells and networks of the fleet.
	labels            map[string]string // of people
	kind, accelerator string
	bridges           []string
	capability        int
}

// host returns as much of the host as placement.LabelsOf and placement.NetworksOf look at.
func (n hostNote) host() farm.Host {
	return farm.Host{Name: n.name, Cell: n.cell, Labels: n.labels,
		Facts: farm.Facts{Kind: n.kind, Accelerator: n.accelerator, Networks: n.bridges,
			Capability: n.capability}}
}

// why returns why the host takes no new VM; "": it does.
func (n hostNote) why() string {
	if n.refuses == "" && n.silent {
		return "it is silent"
	}
	return cmp.Or(n.refuses, n.backsOff)
}

// setHost enters a host as the store has it.
func (m *Mirror) setHost(h farm.Host) {
	n := hostNote{name: h.Name, cell: h.Cell, backsOff: m.hosts[h.ID].backsOff, labels: h.Labels, kind: h.Facts.Kind,
		accelerator: h.Facts.Accelerator, bridges: h.Facts.Networks, capability: h.Facts.Capability}
	cell, _ := cellNamed(m.cells, h.Cell)
	host := placement.HostOf(h, cell, m.networks)
	n.refuses, n.closed = host.Refuses, host.Closed
	n.drains = h.Drain.Active()
	n.silent = m.options.Silent(h.ID, h.Seen)
	m.hosts[h.ID] = n
	host.Refuses, host.Scratch = n.why(), m.scratchOf(h)
	m.fleet.Set(host)
	m.freed(h.ID)
}

// scratchOf returns how much disk a host has for all VMs of the fleet: what is free, and what the disks of those that
// are there may come to.
func (m *Mirror) scratchOf(h farm.Host) farm.Bytes {
	sum := h.Facts.ScratchFree
	for _, id := range m.fleet.On(h.ID) {
		if t := m.present[id]; t.host == h.ID {
			sum += t.scratch
		}
	}
	return sum
}

// Draining reports whether any host or cell may be draining. Only the placer's mirror knows that none is.
func (m *Mirror) Draining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.leading || m.revision == 0 ||
		slices.ContainsFunc(m.cells, func(c farm.Cell) bool { return c.Drain.Active() }) {
		return true
	}
	for _, n := range m.hosts {
		if n.drains {
			return true
		}
	}
	return false
}

// checkSilence is how often hosts are looked at for silence: the feed does not tell when they are heard of.
const checkSilence = 10 * time.Second

// It is a page of hosts at a time, and a pause, for VMs that are to be placed wait meanwhile.
const (
	silencePage  = 500
	silencePause = 100 * time.Millisecond
)

// checkDue returns when the next page is due.
func (m *Mirror) checkDue() time.Time {
	if m.checkedTo != "" {
		return m.checked.Add(silencePause)
	}
	return m.checked.Add(checkSilence)
}

// checkSilent looks which hosts of the next page have fallen silent, and which are heard of again.
func (m *Mirror) checkSilent(t *store.Tx) error {
	all, err := t.HostsSeenAfter(m.checkedTo, silencePage)
	if m.checkedTo = ""; len(all) == silencePage {
		m.checkedTo = all[silencePage-1].ID
	}
	for _, s := range all {
		if n, ok := m.hosts[s.ID]; ok && n.silent != m.options.Silent(s.ID, s.At) {
			n.silent = !n.silent
			m.hosts[s.ID] = n
			m.setRefusal(s.ID)
		}
	}
	return err
}

// setRefusal reports to placement whether a host takes new VMs.
func (m *Mirror) setRefusal(id string) {
	n := m.hosts[id]
	if why := n.why(); m.fleet.Refuse(id, why, n.closed) && why == "" {
		m.freed(id)
	}
}

// Sums returns what the hosts of each cell have together, on the server that leads; nil: another one does.
func (m *Mirror) Sums() map[string]placement.Sums {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.leading || m.revision == 0 {
		return nil
	}
	return m.fleet.Sums()
}
