package wire

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// Farm is the farm as data on the wire. Lists that say nothing stay nil.
func Farm(f farm.Farm) fleet.Farm {
	out := fleet.Farm{Cells: each(f.Cells, FarmCell), Projects: each(f.Projects, FarmProject),
		Shapes: each(f.Shapes, Shape), Networks: each(f.Networks, Network), Groups: each(f.Groups, Group),
		Users: each(f.Users, User), Grants: each(f.Grants, Grant), Mappings: each(f.Mappings, Mapping),
		Scores: each(f.Scores, func(s farm.Score) fleet.Score { return fleet.Score(s) })}
	if f.Settings != nil {
		s := Settings(*f.Settings)
		out.Settings = &s
	}
	if m := f.Maxima; m != nil {
		out.Maxima = &fleet.Maxima{CPUs: m.CPUs, Memory: uint64(m.Memory), Scratch: uint64(m.Scratch),
			Sockets: m.Guest.Sockets, Cores: m.Guest.Cores, Threads: m.Guest.Threads, CPUModels: m.CPUModels}
	}
	return out
}

// ParseFarm reads a farm. The error is a *farm.Error of kind Invalid. What names what is not looked at.
func ParseFarm(v fleet.Farm) (farm.Farm, error) {
	f := farm.Farm{Cells: each(v.Cells, parseFarmCell), Groups: each(v.Groups, ParseGroup),
		Users: each(v.Users, ParseUser), Grants: each(v.Grants, ParseGrant),
		Mappings: each(v.Mappings, ParseMapping),
		Scores:   each(v.Scores, func(s fleet.Score) farm.Score { return farm.Score(s) })}
	var err error
	if f.Projects, err = tryEach(v.Projects, parseFarmProject); err != nil {
		return f, err
	}
	if f.Shapes, err = tryEach(v.Shapes, ParseShape); err != nil {
		return f, err
	}
	if f.Networks, err = tryEach(v.Networks, ParseNetwork); err != nil {
		return f, err
	}
	if v.Settings != nil {
		s := ParseSettings(*v.Settings)
		f.Settings = &s
	}
	if m := v.Maxima; m != nil {
		f.Maxima = &farm.Maxima{CPUs: m.CPUs, Memory: farm.Bytes(m.Memory), Scratch: farm.Bytes(m.Scratch),
			CPUModels: m.CPUModels, Guest: farm.GuestTopology{Sockets: m.Sockets, Cores: m.Cores, Threads: m.Threads}}
	}
	return f, nil
}

// each converts a list; nil stays nil.
func each[A, B any](list []A, convert func(A) B) []B {
	if list == nil {
		return nil
	}
	out := make([]B, 0, len(list))
	for _, a := range list {
		out = append(out, convert(a))
	}
	return out
}

func tryEach[A, B any](list []A, convert func(A) (B, error)) ([]B, error) {
	if list == nil {
		return nil, nil
	}
	out := make([]B, 0, len(list))
	for i, a := range list {
		b, err := convert(a)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		out = append(out, b)
	}
	return out, nil
}

// FarmCell is a cell as people decide of it.
func FarmCell(c farm.FarmCell) fleet.FarmCell {
	return fleet.FarmCell{Name: c.Name, Broker: c.Broker, Open: c.Open, Reason: c.Reason, Default: c.Default,
		Projects: c.Projects, Packing: string(c.Packing), KeepWhole: c.KeepWhole, Overcommit: c.Overcommit,
		Limits: Quota(c.Limits), PerHost: c.PerHost, Services: c.Services, Batch: c.Batch, Labels: c.Labels}
}

func parseFarmCell(v fleet.FarmCell) farm.FarmCell {
	c := farm.Cell{Name: v.Name, Broker: v.Broker, Default: v.Default, Projects: v.Projects,
		Packing: farm.Packing(v.Packing), KeepWhole: v.KeepWhole, Overcommit: v.Overcommit,
		Limits: ParseQuota(v.Limits), PerHost: v.PerHost, Services: v.Services, Batch: v.Batch, Labels: v.Labels,
		Reason: v.Reason}
	c.Closed = v.Open != nil && !*v.Open
	return farm.FarmCell{Cell: c.WithDefaults(), Open: v.Open}
}

// Quota is a quota on the wire.
func Quota(q farm.Quota) fleet.Quota {
	return fleet.Quota{VMs: q.VMs, CPUs: q.CPUs, Memory: uint64(q.Memory), Scratch: uint64(q.Scratch)}
}

// ParseQuota reads one.
func ParseQuota(v fleet.Quota) farm.Quota {
	return farm.Quota{VMs: v.VMs, CPUs: v.CPUs, Memory: farm.Bytes(v.Memory), Scratch: farm.Bytes(v.Scratch)}
}

