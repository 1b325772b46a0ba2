package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// SecurityGroups are actions on security groups.
type SecurityGroups struct{ server *Server }

// Put makes a security group, or gives it other rules, which its VMs have at once.
func (gs SecurityGroups) Put(ctx context.Context, who farm.Identity, g farm.SecurityGroup,
	ifRevision int64) (view SecurityGroupView, err error) {
	revision, err := gs.server.change(ctx, who, policy.WriteSecurityGroup, func(c *call) error {
		view = SecurityGroupView{SecurityGroup: g}
		if err := c.May(groupTarget(g.Project, g.Name)); err != nil {
			return err
		}
		if _, err := c.FindProject(g.Project); err != nil {
			return err
		}
		if err := g.Validate(); err != nil {
			return err
		}
		if g.Name == farm.DefaultSecurityGroup {
			return defaultStays(g.Project)
		}
		was, err := c.SecurityGroup(g.Project, g.Name)
		if err != nil && !action.Missing(err) {
			return err
		}
		if err := c.Still("security group "+c.Target.String(), c.Target, was.Revision, ifRevision); err != nil {
			return err
		}
		if err := c.namesGroups(g, was.Name == ""); err != nil {
			return err
		}
		if view.VMs, err = c.secured(g.Project, g.Name); err != nil {
			return err
		}
		if slices.Equal(was.Rules, g.Rules) && was.Name != "" {
			view.SecurityGroup = was
			return nil
		}
		if err := c.PutSecurityGroup(g); err != nil {
			return err
		}
		return c.Did(rulesText(g))
	})
	if view.Revision == 0 {
		view.Revision = revision
	}
	return view, err
}

func rulesText(g farm.SecurityGroup) string {
	var texts []string
	for _, r := range g.Rules {
		texts = append(texts, r.String())
	}
	return "rules: " + strings.Join(texts, "; ")
}

func defaultStays(project string) error {
	return &farm.Error{Kind: farm.Denied, Code: CodeDefaultGroup,
		Message: fmt.Sprintf("security group default of project %s follows from the project", project),
		Hint:    "an administrator sets `ssh_from` of the project in the farm file; or make another group"}
}

// namesGroups refuses rules that name what is not there, and one more group than a project may have.
func (c *call) namesGroups(g farm.SecurityGroup, added bool) error {
	all, err := c.Tx.SecurityGroups(g.Project)
	if err != nil {
		return err
	}
	if added && len(all) >= farm.MaxSecurityGroups {
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeQuota,
			Message: fmt.Sprintf("project %s has %d security groups, and may have no more", g.Project, len(all)),
			Hint:    "delete one that no VM is in"}
	}
	for _, r := range g.Rules {
		there := r.Group == "" || r.Group == g.Name || r.Group == farm.DefaultSecurityGroup ||
			slices.ContainsFunc(all, func(o farm.SecurityGroup) bool { return o.Name == r.Group })
		if !there {
			return noSecurityGroup(g.Project, r.Group)
		}
	}
	return nil
}

func noSecurityGroup(project, name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoSecurityGroup,
		Message: fmt.Sprintf("project %s has no security group %.80q", project, name),
		Hint:    "`grange security-group create` makes one"}
}

// secured are the names of the VMs in a security group.
func (c *call) secured(project, group string) (names []string, err error) {
	err = c.EachVM(store.VMFilter{Project: project}, func(vm farm.VM) {
		if slices.Contains(vm.SecurityGroups, group) {
			names = append(names, vm.Name)
		}
	})
	return names, err
}

// List returns the security groups of a project; "": of all that the caller may see. Each project's default group
// comes first.
func (gs SecurityGroups) List(ctx context.Context, who farm.Identity,
	project string) (views []SecurityGroupView, err error) {
	err = gs.server.look(ctx, who, policy.ReadProject, func(c *call) error {
		views = nil
		if project != "" {
			if err := c.May(policy.Target{Project: project}); err != nil {
				return err
			}
		}
		projects, err := c.Projects()
		if err != nil {
			return err
		}
		for _, p := range projects {
			if project != "" && p.Name != project || c.May(policy.Target{Project: p.Name}) != nil {
				continue
			}
			groups, err := c.Tx.SecurityGroups(p.Name)
			if err != nil {
				return err
			}
			members := map[string][]string{}
			if err := c.EachVM(store.VMFilter{Project: p.Name}, func(vm farm.VM) {
				for _, g := range vm.SecurityGroups {
					members[g] = append(members[g], vm.Name)
				}
			}); err != nil {
				return err
			}
			for _, g := range append([]farm.SecurityGroup{p.DefaultGroup()}, groups...) {
				views = append(views, SecurityGroupView{g, members[g.Name]})
			}
		}
		return nil
	})
	return views, err
}

