package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// orphansOf are those of a host.
func (c *views) orphansOf(host string) ([]farm.Orphan, error) {
	if c.seen.orphans == nil {
		return c.Orphans(host)
	}
	return c.seen.orphans[host], nil
}

// seeOrphans reads those of the hosts of a list at once.
func (c *views) seeOrphans(hosts []farm.Host) error {
	all, err := c.OrphansOf(hosts)
	c.seen.orphans = map[string][]farm.Orphan{}
	for _, v := range all {
		c.seen.orphans[v.Host] = append(c.seen.orphans[v.Host], v)
	}
	return err
}

// EvictVMs has a host delete VMs that the server does not know, by ID or by the name that the host gives them: all, or
// none. It takes people's word: what such a VM has in its disks is nowhere else.
func (hs Hosts) EvictVMs(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	vms []string) (view HostView, err error) {
	revision, err := hs.server.change(ctx, who, policy.EvictHost, func(c *call) error {
		h, err := c.FindHost(ref)
		if err != nil {
			return err
		}
		if err := c.StillHost(h, ifRevision); err != nil {
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
		return c.Did(strings.Join(said, ", "))
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
