package wire

import (
	"fmt"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// Facts are what a host says of itself, on the wire. The clock is whoever's sends them.
func Facts(f farm.Facts, now time.Time) fleet.Facts {
	v := fleet.Facts{Version: f.Version, Capability: f.Capability, Instance: f.Instance, Boot: f.Boot, Now: now,
		Accelerator: f.Accelerator, Kind: f.Kind, Topology: Topology(f.Topology), ReservedCPUs: f.Reserve.CPUs.String(),
		ReservedMemory: uint64(f.Reserve.Memory), Images: f.Images, Networks: f.Networks,
		ScratchFree: uint64(f.ScratchFree), Bandwidth: uint64(f.Bandwidth),
		BookedIn: uint64(f.Booked.In), BookedOut: uint64(f.Booked.Out), Short: f.Short, Trusts: f.Trusts,
		BatchNode: f.BatchNode}
	for _, p := range f.Taken {
		v.Taken = append(v.Taken, Plan(p))
	}
	for _, m := range f.FileSystems {
		v.FileSystems = append(v.FileSystems, fleet.HostFileSystem(m))
	}
	v.Audited = f.Audited
	for _, found := range f.Findings {
		v.Findings = append(v.Findings, fleet.HostFinding(found))
	}
	for _, u := range f.ImageUse {
		v.ImageUse = append(v.ImageUse, fleet.ImageUse{Digest: u.Digest, Jobs: u.Jobs, Done: uint64(u.Done),
			Total: uint64(u.Total), Order: u.Order, Reason: u.Reason})
	}
	return v
}

// ParseFacts reads what a host says of itself. The error is a *farm.Error of kind Invalid.
func ParseFacts(v fleet.Facts) (farm.Facts, error) {
	var r reader
	f := farm.Facts{Version: word(v.Version), Capability: v.Capability, Instance: word(v.Instance), Boot: word(v.Boot),
		Accelerator: word(v.Accelerator), Kind: word(v.Kind), Topology: r.topology(v.Topology),
		Reserve: farm.HostReserve{CPUs: r.cpus("reserved_cpus", v.ReservedCPUs), Memory: farm.Bytes(v.ReservedMemory)},
		Images:  words(v.Images, maxImages), Networks: words(v.Networks, maxNetworks),
		ScratchFree: farm.Bytes(v.ScratchFree), Bandwidth: rate(v.Bandwidth),
		Booked: farm.Bandwidth{In: rate(v.BookedIn), Out: rate(v.BookedOut)},
		Short:  words(v.Short, maxShort), Trusts: words(v.Trusts, maxTrusts),
		BatchNode: word(v.BatchNode)}
	for _, p := range listed(&r, "taken", v.Taken, maxUnits) {
		f.Taken = append(f.Taken, r.plan(p))
	}
	for _, m := range v.FileSystems[:min(len(v.FileSystems), maxFileSystems)] {
		f.FileSystems = append(f.FileSystems, farm.HostFileSystem{Source: word(m.Source), Type: word(m.Type),
			MountPoint: word(m.MountPoint), VMs: max(m.VMs, 0), Drains: words(m.Drains, maxDrains)})
	}
	f.Audited = v.Audited
	for _, found := range v.Findings[:min(len(v.Findings), maxFindings)] {
		f.Findings = append(f.Findings, farm.HostFinding{Rule: word(found.Rule), Severity: word(found.Severity),
			Places: max(found.Places, 1)})
	}
	for _, u := range v.ImageUse[:min(len(v.ImageUse), maxImageUse)] {
		f.ImageUse = append(f.ImageUse, farm.ImageUse{Digest: word(u.Digest), Jobs: max(u.Jobs, 0),
			Done: farm.Bytes(u.Done), Total: farm.Bytes(u.Total), Order: word(u.Order), Reason: word(u.Reason)})
	}
	return f, r.err
}

// Texts that a host reports about itself and its VMs are shown to people with more rights than it has. Bounds are in
// bytes.
const (
	maxReason = 4096
	maxWord   = 512 // of a name, a digest, a model of a processor
	maxTrusts = 16  // authorities: a fleet has two at most, a site's file some
	// in bits a second, so that no sum of what VMs book is ever past what a number holds
	maxBandwidth = 1e15
	// of images that jobs run from, that are under way, or that were not to be had
	maxImageUse = 512
	// rules that found something: there are not half as many
	maxFindings = 256
	// that a host has mounted: where every home is a mount, thousands
	maxFileSystems = 256
	maxDrains      = 256 // reasons why a host takes no work that needs a file system
	maxImages      = 8192
	maxNetworks    = 8192 // there may be one for each VLAN
	maxShort       = 64
	maxFlags       = 2048 // of a processor
	// CPUs, and what there is one of for each of them at most: sockets, cores, caches, nodes, jobs
	maxUnits = 8192
)

// Bound cuts those words of a report that are compared and kept as they are.
func Bound(r *fleet.Report) {
	r.Instance = word(r.Instance)
	if r.Facts != nil {
		r.Facts.Boot, r.Facts.Trusts = word(r.Facts.Boot), words(r.Facts.Trusts, maxTrusts)
	}
}

func rate(n uint64) farm.Rate { return farm.Rate(min(n, maxBandwidth)) }

func word(text string) string { return farm.Clean(text, maxWord) }

// words cleans the first texts of a list.
func words(texts []string, most int) []string {
	if texts == nil {
		return nil
	}
	clean := make([]string, min(len(texts), most))
	for i, t := range texts[:len(clean)] {
		clean[i] = word(t)
	}
	return clean
}

// cpuTime is a time that a host says in seconds, where it is one: NaN and what no VM has run become 0.
func cpuTime(v float64) time.Duration {
	const most = 1e9
	if !(v > 0) {
		return 0
	}
	return time.Duration(min(v, most) * float64(time.Second))
}

// ParseObserved reads what a host says of a VM: one of the states that a host may report. The error is a *farm.Error of
// kind Invalid.
func ParseObserved(v fleet.Observed) (farm.Observed, error) {
	var r reader
	o := farm.Observed{State: farm.VMState(v.State), Reason: farm.CleanLines(v.Reason, maxReason), Since: v.Since,
		Boots: v.Boots, Builds: v.Builds, Ready: v.Ready, CPUTime: cpuTime(v.CPUTime), Digest: word(v.Digest)}
	switch o.State {
	case farm.VMStarting, farm.VMRunning, farm.VMStopping, farm.VMStopped, farm.VMDeleting, farm.VMGone, farm.VMFailed:
	default:
		r.refuse("state", fmt.Errorf("a host reports no VM %q", word(v.State)))
	}
	if v.Plan != nil {
		o.Plan = r.plan(*v.Plan)
	}
	return o, r.err
}

// ParseMoveSide reads what a host says of a VM's move; nil: nothing.
func ParseMoveSide(m *fleet.MoveSide) *farm.MoveSide {
	if m == nil {
		return nil
	}
	return &farm.MoveSide{ID: word(m.ID), Phase: word(m.Phase), Reason: farm.CleanLines(m.Reason, maxReason),
		Host: word(m.Host), Address: word(m.Address), Total: farm.Bytes(m.Total), Done: farm.Bytes(m.Done)}
}

// WantedVM is a VM as its host is to have it: what people want, the claim, the part of its network that the host
// needs, and what its security groups come to; nil: it is in none.
func WantedVM(v farm.VM, n farm.FleetNetwork, f *farm.Firewall) fleet.WantedVM {
	w := fleet.WantedVM{ID: v.ID, Name: v.Name, Project: v.Project, Owner: v.Owner, Power: string(v.Wanted.Power),
		Boots: v.Wanted.Boots, Builds: v.Wanted.Builds, Fresh: v.Wanted.Fresh, Image: v.Image, Digest: v.Digest,
		Cell: v.Cell, Shape: Shape(v.Shape), Plan: PlanOrNil(v.Plan), Bridge: n.Bridge, MAC: v.Lease.MAC,
		Gateway: n.Gateway, DNS: n.DNS, Isolated: n.Isolate, Closed: n.Closed, Hostname: v.Lease.Hostname,
		Keys: v.Keys, UserData: v.UserData, Tags: v.Tags}
	if n.Bridge == "" {
		w.Network = string(n.OnHost())
	}
	if f != nil {
		w.Firewall = Firewall(*f)
	}
	if w.Job = v.Job(); v.Reservation == farm.ToReserve && v.Wanted.Power == farm.PowerOn {
		w.Power = string(farm.PowerOff) // as long as no job holds its place
	}
	if v.Lease.Address.IsValid() {
		w.Address = v.Lease.Address.String()
	}
	if w.Hostname == "" {
		w.Hostname = v.Name
	}
	return w
}
