// Package filesystems is what the fleet's hosts have of the network file systems that the site declares: clients are
// counted, and drains are kept for all hosts.
package filesystems

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/mounts"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/hostlink"
)

// FileSystems are actions on the file systems that the site declares.
type FileSystems struct {
	actions  action.Actions
	declared []farm.FileSystem
}

// New makes them.
func New(actions action.Actions, declared []farm.FileSystem) *FileSystems {
	return &FileSystems{actions, declared}
}

// List returns all, by name.
func (s *FileSystems) List(ctx context.Context, who farm.Identity) (views []fleet.FileSystem, err error) {
	err = s.actions.Look(ctx, who, policy.ReadFileSystem, func(c *action.Call) error {
		if err := c.May(policy.Target{}); err != nil {
			return err
		}
		views, err = s.show(c, s.declared)
		return err
	})
	return views, err
}

// Drain keeps VMs from starting with directories of a file system, on all hosts. Draining again changes deadline and
// reason.
func (s *FileSystems) Drain(ctx context.Context, who farm.Identity, name string,
	o fleet.FileSystemOrder) (fleet.FileSystem, error) {
	said := "deadline never"
	if o.Deadline != nil {
		said = "deadline " + action.When(*o.Deadline)
	}
	return s.alter(ctx, who, policy.DrainFileSystem, name, said+", "+o.Reason,
		func(c *action.Call, f farm.FileSystem, all []api.FileSystemDrain) []api.FileSystemDrain {
			d := api.FileSystemDrain{Name: f.Name, Match: api.FileSystemMatch(f.Match), Reason: o.Reason, Since: c.Now,
				Deadline: o.Deadline, Until: o.Until, Fleet: true}
			if i := slices.IndexFunc(all, called(f.Name)); i >= 0 {
				d.Since = all[i].Since
				all[i] = d
				return all
			}
			return append(all, d)
		})
}

// Resume ends the drain of a file system. Ending what is not is no error.
func (s *FileSystems) Resume(ctx context.Context, who farm.Identity, name string) (fleet.FileSystem, error) {
	return s.alter(ctx, who, policy.ResumeFileSystem, name, "",
		func(_ *action.Call, f farm.FileSystem, all []api.FileSystemDrain) []api.FileSystemDrain {
			return slices.DeleteFunc(all, called(f.Name))
		})
}

func called(name string) func(api.FileSystemDrain) bool {
	return func(d api.FileSystemDrain) bool { return d.Name == name }
}

// alter changes the drains, and shows the file system that it was about.
func (s *FileSystems) alter(ctx context.Context, who farm.Identity, a policy.Action, name, said string,
	do func(*action.Call, farm.FileSystem, []api.FileSystemDrain) []api.FileSystemDrain) (v fleet.FileSystem,
	err error) {
	_, err = s.actions.Change(ctx, who, a, func(c *action.Call) error {
		if err := c.May(policy.Target{Name: farm.Printable(name)}); err != nil {
			return err
		}
		all, err := hostlink.FileSystemDrains(c.Tx)
		if err != nil {
			return err
		}
		f, err := s.find(name, all)
		if err != nil {
			return err
		}
		text, err := json.Marshal(do(c, f, all))
		if err != nil {
			return err
		}
		if err := c.PutSetting(hostlink.SettingFileSystems, text); err != nil {
			return err
		}
		views, err := s.show(c, []farm.FileSystem{f})
		if err != nil {
			return err
		}
		v = views[0]
		return c.Did(said)
	})
	return v, err
}

// find is a file system that is declared, or was when it was drained.
func (s *FileSystems) find(name string, drains []api.FileSystemDrain) (farm.FileSystem, error) {
	for _, f := range s.declared {
		if f.Name == name {
			return f, nil
		}
	}
	if i := slices.IndexFunc(drains, called(name)); i >= 0 {
		return farm.FileSystem{Name: name, Match: farm.FileSystemMatch(drains[i].Match)}, nil
	}
	return farm.FileSystem{}, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoFileSystem,
		Message: fmt.Sprintf("no file system %.80q", name),
		Hint:    "they are declared as [file_systems.NAME] in the server's configuration"}
}

// show counts the clients of file systems.
func (s *FileSystems) show(c *action.Call, some []farm.FileSystem) ([]fleet.FileSystem, error) {
	drains, err := hostlink.FileSystemDrains(c.Tx)
	if err != nil {
		return nil, err
	}
	hosts, err := c.HostsBrief("")
	if err == nil {
		err = c.AddFacts(hosts)
	}
	if err != nil {
		return nil, err
	}
	views := []fleet.FileSystem{}
	for _, f := range some {
		v := count(f, hosts, func(h farm.Host) bool { return c.SeesHost(h) })
		if i := slices.IndexFunc(drains, called(f.Name)); i >= 0 {
			v.Drain = &drains[i]
		}
		views = append(views, v)
	}
	return views, nil
}

// count is a file system with its clients among hosts. sees reports which of these may be named.
func count(f farm.FileSystem, hosts []farm.Host, sees func(farm.Host) bool) fleet.FileSystem {
	v := fleet.FileSystem{Name: f.Name, Match: api.FileSystemMatch(f.Match), Note: f.Note, Budget: f.Budget}
	match := mounts.Match(f.Match)
	for _, h := range hosts {
		client, one := false, fleet.FileSystemHost{Host: h.Name, Drained: true}
		for _, m := range h.Facts.FileSystems {
			if match.Has(mounts.Mount{Source: m.Source, Type: m.Type, Point: m.MountPoint}) {
				client = true
				one.VMs = max(one.VMs, m.VMs) // of one that is mounted twice, the same VMs are counted twice
				one.Drained = one.Drained && slices.Contains(m.Drains, f.Name)
			}
		}
		if !client {
			continue
		}
		v.Clients, v.VMs = v.Clients+1, v.VMs+one.VMs
		if sees(h) {
			v.Hosts = append(v.Hosts, one)
		}
	}
	slices.SortFunc(v.Hosts, func(a, b fleet.FileSystemHost) int { return cmp.Compare(a.Host, b.Host) })
	return v
}