// FarmProject is a project as people decide of it.
func FarmProject(p farm.Project) fleet.FarmProject {
	return fleet.FarmProject{Name: p.Name, Account: p.Account, Quota: Quota(p.Quota), Networks: p.Networks,
		Shapes: p.Shapes, Images: p.Images, MaxAge: p.MaxAge.Seconds(), Purpose: string(p.Purpose), Pledge: p.Pledge,
		SecurityGroups: p.SecurityGroups, SSHFrom: each(p.SSHFrom, netip.Prefix.String)}
}

func parseFarmProject(v fleet.FarmProject) (farm.Project, error) {
	from, err := tryEach(v.SSHFrom, farm.ParseCIDR)
	return farm.Project{Name: v.Name, Account: v.Account, Quota: ParseQuota(v.Quota), Networks: v.Networks,
		Shapes: v.Shapes, Images: v.Images, MaxAge: seconds(v.MaxAge), Purpose: farm.Purpose(v.Purpose),
		Pledge: v.Pledge, SecurityGroups: v.SecurityGroups, SSHFrom: from}, err
}

// seconds is exact: float64 has more digits than a nanosecond in a century needs to be told from its neighbours after
// rounding to milliseconds.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}

// Network is a network on the wire.
func Network(n farm.FleetNetwork) fleet.Network {
	return fleet.Network{Name: n.Name, Bridge: n.Bridge, VLAN: n.VLAN, VXLAN: n.VXLAN,
		Addresses: each(n.Addresses, farm.AddressPool.String), Gateway: n.Gateway, DNS: n.DNS, Domain: n.Domain,
		Names: n.Names, Isolate: n.Isolate, Closed: n.Closed, Hosts: n.Hosts, Revision: n.Revision}
}

// ParseNetwork reads one. The error is a *farm.Error of kind Invalid.
func ParseNetwork(v fleet.Network) (farm.FleetNetwork, error) {
	pools, err := tryEach(v.Addresses, farm.ParseAddressPool)
	return farm.FleetNetwork{Name: v.Name, Bridge: v.Bridge, VLAN: v.VLAN, VXLAN: v.VXLAN, Addresses: pools,
		Gateway: v.Gateway, DNS: v.DNS, Domain: v.Domain, Names: v.Names, Isolate: v.Isolate, Closed: v.Closed,
		Hosts:    v.Hosts,
		Revision: v.Revision}, err
}

// Group is a server group on the wire.
func Group(g farm.ServerGroup) fleet.Group {
	return fleet.Group{Project: g.Project, Name: g.Name, Affinity: string(g.Affinity), Revision: g.Revision}
}

// ParseGroup reads one.
func ParseGroup(v fleet.Group) farm.ServerGroup {
	return farm.ServerGroup{Project: v.Project, Name: v.Name, Affinity: farm.Affinity(v.Affinity), Revision: v.Revision}
}

// User is a user on the wire.
func User(u farm.User) fleet.User {
	return fleet.User{Name: u.Name, Subjects: u.Subjects, Logins: u.Logins, Disabled: u.Disabled, Revision: u.Revision}
}

// ParseUser reads one.
func ParseUser(v fleet.User) farm.User {
	return farm.User{Name: v.Name, Subjects: v.Subjects, Logins: v.Logins, Disabled: v.Disabled, Revision: v.Revision}
}

// Grant is a grant on the wire.
func Grant(g farm.Grant) fleet.Grant {
	return fleet.Grant{User: g.User, Role: string(g.Role), Project: g.Project, Cell: g.Cell}
}

// ParseGrant reads one.
func ParseGrant(v fleet.Grant) farm.Grant {
	return farm.Grant{User: v.User, Role: farm.Role(v.Role), Project: v.Project, Cell: v.Cell}
}

// Mapping is a mapping on the wire.
func Mapping(m farm.Mapping) fleet.Mapping {
	return fleet.Mapping{Issuer: m.Issuer, Claim: m.Claim, Value: m.Value, Role: string(m.Role), Project: m.Project,
		Cell: m.Cell}
}

// ParseMapping reads one.
func ParseMapping(v fleet.Mapping) farm.Mapping {
	return farm.Mapping{Issuer: v.Issuer, Claim: v.Claim, Value: v.Value, Role: farm.Role(v.Role), Project: v.Project,
		Cell: v.Cell}
}

// Settings are the settings of all hosts on the wire.
func Settings(s farm.Settings) fleet.Settings {
	out := fleet.Settings{Facts: s.Facts}
	if s.BootTimeout != 0 {
		timeout := s.BootTimeout.Seconds()
		out.BootTimeout = &timeout
	}
	if s.DefaultImage != "" {
		out.DefaultImage = &s.DefaultImage
	}
	return out
}

// ParseSettings reads them.
func ParseSettings(v fleet.Settings) farm.Settings {
	s := farm.Settings{Facts: v.Facts}
	if v.BootTimeout != nil {
		s.BootTimeout = seconds(*v.BootTimeout)
	}
	if v.DefaultImage != nil {
		s.DefaultImage = *v.DefaultImage
	}
	return s
}
