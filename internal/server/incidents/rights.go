package incidents

import (
	"errors"
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

func label(id int64) string { return fmt.Sprintf("incident %d", id) }

// places are where rights to an incident come from: each thing that it concerns and that is somewhere, once; the whole
// farm where there is none.
func places(i farm.Incident) (all []policy.Target) {
	for _, k := range i.Concerns {
		t := policy.Target{Project: k.Project, Cell: k.Cell, Owner: i.Opener}
		if k.Kind != farm.ConcernFinding && !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		all = []policy.Target{{Owner: i.Opener}}
	}
	return all
}

// targetOf is a place as the audit log has it.
func targetOf(i farm.Incident, place policy.Target) policy.Target {
	place.Name = label(i.ID)
	return place
}

// may is nil where the caller may do an action for one of the things that an incident concerns. Who may not read it is
// not told where these are.
func may(c *action.Call, a policy.Action, i farm.Incident) error {
	c.Target = policy.Target{Name: label(i.ID)}
	if !reads(c, i) {
		return hidden(c, i.ID)
	}
	var refused error
	for _, place := range places(i) {
		t := targetOf(i, place)
		err := policy.Allow(c.Who, c.Grants, a, t).Err()
		if err == nil || refused == nil {
			c.Target, refused = t, err
		}
		if err == nil {
			return nil
		}
	}
	return refused
}

// reads reports whether the caller may read an incident.
func reads(c *action.Call, i farm.Incident) bool { return allowed(c, policy.ReadIncident, i) }

func allowed(c *action.Call, a policy.Action, i farm.Incident) bool {
	return slices.ContainsFunc(places(i), func(t policy.Target) bool { return c.Allowed(a, t) })
}

func hidden(c *action.Call, id int64) error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNoRole,
		Message: fmt.Sprintf("%s may not read incident %d: it concerns no project and no cell in which %s has a role",
			c.Caller(), id, c.Caller()), Hint: "ask an administrator for a role in its project or cell"}
}

// nothingNamed is the error of who opens an incident that concerns no place, and is not somebody of the whole farm.
func nothingNamed(err error) error {
	e, ok := errors.AsType[*farm.Error](err)
	if !ok {
		return err
	}
	better := *e
	better.Hint = "name a VM, a host, a project or a cell that it concerns"
	return &better
}

// sees reports whether the caller may see a thing that an incident concerns: of an incident of one's own VM, hosts that
// somebody else named may be none of one's business.
func sees(c *action.Call, k farm.Concern) bool {
	t := policy.Target{Project: k.Project, Cell: k.Cell}
	switch k.Kind {
	case farm.ConcernHost:
		return c.Allowed(policy.ReadHost, t)
	case farm.ConcernVM:
		return c.Allowed(policy.ReadVM, t)
	case farm.ConcernProject:
		return c.Allowed(policy.ReadProject, t)
	}
	return true
}

// within are the projects and cells one of which an incident must have for its reader to have a right to it, by roles
// alone; nil: that does not follow from them.
func within(who farm.Identity, grants []farm.Grant) []store.IncidentWord {
	if who.Root {
		return nil
	}
	words := []store.IncidentWord{}
	for _, g := range grants {
		switch {
		case g.Project != "":
			words = append(words, store.IncidentWord{Kind: store.InProject, Word: g.Project})
		case g.Cell != "":
			words = append(words, store.IncidentWord{Kind: store.InCell, Word: g.Cell})
		default:
			return nil
		}
	}
	return words
}

// named looks up what an incident is to concern, of which the caller must have each.
func named(c *action.Call, n Names) (all []farm.Concern, err error) {
	for _, ref := range n.Hosts {
		h, err := c.FindHost(ref)
		if err != nil {
			return nil, err
		}
		all = append(all, farm.Concern{Kind: farm.ConcernHost, Name: h.Name, ID: h.ID, Cell: h.Cell})
	}
	for _, ref := range n.VMs {
		vm, err := c.FindVM(ref)
		if err != nil {
			return nil, err
		}
		all = append(all, farm.Concern{Kind: farm.ConcernVM, Name: action.Label(vm), ID: vm.ID, Project: vm.Project,
			Cell: vm.Cell})
	}
	for _, name := range n.Findings {
		if err := checkRule(name); err != nil {
			return nil, err
		}
		all = append(all, farm.Concern{Kind: farm.ConcernFinding, Name: name})
	}
	for _, name := range n.Projects {
		if err := c.May(policy.Target{Project: name}); err != nil {
			return nil, err
		}
		if _, err := c.FindProject(name); err != nil {
			return nil, err
		}
		all = append(all, farm.Concern{Kind: farm.ConcernProject, Name: name, Project: name})
	}
	for _, name := range n.Cells {
		if _, err := c.FindCell(name); err != nil {
			return nil, err
		}
		all = append(all, farm.Concern{Kind: farm.ConcernCell, Name: name, Cell: name})
	}
	return all, nil
}
