package hostlink

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// firewalls are what security groups of VMs come to, on one snapshot.
type firewalls struct {
	*store.Tx
	projects map[string]*projectGroups
}

// projectGroups are the security groups of a project, by name, and its VMs where any rule may mean them.
type projectGroups struct {
	groups map[string]farm.SecurityGroup
	peers  []farm.SecurityPeer
}

// of is that of one VM; nil: it is in no group. A group that is not there lets nothing pass.
func (f *firewalls) of(vm farm.VM) (*farm.Firewall, error) {
	if len(vm.SecurityGroups) == 0 {
		return nil, nil
	}
	p := f.projects[vm.Project]
	if p == nil {
		var err error
		if p, err = f.read(vm.Project); err != nil {
			return nil, err
		}
		if f.projects == nil {
			f.projects = map[string]*projectGroups{}
		}
		f.projects[vm.Project] = p
	}
	var groups []farm.SecurityGroup
	for _, name := range vm.SecurityGroups {
		groups = append(groups, p.groups[name])
	}
	wall := farm.FirewallOf(vm.Lease, groups, p.peers)
	return &wall, nil
}

func (f *firewalls) read(name string) (*projectGroups, error) {
	p := &projectGroups{groups: map[string]farm.SecurityGroup{}}
	project, err := f.Project(name)
	if err != nil && !action.Missing(err) {
		return nil, err
	}
	if err == nil {
		p.groups[farm.DefaultSecurityGroup] = project.DefaultGroup()
	}
	all, err := f.SecurityGroups(name)
	if err != nil {
		return nil, err
	}
	means := false // reading all VMs of a project takes long
	for _, g := range all {
		p.groups[g.Name] = g
		means = means || slices.ContainsFunc(g.Rules, func(r farm.SecurityRule) bool { return r.Group != "" })
	}
	if !means {
		return p, nil
	}
	return p, f.EachVM(store.VMFilter{Project: name}, func(vm farm.VM) {
		if len(vm.SecurityGroups) > 0 { // a lost one too: its address is its own until it is deleted
			p.peers = append(p.peers, farm.SecurityPeer{Groups: vm.SecurityGroups, Lease: vm.Lease})
		}
	})
}
