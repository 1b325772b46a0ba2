package server

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// Bounds of a page.
const (
	usualPage = 100
	mostPage  = 1000
	// mostRead is how many VMs are read for a page, and some more, where a filter that the store does not know chooses
	// few of them. The page then has fewer VMs than its size, and Next.
	mostRead = 10_000
)

func pageSize(limit int) int {
	if limit <= 0 {
		return usualPage
	}
	return min(limit, mostPage)
}

// List returns those that the filter chooses and the caller may see, by project and name.
func (vs VMs) List(ctx context.Context, who farm.Identity, f VMFilter) (list VMList, err error) {
	if _, err := path.Match(f.Name, ""); err != nil {
		return list, badVM("invalid name pattern %.80q", f.Name)
	}
	err = vs.server.look(ctx, who, policy.ReadVM, func(c *call) error {
		list = VMList{Revision: c.Revision()}
		return c.list(f, &list)
	})
	return list, err
}

// Count returns how many VMs are in each state of those that the caller may see, and the revision at which that is so.
func (vs VMs) Count(ctx context.Context, who farm.Identity) (n map[farm.VMState]int, revision int64, err error) {
	err = vs.server.look(ctx, who, policy.ReadVM, func(c *call) error {
		n, revision = map[farm.VMState]int{}, c.Revision()
		projects := seenProjects(c.Who, c.Grants, "")
		if len(projects) == 0 {
			return nil
		}
		speaks, err := c.speaking()
		if err != nil {
			return err
		}
		sees := map[policy.Target]bool{}
		for _, p := range projects {
			err := c.EachVMState(store.VMFilter{Project: p, Cell: onlyCell(c.Who, c.Grants)}, func(vm farm.VM) {
				t := policy.Target{Project: vm.Project, Cell: vm.Cell, Owner: vm.Owner}
				if _, known := sees[t]; !known {
					sees[t] = c.Sees(vm)
				}
				if sees[t] {
					n[vm.State(vm.Host != "" && !speaks[vm.Host])]++
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return n, revision, err
}

// speaking are the hosts that are not silent, by ID.
func (c *call) speaking() (map[string]bool, error) {
	hosts, err := c.HostsSeen()
	speaks := map[string]bool{}
	for _, h := range hosts {
		speaks[h.ID] = !c.s.Links.Silent(farm.Host{ID: h.ID, Seen: h.At})
	}
	return speaks, err
}

func (c *call) list(f VMFilter, list *VMList) error {
	host, err := c.hostID(f.Host)
	if err != nil {
		return err
	}
	page := &page{call: c, filter: f, size: pageSize(f.Limit), list: list}
	cell := cmp.Or(f.Cell, onlyCell(c.Who, c.Grants))
	after, _, _ := strings.Cut(f.After, "/")
	for _, p := range seenProjects(c.Who, c.Grants, f.Project) {
		if p != "" && (p < after || !c.maySee(policy.ReadVM, p)) {
			continue
		}
		q := store.VMFilter{Project: p, Host: host, Cell: cell, Owner: f.Owner, Group: f.Group}
		switch p {
		case "":
			// behind nothing: the database then begins at the first name, and does not sort all that the filter chooses
			q.After = cmp.Or(f.After, "/")
		case after:
			q.After = f.After
		}
		if page.read >= mostRead {
			list.Next = p + "/"
			return nil
		}
		if err := page.fill(q); err != nil || list.Next != "" {
			return err
		}
	}
	return nil
}

// page is one of a list of VMs.
type page struct {
	*call
	filter VMFilter
	size   int
	list   *VMList
	read   int // VMs so far
}

// fill reads the store's pages until the list has its size, or many VMs were read. One more that is there makes Next.
// The first page has as many as are missing, for mostly all of them are chosen; each further one is larger.
func (p *page) fill(q store.VMFilter) error {
	seesAll := p.Allowed(policy.ReadVM, policy.Target{Project: q.Project, Cell: q.Cell})
	for q.Limit = p.size + 1 - len(p.list.Items); ; q.Limit = min(2*q.Limit, mostPage+1) {
		vms, err := p.Tx.VMs(q)
		if err != nil {
			return err
		}
		last := len(vms) < q.Limit
		p.read += len(vms)
		if !last {
			q.After = action.Label(vms[len(vms)-1])
		}
		vms = slices.DeleteFunc(vms, func(vm farm.VM) bool { return !p.filter.names(vm) || !seesAll && !p.Sees(vm) })
		if err := p.take(vms); err != nil || p.list.Next != "" || last {
			return err
		}
		if p.read >= mostRead {
			p.list.Next = q.After
			return nil
		}
	}
}

// take enters VMs into the list, those of the filter's state, until it has its size.
func (p *page) take(vms []farm.VM) error {
	if err := p.meet(vms); err != nil {
		return err
	}
	for _, vm := range vms {
		view, err := p.show(vm)
		if err != nil {
			return err
		}
		if p.filter.State != "" && view.State != p.filter.State {
			continue
		}
		if len(p.list.Items) == p.size {
			p.list.Next = action.Label(p.list.Items[p.size-1].VM)
			return nil
		}
		p.list.Items = append(p.list.Items, view)
	}
	return nil
}

// names reports whether a VM has the name and the tags of the filter.
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

// seenProjects are those whose VMs a caller with these roles may see, or "" for all: whoever is a reader in few
// projects does not have the whole farm read.
func seenProjects(who farm.Identity, grants []farm.Grant, asked string) []string {
	if asked != "" {
		return []string{asked}
	}
	if who.Root {
		return []string{""}
	}
	var mine []string
	for _, g := range grants {
		if g.Project == "" {
			if len(who.Projects) > 0 {
				return slices.Sorted(slices.Values(who.Projects))
			}
			return []string{""}
		}
		mine = append(mine, g.Project)
	}
	slices.Sort(mine)
	return slices.Compact(mine)
}

// onlyCell is the cell that all of a caller's roles are for, so that it may see no VM of another one; "": they are not
// for one cell.
func onlyCell(who farm.Identity, grants []farm.Grant) string {
	if who.Root || len(grants) == 0 {
		return ""
	}
	cell := grants[0].Cell
	if slices.ContainsFunc(grants, func(g farm.Grant) bool { return g.Cell != cell }) {
		return ""
	}
	return cell
}

// maySee reports whether there may be anything of a project, or of none, whatever its cell, that the caller may do an
// action to. Where there is not, nothing of it need be read.
func (c *call) maySee(a policy.Action, project string) bool {
	t := policy.Target{Project: project, Owner: c.Who.User}
	return c.Allowed(a, t) || slices.ContainsFunc(c.Grants, func(g farm.Grant) bool {
		t.Cell = g.Cell
		return g.Cell != "" && c.Allowed(a, t)
	})
}

// hostID is the ID of a host that a filter names. A caller who may see all hosts hears that one is not there. Others
// get what no host has as its ID: their list is empty, as for a host with VMs that they may not see.
func (c *call) hostID(ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	h, err := c.HostNamed(ref)
	if action.Missing(err) {
		h, err = c.Tx.Host(ref)
	}
	switch {
	case !action.Missing(err):
		return h.ID, err
	case c.Allowed(policy.ReadHost, policy.Target{}):
		return "", action.NoHost(ref)
	}
	return ref, nil
}

// Entries are lines of the audit log that the caller may see, newest first.
func (s *Server) Entries(ctx context.Context, who farm.Identity, f EntryFilter) (entries []farm.Entry, err error) {
	err = s.look(ctx, who, policy.ReadAudit, func(c *call) error {
		target := policy.Target{Project: f.Project, Owner: f.Who, Name: "the audit log"}
		if err := c.May(target); err != nil {
			return err
		}
		entries, err = c.Tx.Entries(f.Project, f.Who, f.Before, pageSize(f.Limit))
		return err
	})
	return entries, err
}
