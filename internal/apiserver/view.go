package apiserver

import (
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/wire"
)

// timeOrNil is a time that may be missing.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// timeOf reads a time that may be missing.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func vmView(v server.VMView) fleet.VM {
	plan := v.Plan
	if plan.VCPUs == nil { // its host planned
		plan = v.Observed.Plan
	}
	out := fleet.VM{ID: v.ID, Name: v.Name, Project: v.Project, Owner: v.Owner, State: string(v.State),
		Reason: v.Observed.Reason, Notice: v.Notice, StopsAt: timeOrNil(v.StopsAt), Since: timeOrNil(v.Observed.Since),
		Ready: v.Observed.Ready && v.State == farm.VMRunning, Power: string(v.Wanted.Power), Pending: pending(v),
		Image: v.Image, Digest: v.Observed.Digest, Shape: wire.Shape(v.Shape), Cell: v.Cell, Host: v.HostName,
		Job: v.Job(), Network: v.Network, MAC: v.Lease.MAC, Hostname: v.Lease.Hostname, Group: v.Group, Needs: v.Needs,
		SecurityGroups: v.SecurityGroups,
		Tags:           v.Tags, Keys: v.Keys, Created: v.Created.UTC(), Expires: timeOrNil(v.Expires),
		Plan:    wire.PlanOrNil(plan),
		CPUTime: v.Observed.CPUTime.Seconds(), Revision: v.Revision}
	if v.Lease.Address.IsValid() {
		out.Address = v.Lease.Address.String()
	}
	return out
}

// pending reports whether the host has still to do something that was asked for.
func pending(v server.VMView) bool {
	if v.Resize != nil {
		return true
	}
	switch v.Wanted.Power {
	case farm.PowerOn:
		return v.State != farm.VMRunning || !v.Done()
	case farm.PowerOff:
		return v.State != farm.VMStopped
	}
	return true
}

func drainView(d farm.Drain, vms, jobs int) *fleet.Drain {
	if !d.Active() {
		return nil
	}
	return &fleet.Drain{Since: d.Since.UTC(), Deadline: timeOrNil(d.Deadline), Reason: d.Reason, By: d.By,
		VMs: vms, Jobs: jobs}
}

func hostView(v server.HostView) fleet.Host {
	out := fleet.Host{ID: v.ID, Name: v.Name, Cell: v.Cell, State: string(v.State), Reason: v.Reason,
		Warnings: v.Warnings, Kind: v.Kind, Labels: v.Labels, Drain: drainView(v.Drain, v.VMs, v.Jobs),
		Seen: timeOrNil(v.Seen), Version: v.Facts.Version, Capability: v.Facts.Capability,
		Accelerator: v.Facts.Accelerator, CPUs: v.CPUs, FreeCPUs: v.FreeCPUs, Memory: uint64(v.Memory),
		FreeMemory: uint64(v.FreeMemory), VMs: v.VMs, Images: v.Facts.Images, Networks: v.Facts.Networks,
		Enrolled: v.Enrolled.UTC(), CertExpires: timeOrNil(v.Expires), Revision: v.Revision}
	for _, s := range v.Orphans {
		out.Orphans = append(out.Orphans,
			fleet.Orphan{ID: s.VM, Name: s.Name, State: string(s.State), Evicted: s.Evicted})
	}
	out.Strangers = out.Orphans
	return out
}

func quotaView(q farm.Quota) fleet.Quota {
	return fleet.Quota{VMs: q.VMs, CPUs: q.CPUs, Memory: uint64(q.Memory), Scratch: uint64(q.Scratch)}
}

func cellView(v server.CellView) fleet.Cell {
	return fleet.Cell{Name: v.Name, Broker: v.Broker, Open: !v.Closed, Reason: v.Reason, Default: v.Default,
		Projects: v.Projects, Packing: string(v.Packing), KeepWhole: v.KeepWhole, Overcommit: v.Overcommit,
		Limits: quotaView(v.Limits), PerHost: v.PerHost, Services: v.Services, Batch: v.Batch, Labels: v.Labels,
		Drain: drainView(v.Drain, v.VMs, 0), Hosts: v.Hosts, VMs: v.VMs, Revision: v.Revision}
}

func grantView(g farm.Grant) fleet.Grant {
	return fleet.Grant{User: g.User, Role: string(g.Role), Project: g.Project, Cell: g.Cell}
}

func userView(u farm.User) fleet.User {
	return fleet.User{Name: u.Name, Subjects: u.Subjects, Logins: u.Logins, Disabled: u.Disabled, Revision: u.Revision}
}

func tokenView(t farm.Token) fleet.Token {
	return fleet.Token{ID: t.ID, User: t.User, Note: t.Note, Role: string(t.Role), Projects: t.Projects,
		Created: t.Created.UTC(), Expires: timeOrNil(t.Expires)}
}

func groupView(g server.GroupView) fleet.Group {
	return fleet.Group{Project: g.Project, Name: g.Name, Affinity: string(g.Affinity), VMs: g.VMs, Revision: g.Revision}
}

func projectView(p server.ProjectView) fleet.Project {
	return fleet.Project{Name: p.Name, Account: p.Account, Quota: quotaView(p.Quota), Used: quotaView(p.Used),
		Networks: p.Networks, Shapes: p.Shapes, Images: p.Images, MaxAge: p.MaxAge.Seconds(),
		Purpose: string(p.Purpose), Pledge: p.Pledge, Cells: p.Cells, Nowhere: p.Nowhere, Revision: p.Revision,
		SecurityGroups: p.SecurityGroups, SSHFrom: wire.FarmProject(p.Project).SSHFrom}
}

func entryView(e farm.Entry) fleet.Entry {
	return fleet.Entry{ID: e.ID, Time: e.Time.UTC(), Who: e.Who, Means: e.Means, Source: e.Source, Action: e.Action,
		Target: e.Target, Project: e.Project, Outcome: e.Outcome, Reason: e.Reason}
}
