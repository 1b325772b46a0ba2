package farmfile

import (
	"cmp"
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// The objects of a farm, from the tables of a file.

func (f settingsTable) settings() (farm.Settings, error) {
	s := farm.Settings{DefaultImage: f.DefaultImage, Facts: f.Facts}
	if f.BootTimeout != "" {
		timeout, err := parseAge(f.BootTimeout)
		if err != nil {
			return s, fmt.Errorf("settings: boot_timeout: %w", err)
		}
		s.BootTimeout = timeout
	}
	return s, s.Validate()
}

func (f maximaTable) maxima() (farm.Maxima, error) {
	q, err := (&quotaTable{CPUs: f.CPUs, Memory: f.Memory, Scratch: f.Scratch}).quota()
	m := farm.Maxima{CPUs: q.CPUs, Memory: q.Memory, Scratch: q.Scratch,
		Guest: farm.GuestTopology{Sockets: f.Sockets, Cores: f.Cores, Threads: f.Threads}, CPUModels: f.CPUModels}
	if err != nil {
		return m, fmt.Errorf("maxima: %w", err)
	}
	return m, m.Validate()
}

func (f *quotaTable) quota() (q farm.Quota, err error) {
	if f == nil {
		return q, nil
	}
	q.VMs, q.CPUs = f.VMs, f.CPUs
	if q.Memory, err = farm.ParseBytes(cmp.Or(f.Memory, "0")); err != nil {
		return q, fmt.Errorf("memory: %w", err)
	}
	if q.Scratch, err = farm.ParseBytes(cmp.Or(f.Scratch, "0")); err != nil {
		return q, fmt.Errorf("scratch: %w", err)
	}
	return q, nil
}

func (f cellTable) cell(name string) (farm.FarmCell, error) {
	c := farm.Cell{Name: name, Broker: f.Broker, Batch: f.Batch, Default: f.Default, Projects: f.Projects,
		Packing: farm.Packing(f.Packing), KeepWhole: f.KeepWhole, Overcommit: f.Overcommit, PerHost: f.PerHost,
		Services: f.Services, Labels: f.Labels}
	if f.Open != nil && !*f.Open {
		c.Closed, c.Reason = true, f.Reason
	} else if f.Reason != "" {
		return farm.FarmCell{}, fmt.Errorf("cell %s: reason says why a cell is closed, and goes with open = false",
			name)
	}
	var err error
	if c.Limits, err = f.Limits.quota(); err != nil {
		return farm.FarmCell{}, fmt.Errorf("cell %s: limits: %w", name, err)
	}
	c = c.WithDefaults()
	return farm.FarmCell{Cell: c, Open: f.Open}, c.Validate()
}

func (f projectTable) project(name string) (farm.Project, error) {
	p := farm.Project{Name: name, Account: f.Account, Networks: f.Networks, Shapes: f.Shapes, Images: f.Images,
		Purpose: farm.Purpose(f.Purpose), Pledge: f.Pledge, SecurityGroups: f.SecurityGroups}
	if f.Purpose == farm.PurposeCompute.String() {
		p.Purpose = farm.PurposeCompute
	}
	var err error
	if p.Quota, err = f.Quota.quota(); err != nil {
		return p, fmt.Errorf("project %s: quota: %w", name, err)
	}
	if f.MaxAge != "" {
		if p.MaxAge, err = parseAge(f.MaxAge); err != nil {
			return p, fmt.Errorf("project %s: max_age: %w", name, err)
		}
	}
	for _, text := range f.SSHFrom {
		from, err := farm.ParseCIDR(text)
		if err != nil {
			return p, fmt.Errorf("project %s: ssh_from: %w", name, err)
		}
		p.SSHFrom = append(p.SSHFrom, from)
	}
	return p, p.Validate()
}

func (f networkTable) network(name string) (farm.FleetNetwork, error) {
	n := farm.FleetNetwork{Name: name, Bridge: f.Bridge, VLAN: f.VLAN, VXLAN: f.VXLAN, Gateway: f.Gateway, DNS: f.DNS,
		Domain: f.Domain, Names: f.Names, Isolate: f.Isolate, Closed: f.Closed, Hosts: f.Hosts}
	for _, text := range f.Addresses {
		pool, err := farm.ParseAddressPool(text)
		if err != nil {
			return n, fmt.Errorf("network %s: %w", name, err)
		}
		n.Addresses = append(n.Addresses, pool)
	}
	return n, n.Validate()
}

func (f scoreTable) score(name string) (farm.Score, error) {
	s := farm.Score{Name: name, Hardware: f.Hardware, CPUs: f.CPUs, Core: f.Core, Unit: f.Unit, Source: f.Source}
	return s, s.Validate()
}

func (f userTable) user(name string) (farm.User, error) {
	subjects, err := farm.PlainSubjects(f.Subjects)
	if err != nil {
		return farm.User{}, fmt.Errorf("user %s: %w", name, err)
	}
	u := farm.User{Name: name, Subjects: subjects, Logins: f.Logins, Disabled: f.Disabled}
	return u, u.Validate()
}
