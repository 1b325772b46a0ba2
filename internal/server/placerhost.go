package server

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
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
	// What its labels and its networks follow from, with cells and networks of the fleet.
	labels            map[string]string // of people
	kind, accelerator string
	bridges           []string
}

// host is as much of the host as labelsOf and carried look at.
func (n hostNote) host() farm.Host {
	return farm.Host{Name: n.name, Cell: n.cell, Labels: n.labels,
		Facts: farm.Facts{Kind: n.kind, Accelerator: n.accelerator, Networks: n.bridges}}
}

// why says why the host takes no new VM; "": it does.
func (n hostNote) why() string {
	if n.refuses == "" && n.silent {
		return "it is silent"
	}
	return cmp.Or(n.refuses, n.backsOff)
}

// setHost enters a host as the store has it.
func (m *mirror) setHost(h farm.Host) {
	n := hostNote{name: h.Name, cell: h.Cell, backsOff: m.hosts[h.ID].backsOff, labels: h.Labels, kind: h.Facts.Kind,
		accelerator: h.Facts.Accelerator, bridges: h.Facts.Networks}
	cell, _ := cellNamed(m.cells, h.Cell)
	n.refuses, n.closed = refusalOf(h)
	n.drains = h.Drain.Active()
	n.silent = m.silent(h.ID, h.Seen)
	m.hosts[h.ID] = n
	m.fleet.Set(placement.Host{ID: h.ID, Name: h.Name, Cell: h.Cell, Labels: labelsOf(h, cell), Refuses: n.why(),
		Closed: n.closed, Topology: h.Facts.Topology, Reserve: h.Facts.Reserve, Taken: h.Facts.Taken,
		Images: h.Facts.Images, Networks: carried(h, m.networks), Scratch: m.scratchOf(h)})
	m.roomier(h.ID)
}

// refusalOf says why a host takes nothing new, beside silence; closed: people said so, and can take it back.
func refusalOf(h farm.Host) (why string, closed bool) {
	switch {
	case !h.Fenced.IsZero():
		return "it is fenced", false
	case len(h.Facts.Topology.Nodes) == 0:
		return "it has not said yet what it has", false
	case len(h.Facts.Short) > 0:
		return "it takes no more VMs: " + strings.Join(h.Facts.Short, ", "), false
	case h.Drain.Active():
		return withReason("it is being drained", h.Drain.Reason), true
	case h.Closed:
		return withReason("it is closed", h.Reason), true
	}
	return "", false
}

func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// labelsOf are the labels of a host as selectors see them: of its cell, of people, and what it is.
func labelsOf(h farm.Host, cell farm.Cell) map[string]string {
	labels := maps.Clone(cell.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, h.Labels)
	labels["kind"], labels["cell"], labels["host"], labels["accelerator"] =
		h.Facts.Kind, h.Cell, h.Name, h.Facts.Accelerator
	return labels
}

// carried are the networks that a host can carry: those whose patterns it matches, as far as it has their bridge.
func carried(h farm.Host, networks []farm.FleetNetwork) []string {
	var names []string
	for _, n := range networks {
		mine := len(n.Hosts) == 0 || slices.ContainsFunc(n.Hosts, func(pattern string) bool {
			ok, err := path.Match(pattern, h.Name)
			return ok && err == nil
		})
		if mine && (n.Bridge == "" || slices.Contains(h.Facts.Networks, n.Bridge)) {
			names = append(names, n.Name)
		}
	}
	return names
}

// scratchOf is how much disk a host has for all VMs of the fleet: what is free, and what the disks of those that are
// there may come to.
func (m *mirror) scratchOf(h farm.Host) farm.Bytes {
	sum := h.Facts.ScratchFree
	for _, id := range m.fleet.On(h.ID) {
		if t := m.there[id]; t.host == h.ID {
			sum += t.scratch
		}
	}
	return sum
}

// draining reports whether any host or cell may be draining. Only the placer's mirror knows that none is.
func (m *mirror) draining() bool {
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

// lookDue is when the next page is due.
func (m *mirror) lookDue() time.Time {
	if m.lookedAt != "" {
		return m.looked.Add(silencePause)
	}
	return m.looked.Add(checkSilence)
}

// checkSilent looks which hosts of the next page have fallen silent, and which are heard of again.
func (m *mirror) checkSilent(t *store.Tx) error {
	all, err := t.HostsSeenAfter(m.lookedAt, silencePage)
	if m.lookedAt = ""; len(all) == silencePage {
		m.lookedAt = all[silencePage-1].ID
	}
	for _, s := range all {
		if n, ok := m.hosts[s.ID]; ok && n.silent != m.silent(s.ID, s.At) {
			n.silent = !n.silent
			m.hosts[s.ID] = n
			m.tellRefusal(s.ID)
		}
	}
	return err
}

// tellRefusal tells placement whether a host takes new VMs.
func (m *mirror) tellRefusal(id string) {
	n := m.hosts[id]
	if why := n.why(); m.fleet.Refuse(id, why, n.closed) && why == "" {
		m.roomier(id)
	}
}
