package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
)

// Bounds of what is kept of a host's orphans.
const (
	maxOrphans = 1000
	maxCalled  = 128 // bytes of a name, or of an ID
)

// meet finds what is new of a host's orphans, whose IDs it gets. What was ordered of one that is still there stays
// ordered. Those beyond the bounds are met when others have left.
func (n *news) meet(t *store.Tx, host string, strange []string, r fleet.Report) error {
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
	room := maxOrphans - len(known) + len(n.left)
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
			Name: cmp.Or(farm.Printable(o.Name[:min(len(o.Name), maxCalled)]), was.Name), State: farm.VMState(o.State),
			Evicted: was.Evicted}
		if now != was {
			n.orphans = append(n.orphans, now)
		}
	}
	return nil
}

// orphansOf are those of a host.
func (c *call) orphansOf(host string) ([]farm.Orphan, error) {
	if c.seen.orphans == nil {
		return c.Orphans(host)
	}
	return c.seen.orphans[host], nil
}

// seeOrphans reads those of the hosts of a list at once.
func (c *call) seeOrphans(hosts []farm.Host) error {
	all, err := c.OrphansOf(hosts)
	c.seen.orphans = map[string][]farm.Orphan{}
	for _, v := range all {
		c.seen.orphans[v.Host] = append(c.seen.orphans[v.Host], v)
	}
	return err
}

// EvictVMs has a host delete VMs that the server does not know, by ID or by the name that the host gives them: all, or
// none. It takes people's word: what such a VM has in its disks is nowhere else.
func (s *Server) EvictVMs(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	vms []string) (view HostView, err error) {
	revision, err := s.change(ctx, who, policy.EvictHost, func(c *call) error {
		h, err := c.host(ref)
		if err != nil {
			return err
		}
		if err := c.stillHost(h, ifRevision); err != nil {
			return err
		}
		orphans, err := c.orphansOf(h.ID)
		if err != nil {
			return err
		}
		var said []string
		for _, vm := range vms {
			v, err := pick(orphans, h, vm)
			if err != nil {
				return err
			}
			v.Evicted = true
			if err := c.PutOrphan(*v); err != nil {
				return err
			}
			said = append(said, strings.TrimSpace(v.Name+" "+v.VM))
		}
		if view, err = c.showOne(h); err != nil {
			return err
		}
		return c.did(strings.Join(said, ", "))
	})
	view.Revision = revision
	return view, err
}

// pick is the orphan of an ID, or the only one of a name.
func pick(orphans []farm.Orphan, h farm.Host, vm string) (found *farm.Orphan, err error) {
	for i, v := range orphans {
		switch {
		case v.VM == vm:
			return &orphans[i], nil
		case v.Name == vm && found != nil:
			return nil, &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoVM,
				Message: fmt.Sprintf("host %s has several VMs %s that the server does not know", h.Name, vm),
				Hint:    "name one by its ID, as `grange host show " + h.Name + "` lists them"}
		case v.Name == vm:
			found = &orphans[i]
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM,
		Message: fmt.Sprintf("host %s has no VM %.80q that the server does not know", h.Name, vm),
		Hint: "`grange host show " + h.Name +
			"` lists those that there are; one that the server knows ends by `grange vm delete`"}
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
