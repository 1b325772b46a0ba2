package hostlink

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// Bounds of what is kept of a host's orphans.
const (
	MaxOrphans = 1000
	maxCalled  = 128 // bytes of a name, or of an ID
)

// meet finds what is new of a host's orphans, whose IDs it gets. What was ordered of one that is still there stays
// ordered. Those beyond the bounds are met when others have left.
func (n *news) meet(t *store.Tx, host string, strange []string, seen map[string]farm.Observed,
	r fleet.Report) error {
	known, err := t.Orphans(host)
	if err != nil {
		return err
	}
	by, said := map[string]farm.Orphan{}, map[string]fleet.Observed{}
	for _, v := range known {
		by[v.VM] = v
	}
	for _, o := range r.VMs {
		said[o.ID] = o
	}
	slices.Sort(strange)
	for _, v := range known {
		_, named := said[v.VM]
		if _, is := slices.BinarySearch(strange, v.VM); (named || r.Whole) && !is {
			n.left = append(n.left, v)
		}
	}
	room := MaxOrphans - len(known) + len(n.left)
	for _, id := range strange {
		o := said[id]
		was, met := by[id]
		if !met && (room <= 0 || len(id) > maxCalled) {
			continue
		}
		if !met {
			room--
		}
		now := farm.Orphan{Host: host, VM: id,
			Name: cmp.Or(farm.Printable(o.Name[:min(len(o.Name), maxCalled)]), was.Name), State: seen[id].State,
			Evicted: was.Evicted}
		if now != was {
			n.orphans = append(n.orphans, now)
		}
	}
	return nil
}

// evictedVMs are to go from the host. A VM that the server knows again, as after a restore, is none of them.
func evictedVMs(t *store.Tx, host string, list *fleet.WantedList) error {
	orphans, err := t.Orphans(host)
	if err != nil {
		return err
	}
	var evicted []string
	for _, v := range orphans {
		if !v.Evicted {
			continue
		}
		evicted = append(evicted, v.VM)
	}
	known, err := t.VMHosts(evicted)
	for _, id := range evicted {
		if _, is := known[id]; !is {
			list.VMs = append(list.VMs, unwanted(id))
		}
	}
	return err
}
