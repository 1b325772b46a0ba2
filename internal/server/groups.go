package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// Groups are actions on server groups.
type Groups struct{ server *Server }

// Put makes a server group. One that VMs name keeps its rule.
func (gs Groups) Put(ctx context.Context, who farm.Identity, g farm.ServerGroup, ifRevision int64) (view GroupView,
	err error) {
	revision, err := gs.server.change(ctx, who, policy.WriteGroup, func(c *call) error {
		view = GroupView{ServerGroup: g}
		if err := c.May(groupTarget(g.Project, g.Name)); err != nil {
			return err
		}
		if _, err := c.FindProject(g.Project); err != nil {
			return err
		}
		if err := checkGroup(g); err != nil {
			return err
		}
		was, err := c.Group(g.Project, g.Name)
		if err != nil && !action.Missing(err) {
			return err
		}
		if err := c.Still("server group "+c.Target.String(), c.Target, was.Revision, ifRevision); err != nil {
			return err
		}
		switch {
		case was.Name == "":
			if err := c.mayAddGroup(g.Project); err != nil {
				return err
			}
		case was.Affinity == g.Affinity:
			view.ServerGroup = was
			view.VMs, err = c.members(g.Project, g.Name)
			return err
		default:
			if err := c.unused(g.Project, g.Name); err != nil {
				return err
			}
		}
		if err := c.Tx.PutGroup(g); err != nil {
			return err
		}
		return c.Did(string(g.Affinity))
	})
	if view.Revision == 0 {
		view.Revision = revision
	}
	return view, err
}

// mayAddGroup refuses one more group than a project may have.
func (c *call) mayAddGroup(project string) error {
	all, err := c.Tx.Groups(project)
	if err != nil || len(all) < farm.MaxServerGroups {
		return err
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeQuota,
		Message: fmt.Sprintf("project %s has %d server groups, and may have no more", project, len(all)),
		Hint:    "delete one that no VM is in: `grange group list`"}
}

func checkGroup(g farm.ServerGroup) error {
	if err := farm.CheckName("server group", g.Name); err != nil {
		return err
	}
	switch g.Affinity {
	case farm.Together, farm.Apart, farm.SoftTogether, farm.SoftApart:
		return nil
	}
	return badVM("invalid server group rule %.80q; there are %s, %s, %s and %s", g.Affinity, farm.Together,
		farm.Apart, farm.SoftTogether, farm.SoftApart)
}

func groupTarget(project, name string) policy.Target {
	return policy.Target{Project: project, Name: farm.Printable(fmt.Sprintf("%.80s/%.80s", project, name))}
}

// members are the names of a group's VMs.
func (c *call) members(project, name string) ([]string, error) {
	vms, err := c.Tx.VMs(store.VMFilter{Project: project, Group: name})
	var names []string
	for _, vm := range vms {
		names = append(names, vm.Name)
	}
	return names, err
}

// unused refuses to touch a group that VMs name.
func (c *call) unused(project, name string) error {
	vms, err := c.members(project, name)
	if err != nil || len(vms) == 0 {
		return err
	}
	return &farm.Error{Kind: farm.Conflict, Code: CodeGroupUsed,
		Message: fmt.Sprintf("%s of project %s names server group %s: %s", farm.Count(len(vms), "VM"), project, name,
			vms[0]), Hint: "delete them first, or make another group"}
}

// List returns the server groups of a project; "": of all that the caller may see.
func (gs Groups) List(ctx context.Context, who farm.Identity, project string) (views []GroupView, err error) {
	err = gs.server.look(ctx, who, policy.ReadProject, func(c *call) error {
		views = nil
		if project != "" {
			if err := c.May(policy.Target{Project: project}); err != nil {
				return err
			}
		}
		for _, p := range c.readProjects(project) {
			if err := c.listGroups(p, &views); err != nil {
				return err
			}
		}
		return nil
	})
	return views, err
}

// readProjects are the projects that a caller may read, the one asked for if any; "": all.
func (c *call) readProjects(asked string) (names []string) {
	switch {
	case asked != "":
		return []string{asked}
	case c.Allowed(policy.ReadProject, policy.Target{}):
		return []string{""}
	}
	names = slices.Clone(c.Who.Projects)
	for _, g := range c.Grants {
		names = append(names, g.Project)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names),
		func(p string) bool { return p == "" || !c.Allowed(policy.ReadProject, policy.Target{Project: p}) })
}

// listGroups adds the server groups of a project, or of all, by two queries.
func (c *call) listGroups(project string, views *[]GroupView) error {
	groups, err := c.Tx.Groups(project)
	if err != nil {
		return err
	}
	members, err := c.Members(project)
	for _, g := range groups {
		*views = append(*views, GroupView{g, members[g.Project+"/"+g.Name]})
	}
	return err
}

// Delete removes a group that no VM names.
func (gs Groups) Delete(ctx context.Context, who farm.Identity, project, name string, ifRevision int64) error {
	_, err := gs.server.change(ctx, who, policy.WriteGroup, func(c *call) error {
		if err := c.May(groupTarget(project, name)); err != nil {
			return err
		}
		g, err := c.Group(project, name)
		if action.Missing(err) {
			return noGroup(project, name)
		}
		if err != nil {
			return err
		}
		if err := c.Still("server group "+c.Target.String(), c.Target, g.Revision, ifRevision); err != nil {
			return err
		}
		if err := c.unused(project, name); err != nil {
			return err
		}
		if err := c.Tx.DeleteGroup(project, name); err != nil {
			return err
		}
		return c.Did("deleted")
	})
	return err
}
