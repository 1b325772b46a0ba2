package server

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
)

// Bounds of a page.
const (
	usualPage = 100
	mostPage  = 1000
)

func pageSize(limit int) int {
	if limit <= 0 {
		return usualPage
	}
	return min(limit, mostPage)
}

// VMs are those that the filter chooses and the caller may see, by project and name.
func (s *Server) VMs(ctx context.Context, who farm.Identity, f VMFilter) (list VMList, err error) {
	if _, err := path.Match(f.Name, ""); err != nil {
		return list, badVM("%.80q is no pattern of names", f.Name)
	}
	err = s.look(ctx, who, policy.ReadVM, func(c *call) error {
		list = VMList{Revision: c.Revision()}
		return c.list(f, &list)
	})
	return list, err
}

func (c *call) list(f VMFilter, list *VMList) error {
	host, err := c.hostID(f.Host)
	if err != nil {
		return err
	}
	projects, err := c.projects(f.Project)
	if err != nil {
		return err
	}
	size := pageSize(f.Limit)
	after, _, _ := strings.Cut(f.After, "/")
	for _, p := range projects {
		if p != "" && p < after {
			continue
		}
		q := store.VMFilter{Project: p, Host: host, Cell: f.Cell, Owner: f.Owner, Group: f.Group, Limit: mostPage}
		if p == "" || p == after {
			q.After = f.After
		}
		if err := c.fill(f, q, size, list); err != nil || list.Next != "" {
			return err
		}
	}
	return nil
}

// fill reads the store's pages until the list has its size. One more that is there makes Next.
func (c *call) fill(f VMFilter, q store.VMFilter, size int, list *VMList) error {
	for {
		vms, err := c.Tx.VMs(q)
		if err != nil {
			return err
		}
		for _, vm := range vms {
			q.After = label(vm)
			if !f.names(vm) || !c.sees(vm) {
				continue
			}
			view, err := c.show(vm)
			if err != nil {
				return err
			}
			if f.State != "" && view.State != f.State {
				continue
			}
			if len(list.Items) == size {
				list.Next = label(list.Items[size-1].VM)
				return nil
			}
			list.Items = append(list.Items, view)
		}
		if len(vms) < q.Limit {
			return nil
		}
	}
}

// names tells whether a VM has the name and the tags of the filter.
func (f VMFilter) names(vm farm.VM) bool {
	if ok, err := path.Match(f.Name, vm.Name); f.Name != "" && (err != nil || !ok) {
		return false
	}
	for k, v := range f.Tags {
		if has, ok := vm.Tags[k]; !ok || v != "" && has != v {
			return false
		}
	}
	return true
}

// projects are those whose VMs the caller may see, or "" for all: whoever is a reader in few projects does not have the whole farm read.
func (c *call) projects(asked string) ([]string, error) {
	if asked != "" {
		return []string{asked}, nil
	}
	if c.who.Root {
		return []string{""}, nil
	}
	var mine []string
	for _, g := range c.grants {
		if g.Project == "" {
			if len(c.who.Projects) > 0 {
				return slices.Sorted(slices.Values(c.who.Projects)), nil
			}
			return []string{""}, nil
		}
		mine = append(mine, g.Project)
	}
	slices.Sort(mine)
	return slices.Compact(mine), nil
}

// hostID is the ID of a host that a filter names.
func (c *call) hostID(ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	h, err := c.HostNamed(ref)
	if missing(err) {
		h, err = c.Tx.Host(ref)
	}
	if missing(err) {
		return "", noHost(ref)
	}
	return h.ID, err
}

// Entries are lines of the audit log that the caller may see, newest first.
func (s *Server) Entries(ctx context.Context, who farm.Identity, f EntryFilter) (entries []farm.Entry, err error) {
	err = s.look(ctx, who, policy.ReadAudit, func(c *call) error {
		target := policy.Target{Project: f.Project, Owner: f.Who, Name: "the audit log"}
		if err := c.may(target); err != nil {
			return err
		}
		entries, err = c.Tx.Entries(f.Project, f.Who, f.Before, pageSize(f.Limit))
		return err
	})
	return entries, err
}
