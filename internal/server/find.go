package server

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// vm looks a VM up by its ID or as "project/name", if the caller may do the action to it. Of a VM that is not there
// people of its project hear that, and others that they may not.
func (c *call) vm(ref string) (farm.VM, error) {
	project, name, named := strings.Cut(ref, "/")
	if !named {
		vm, err := c.Tx.VM(ref)
		if action.Missing(err) {
			c.Target = policy.Target{Name: farm.Printable(ref)}
			return vm, noVM(ref)
		}
		if err != nil {
			return vm, err
		}
		return vm, c.May(action.VMTarget(vm))
	}
	vm, err := c.VMNamed(project, name)
	if action.Missing(err) {
		if err := c.May(policy.Target{Project: project, Owner: c.Who.User, Name: farm.Printable(ref)}); err != nil {
			return vm, err
		}
		return vm, noVM(ref)
	}
	if err != nil {
		return vm, err
	}
	return vm, c.May(action.VMTarget(vm))
}

func noVM(ref string) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM, Message: fmt.Sprintf("no VM %q", ref),
		Hint: "`grange vm list` shows those that there are; name it PROJECT/NAME, or by its ID"}
}

// host looks a host up by its name or ID, if the caller may do the action to it.
func (c *call) host(ref string) (farm.Host, error) {
	h, err := c.Tx.HostNamed(ref)
	if action.Missing(err) {
		h, err = c.Tx.Host(ref)
	}
	if action.Missing(err) {
		if err := c.May(policy.Target{Name: farm.Printable(ref)}); err != nil {
			return h, err
		}
		return h, noHost(ref)
	}
	if err != nil {
		return h, err
	}
	return h, c.May(action.HostTarget(h))
}

func noHost(ref string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoHost, Message: fmt.Sprintf("no host %q", ref),
		Hint: "`grange host list` shows those that there are"}
}
