// Package hostmap keeps in memory the little of each host that a map of the whole fleet shows: reading thousands of
// hosts from the database for each look at it would take seconds. It follows the change feed when it is asked.
package hostmap

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// Host is the little of a host.
type Host struct {
	farm.Host           // without its Facts
	Short      []string // why it takes nothing, as it says itself
	Audited    bool
	Findings   []farm.HostFinding // of the tuning audit
	CPUs       int                // online threads
	HeldCPUs   int                // of them, what the host keeps and what holds a place that the server did not give
	Memory     farm.Bytes
	HeldMemory farm.Bytes
	Used       farm.Quota // by cloud VMs
	Orphans    int
}

// Map is that of all hosts.
type Map struct {
	store *store.Store
	now   func() time.Time

	mu       sync.Mutex
	revision int64 // up to which it has read; 0: nothing yet
	hosts    map[string]*Host
	list     []*Host // by cell and name; nil: to be made
	seen     time.Time
}

// New returns a map that has read nothing yet.
func New(s *store.Store, now func() time.Time) *Map { return &Map{store: s, now: now} }

const (
	changesAtOnce = 5000
	readTime      = 30 * time.Second // for all hosts of the fleet
	// seenAge is how old the times may be at which hosts were heard of by other servers.
	seenAge = 10 * time.Second
)

// All returns all hosts, by cell and name. What it returns is not changed any more, and must not be.
func (m *Map) All(ctx context.Context) ([]*Host, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// whoever goes away leaves it to the next one; half of it would have to be read anew
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
	defer cancel()
	if err := m.follow(ctx); err != nil {
		m.revision = 0 // some of it may have been applied
		return nil, err
	}
	if m.list == nil {
		m.list = make([]*Host, 0, len(m.hosts))
		for _, h := range m.hosts {
			m.list = append(m.list, h)
		}
		slices.SortFunc(m.list, func(a, b *Host) int {
			return cmp.Or(cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.Name, b.Name))
		})
	}
	return m.list, nil
}

// follow reads what changed since the last time; at first, everything.
func (m *Map) follow(ctx context.Context) error {
	for m.revision != 0 {
		again := false
		err := m.store.View(ctx, func(t *store.Tx) error {
			changes, upTo, err := t.Changes(m.revision, changesAtOnce)
			if err != nil {
				return err
			}
			if err := m.read(t, changes); err != nil {
				return err
			}
			m.revision, again = upTo, upTo < t.Revision()
			return m.readSeen(t)
		})
		if farm.IsCode(err, farm.CodeFeedGone) {
			break
		}
		if err != nil || !again {
			return err
		}
	}
	return m.load(ctx)
}

// load reads everything anew.
func (m *Map) load(ctx context.Context) error {
	return m.store.View(ctx, func(t *store.Tx) error {
		m.hosts, m.list = map[string]*Host{}, nil
		var some []farm.Host
		if err := t.EachHost("", func(h farm.Host) {
			m.hosts[h.ID] = brief(h)
			h.Facts = farm.Facts{}
			some = append(some, h)
		}); err != nil {
			return err
		}
		if err := m.readRest(t, some); err != nil {
			return err
		}
		m.revision, m.seen = t.Revision(), m.now()
		return nil
	})
}

// read takes over the hosts that changes are about.
func (m *Map) read(t *store.Tx, changes []store.Change) error {
	changed := map[string]bool{} // whether it is gone
	for _, c := range changes {
		switch c.Kind {
		case store.KindHost:
			changed[c.ID] = c.Deleted
		case store.KindVM, store.KindOrphan:
			if _, known := changed[c.Host]; !known && c.Host != "" {
				changed[c.Host] = false
			}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	m.list = nil
	var ids []string
	for id, gone := range changed {
		if delete(m.hosts, id); !gone {
			ids = append(ids, id)
		}
	}
	hosts, err := t.HostsBriefOf(ids)
	if err == nil {
		err = t.AddFacts(hosts)
	}
	if err != nil {
		return err
	}
	for _, h := range hosts {
		m.hosts[h.ID] = brief(h)
	}
	return m.readRest(t, hosts)
}

// readRest reads what is not in the rows of hosts. Those in the map are new, and nobody else has them yet.
func (m *Map) readRest(t *store.Tx, hosts []farm.Host) error {
	used, err := t.UsedHosts(hosts)
	if err != nil {
		return err
	}
	orphans, err := t.OrphansOf(hosts)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		m.hosts[h.ID].Used = used[h.ID]
	}
	for _, o := range orphans {
		m.hosts[o.Host].Orphans++
	}
	return nil
}

// readSeen reads when hosts were last heard of, which the feed does not say.
func (m *Map) readSeen(t *store.Tx) error {
	if m.now().Sub(m.seen) < seenAge {
		return nil
	}
	m.seen = m.now()
	all, err := t.HostsSeen()
	for _, s := range all {
		h := m.hosts[s.ID]
		if h == nil || h.Seen.Equal(s.At) {
			continue
		}
		c := *h
		c.Seen, c.Clock = s.At, s.Ahead
		m.hosts[s.ID], m.list = &c, nil
	}
	return err
}

// brief is the little of a host that is in its row.
func brief(h farm.Host) *Host {
	f := h.Facts
	out := &Host{Host: h, Short: f.Short, Audited: f.Audited, Findings: f.Findings,
		CPUs: f.Topology.Online.Len(), HeldCPUs: f.Reserve.CPUs.Len(),
		HeldMemory: f.Reserve.Memory}
	out.Facts = farm.Facts{}
	for _, n := range f.Topology.Nodes {
		out.Memory += n.Memory
	}
	for _, p := range f.Taken {
		out.HeldCPUs += p.Held().Len()
		out.HeldMemory += p.Memory()
	}
	return out
}
