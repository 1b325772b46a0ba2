package store

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// The filters of a host depend on the groups of its VMs, and on the VMs in the groups that those name. A transaction
// that writes any of them also writes a change for each host concerned.

func securityGroups() noun[farm.SecurityGroup] {
	return noun[farm.SecurityGroup]{kind: KindSecurityGroup, what: "security group",
		name:   func(g farm.SecurityGroup) string { return g.Project + "/" + g.Name },
		owner:  func(g farm.SecurityGroup) string { return g.Project },
		revise: func(g *farm.SecurityGroup, r int64) { g.Revision = r },
		change: func(g farm.SecurityGroup, c *Change) { c.Project = g.Project }}
}

// SecurityGroup is the one with a name in a project, other than the project's default one.
func (t farmRows) SecurityGroup(project, name string) (farm.SecurityGroup, error) {
	return securityGroups().get(t.sqlTx, project+"/"+name)
}

// SecurityGroups are those of a project, without its default one; "": of all projects.
func (t farmRows) SecurityGroups(project string) ([]farm.SecurityGroup, error) {
	return securityGroups().list(t.sqlTx, project)
}

// PutSecurityGroup writes a security group, new or not.
func (t farmRows) PutSecurityGroup(g farm.SecurityGroup) error {
	if err := securityGroups().put(t.sqlTx, g); err != nil {
		return err
	}
	return t.tellHosts(g.Project, g.Name)
}

// DeleteSecurityGroup takes a security group away. It does not look at VMs, or at rules that name it.
func (t farmRows) DeleteSecurityGroup(project, name string) error {
	return securityGroups().drop(t.sqlTx, project+"/"+name)
}

// TellMembers tells the hosts of a project's VMs that other VMs are in some groups than before, where any rule names
// one of these.
func (t vmRows) TellMembers(project string, members []string) error {
	if len(members) == 0 || t.told[project] {
		return nil
	}
	all, err := securityGroups().list(t.sqlTx, project)
	if err != nil {
		return err
	}
	for _, g := range all {
		if slices.ContainsFunc(members, g.Names) {
			return t.tellHosts(project, g.Name)
		}
	}
	return nil
}

// tellHosts has all hosts with VMs of a project look at what they are to drop, once in a transaction: those that get
// such VMs later in it are told of these.
func (t *sqlTx) tellHosts(project, group string) error {
	if t.told[project] {
		return nil
	}
	hosts, err := t.texts("SELECT DISTINCT host FROM vms WHERE project = $1 AND host <> '' ORDER BY host", project)
	if err != nil {
		return err
	}
	for _, host := range hosts {
		t.changed(Change{Kind: KindSecurityGroup, ID: project + "/" + group, Project: project, Host: host})
	}
	if t.told == nil {
		t.told = map[string]bool{}
	}
	t.told[project] = true
	return nil
}
