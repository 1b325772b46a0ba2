package action

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// Codes of errors of every kind of action; see docs/errors.md.
const (
	CodeChanged   farm.Code = "changed"    // another revision than If-Match says
	CodeNoProject farm.Code = "no-project" // no project of that name
	CodeNoToken   farm.Code = "no-token"   // no token, or join token, of the caller's
	CodeNoHost    farm.Code = "no-host"    // no such host
	CodeExists    farm.Code = "exists"     // there is one of that name, and If-None-Match says that there is none
)

// Missing reports whether an error is of a lookup that found nothing.
func Missing(err error) bool { return farm.IsKind(err, farm.NotFound) }

// OrNone is a list that was read, never nil.
func OrNone[T any](list []T, err error) ([]T, error) {
	if list == nil {
		list = []T{}
	}
	return list, err
}

// FindCell looks a cell up, if the caller may do the action to it.
func (c *Call) FindCell(name string) (farm.Cell, error) {
	if err := c.May(CellTarget(name)); err != nil {
		return farm.Cell{}, err
	}
	cell, err := c.Tx.Cell(name)
	if Missing(err) {
		err = NoCell(name)
	}
	return cell, err
}

// FindProject looks a project up, whatever the caller may do to it.
func (c *Call) FindProject(name string) (farm.Project, error) {
	p, err := c.Tx.Project(name)
	if Missing(err) {
		err = NoProject(name)
	}
	return p, err
}

// NoProject is the error of a project that is not there.
func NoProject(name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoProject,
		Message: fmt.Sprintf("no project %.80q", name),
		Hint:    "`grange project list` shows those that you may see"}
}

// NoCell is the error of a cell that is not there.
func NoCell(name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoSuchCell,
		Message: fmt.Sprintf("no cell %.80q", name), Hint: "`grange cell list` shows those that there are"}
}

// FindVM looks a VM up by its ID or as "project/name", if the caller may do the action to it. The answer for a VM that
// the caller may not see is the same as for one that is not there.
func (c *Call) FindVM(ref string) (vm farm.VM, err error) {
	project, name, named := strings.Cut(ref, "/")
	if named {
		vm, err = c.VMNamed(project, name)
	} else {
		vm, err = c.Tx.VM(ref)
	}
	switch {
	case Missing(err):
		return farm.VM{}, c.absentVM(ref)
	case err != nil:
		return vm, err
	case !c.Sees(vm):
		return farm.VM{}, c.hide(VMTarget(vm), c.absentVM(ref))
	}
	return vm, c.May(VMTarget(vm))
}

// absentVM is what the caller hears of a VM that is not there.
func (c *Call) absentVM(ref string) error {
	project, _, named := strings.Cut(ref, "/")
	if !named {
		c.Target = policy.Target{Name: farm.Printable(ref)}
		return NoVM(ref)
	}
	if err := c.May(policy.Target{Project: project, Owner: c.Who.User, Name: farm.Printable(ref)}); err != nil {
		return err
	}
	return NoVM(ref)
}

// hide returns what the caller is told of a target that it may not see. The audit log gets the target and the rule.
func (c *Call) hide(target policy.Target, told error) error {
	c.unseen = c.May(target)
	return told
}

// NoVM is the error of a VM that is not there.
func NoVM(ref string) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM, Message: fmt.Sprintf("no VM %q", ref),
		Hint: "`grange vm list` shows those that there are; name it PROJECT/NAME, or by its ID"}
}

// FindHost looks a host up by its name or ID, if the caller may do the action to it. The answer for a host that the
// caller may not see is the same as for one that is not there.
func (c *Call) FindHost(ref string) (farm.Host, error) {
	h, err := c.Tx.HostNamed(ref)
	if Missing(err) {
		h, err = c.Tx.Host(ref)
	}
	switch {
	case Missing(err):
		return h, c.absentHost(ref)
	case err != nil:
		return h, err
	case !c.SeesHost(h):
		return farm.Host{}, c.hide(HostTarget(h), c.absentHost(ref))
	}
	return h, c.May(HostTarget(h))
}

// absentHost is what the caller hears of a host that is not there.
func (c *Call) absentHost(ref string) error {
	if err := c.May(policy.Target{Name: farm.Printable(ref)}); err != nil {
		return err
	}
	return NoHost(ref)
}

// NoHost is the error of a host that is not there.
func NoHost(ref string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoHost, Message: fmt.Sprintf("no host %q", ref),
		Hint: "`grange host list` shows those that there are"}
}