// Get returns one security group.
func (gs SecurityGroups) Get(ctx context.Context, who farm.Identity, project, name string) (view SecurityGroupView,
	err error) {
	err = gs.server.look(ctx, who, policy.ReadProject, func(c *call) error {
		if err := c.May(policy.Target{Project: project}); err != nil {
			return err
		}
		p, err := c.FindProject(project)
		if err != nil {
			return err
		}
		if view.SecurityGroup = p.DefaultGroup(); name != farm.DefaultSecurityGroup {
			view.SecurityGroup, err = c.SecurityGroup(project, name)
		}
		if action.Missing(err) {
			return noSecurityGroup(project, name)
		}
		if err != nil {
			return err
		}
		view.VMs, err = c.secured(project, name)
		return err
	})
	return view, err
}

// Delete removes a security group that no VM is in and no rule names.
func (gs SecurityGroups) Delete(ctx context.Context, who farm.Identity, project, name string, ifRevision int64) error {
	_, err := gs.server.change(ctx, who, policy.WriteSecurityGroup, func(c *call) error {
		if err := c.May(groupTarget(project, name)); err != nil {
			return err
		}
		if name == farm.DefaultSecurityGroup {
			return defaultStays(project)
		}
		g, err := c.SecurityGroup(project, name)
		if action.Missing(err) {
			return noSecurityGroup(project, name)
		}
		if err != nil {
			return err
		}
		if err := c.Still("security group "+c.Target.String(), c.Target, g.Revision, ifRevision); err != nil {
			return err
		}
		if err := c.unnamed(project, name); err != nil {
			return err
		}
		if err := c.DeleteSecurityGroup(project, name); err != nil {
			return err
		}
		return c.Did("deleted")
	})
	return err
}

// unnamed refuses to delete a security group that VMs or other groups name.
func (c *call) unnamed(project, name string) error {
	used := func(by string) error {
		return &farm.Error{Kind: farm.Conflict, Code: CodeSecurityGroupUsed,
			Message: fmt.Sprintf("%s of project %s names security group %s", by, project, name),
			Hint:    "change that first"}
	}
	vms, err := c.secured(project, name)
	if err != nil {
		return err
	}
	if len(vms) > 0 {
		return used("VM " + vms[0])
	}
	all, err := c.Tx.SecurityGroups(project)
	for _, g := range all {
		if g.Name != name && g.Names(name) {
			return used("a rule of security group " + g.Name)
		}
	}
	return err
}

// joins returns the security groups that VMs on a network are to be in: those asked for, or what their project says.
// Each is there, and has room for more VMs, unless they are in it already.
func (c *call) joins(p farm.Project, has, asked []string, network string, more int) ([]string, error) {
	if len(asked) == 0 && p.SecurityGroups && network != "" {
		asked = []string{farm.DefaultSecurityGroup}
	}
	switch {
	case len(asked) == 0:
		return nil, nil
	case network == "":
		return nil, badVM("a VM in security groups needs a network")
	case len(asked) > farm.MaxGroupsOfVM:
		return nil, badVM("%d security groups; a VM is in at most %d", len(asked), farm.MaxGroupsOfVM)
	}
	groups := slices.Compact(slices.Sorted(slices.Values(asked)))
	for _, name := range groups {
		if name == farm.DefaultSecurityGroup || slices.Contains(has, name) {
			continue
		}
		_, err := c.SecurityGroup(p.Name, name)
		if action.Missing(err) {
			return nil, noSecurityGroup(p.Name, name)
		}
		if err != nil {
			return nil, err
		}
		there, err := c.secured(p.Name, name)
		if err != nil {
			return nil, err
		}
		if len(there)+more > farm.MaxVMsOfGroup {
			return nil, &farm.Error{Kind: farm.Denied, Code: farm.CodeQuota,
				Message: fmt.Sprintf("security group %s of project %s has %d VMs, and may have %d", name, p.Name,
					len(there), farm.MaxVMsOfGroup), Hint: "make another group with the same rules"}
		}
	}
	return groups, nil
}

// regroup changes the security groups of a VM, on a host that can hold it to them.
func (c *call) regroup(vm *farm.VM, asked []string) error {
	p, err := c.FindProject(vm.Project)
	if err != nil {
		return err
	}
	if len(asked) == 0 && p.SecurityGroups && vm.Network != "" {
		return badVM("VMs of project %s are in a security group: name one, as default", p.Name)
	}
	groups, err := c.joins(p, vm.SecurityGroups, asked, vm.Network, 1)
	if err != nil {
		return err
	}
	if len(groups) > 0 && vm.Host != "" {
		h, err := c.Tx.Host(vm.Host)
		if err != nil {
			return err
		}
		if !h.Facts.FollowsFlows() {
			return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoFilter,
				Message: fmt.Sprintf("host %s of VM %s cannot hold it to security groups", h.Name, action.Label(*vm)),
				Hint:    "its agent logs why; make the VM anew, and it goes to a host that can"}
		}
	}
	changed := slices.Concat(vm.SecurityGroups, groups)
	vm.SecurityGroups = groups
	return c.TellMembers(vm.Project, changed)
}
