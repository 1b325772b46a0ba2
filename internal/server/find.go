package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// missing tells the error of a lookup that found nothing.
func missing(err error) bool { return farm.IsKind(err, farm.NotFound) }

// vm looks a VM up by its ID or as "project/name", if the caller may do the action to it. Of a VM that is not there
// people of its project hear that, and others that they may not.
func (c *call) vm(ref string) (farm.VM, error) {
	project, name, named := strings.Cut(ref, "/")
	if !named {
		vm, err := c.Tx.VM(ref)
		if missing(err) {
			c.target = policy.Target{Name: farm.Printable(ref)}
			return vm, noVM(ref)
		}
		if err != nil {
			return vm, err
		}
		return vm, c.may(vmTarget(vm))
	}
	vm, err := c.VMNamed(project, name)
	if missing(err) {
		if err := c.may(policy.Target{Project: project, Owner: c.who.User, Name: farm.Printable(ref)}); err != nil {
			return vm, err
		}
		return vm, noVM(ref)
	}
	if err != nil {
		return vm, err
	}
	return vm, c.may(vmTarget(vm))
}

func noVM(ref string) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM, Message: fmt.Sprintf("no VM %q", ref),
		Hint: "`grange vm list` shows those that there are; name it PROJECT/NAME, or by its ID"}
}

// host looks a host up by its name or ID, if the caller may do the action to it.
func (c *call) host(ref string) (farm.Host, error) {
	h, err := c.Tx.HostNamed(ref)
	if missing(err) {
		h, err = c.Tx.Host(ref)
	}
	if missing(err) {
		if err := c.may(policy.Target{Name: farm.Printable(ref)}); err != nil {
			return h, err
		}
		return h, noHost(ref)
	}
	if err != nil {
		return h, err
	}
	return h, c.may(hostTarget(h))
}

func noHost(ref string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoHost, Message: fmt.Sprintf("no host %q", ref),
		Hint: "`grange host list` shows those that there are"}
}

// cell looks a cell up, if the caller may do the action to it.
func (c *call) cell(name string) (farm.Cell, error) {
	if err := c.may(cellTarget(name)); err != nil {
		return farm.Cell{}, err
	}
	cell, err := c.Tx.Cell(name)
	if missing(err) {
		err = noCell(name)
	}
	return cell, err
}

// unchanged holds the revision that a caller has seen of a VM against the last one at which people wanted something
// else of it. What its host reported meanwhile is no conflict.
func (c *call) unchanged(vm farm.VM, seen int64) error {
	return c.still("VM "+label(vm), vmTarget(vm), vm.Changed, seen)
}

// still is unchanged for whatever has a revision of its own; what names it for people, has is 0 where there is none.
func (c *call) still(what string, target policy.Target, has, seen int64) error {
	if seen == 0 || has != 0 && has <= seen {
		return nil
	}
	said, _ := c.meanwhile(target, seen)
	return changedSince(what, seen, said)
}

func changedSince(what string, seen int64, said string) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeChanged,
		Message: fmt.Sprintf("%s was changed since revision %d%s", what, seen, said),
		Hint:    "look at it again, and decide"}
}

// stillHost is still for a host. Its row changes with each report that has something new, which is no conflict: what
// people did to it is in the audit log. Where that is too long to be searched, they may have.
func (c *call) stillHost(h farm.Host, seen int64) error {
	if seen == 0 || h.Revision <= seen {
		return nil
	}
	said, all := c.meanwhile(hostTarget(h), seen)
	if said == "" && all {
		return nil
	}
	return changedSince("host "+h.Name, seen,
		cmp.Or(said, ", or may have been: too much was done in the fleet since to tell"))
}

// lookBack is how many entries of a project, or of the farm, are searched at a time for what changed, and maxLookBacks
// how often.
const (
	lookBack     = 200
	maxLookBacks = 10
)

// nobodys are what the audit log has of a host that nobody did.
var nobodys = []policy.Action{silentHost, backHost, renewHost}

// meanwhile returns who changed what after a revision, by the audit log: "; at 17: ann, vm.stop". all is false when the
// log was not searched so far back.
func (c *call) meanwhile(target policy.Target, after int64) (text string, all bool) {
	var said []string
	var last int64
	for range maxLookBacks {
		entries, err := c.Entries(target.Project, "", last, lookBack)
		if err != nil {
			return "", false
		}
		for _, e := range entries {
			if e.Revision <= after {
				return strings.Join(said, ""), true
			}
			if last = e.ID; e.Target == target.String() && e.Outcome == outcomeDone &&
				!slices.Contains(nobodys, policy.Action(e.Action)) {
				said = append(said, strings.TrimSuffix(fmt.Sprintf("; at %d: %s, %s, %s", e.Revision, e.Who, e.Action,
					e.Reason), ", "))
			}
		}
		if len(entries) < lookBack {
			return strings.Join(said, ""), true
		}
	}
	return strings.Join(said, ""), false
}
