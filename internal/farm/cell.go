package farm

import (
	"net/netip"
	"slices"
	"time"
)

// Cell is hosts with one broker, filled, drained and upgraded as one.
type Cell struct {
	Name   string
	Broker string // BrokerGrange, or the name of a batch driver
	Closed bool   // to new VMs; those there can still be stopped, started, restarted, resized, deleted
	Reason string // why it is closed
	// Default cells take VMs of projects that no cell names. A project that any cell names goes to those cells alone,
	// open or not.
	Default  bool
	Projects []string // names of projects, in order
	Packing  Packing
	// KeepWhole is how many hosts of the cell are kept without any VM as long as others have room: for VMs that need a
	// whole host.
	KeepWhole int
	// Overcommit is grantable ordinary memory as a multiple of what there is; 1: never more. It is a policy of the
	// cell, not of a host.
	Overcommit float64
	Limits     Quota  // of the whole cell; zero values bound nothing
	PerHost    int    // most VMs on one host; 0: as many as fit
	Services   bool   // VMs here are services: fit to be migrated. Otherwise compute: replaced, never moved
	Batch      string // configuration of the broker: the driver's own words, as its partition or queue
	Labels     map[string]string
	Drain      Drain
	Revision   int64 // of the store, at its last change
}

// BrokerGrange is the broker of cells whose hosts are placed by grange itself.
const BrokerGrange = "grange"

// Packing says which of the hosts that fit is taken.
type Packing string

// The ways to pack.
const (
	Pack   Packing = "pack"   // the fullest host: others stay empty, for large VMs or to be switched off
	Spread Packing = "spread" // the emptiest host
	Group  Packing = "group"  // a host that has VMs of the project, then as Pack: partitions I/O by project
)

// Drain is a host or cell that is being emptied. The zero value is none.
type Drain struct {
	Since    time.Time
	Deadline time.Time // what runs then is stopped; zero: never
	Reason   string
	By       string // who asked
}

// Active reports whether there is a drain.
func (d Drain) Active() bool { return !d.Since.IsZero() }

// Project is people, a quota and an account. A virtual organisation is a project.
type Project struct {
	Name     string
	Account  string        // in batch systems; "": its name
	Quota    Quota         // zero values bound nothing
	Networks []string      // that its VMs may have; none: every open one
	Shapes   []string      // that its VMs may have; none: all
	Images   []string      // patterns of images that its VMs may have; none: all
	MaxAge   time.Duration // a VM without a date to expire gets this one; 0: none
	Purpose  Purpose
	Pledge   int // CPUs that it was promised, all the time; 0: nothing is. Bounds nothing, capacity is told beside it
	// its VMs are in the security group default, unless they name others
	SecurityGroups bool
	SSHFrom        []netip.Prefix // whom the security group default lets in, to port 22
	Revision       int64
}

// Quota bounds what VMs hold together. A zero value bounds nothing.
type Quota struct {
	VMs     int
	CPUs    int
	Memory  Bytes
	Scratch Bytes
}

// ServerGroup says how VMs that name it lie to each other.
type ServerGroup struct {
	Project, Name string
	Affinity      Affinity
	Revision      int64
}

// Affinity is the rule of a ServerGroup, in OpenStack's words.
type Affinity string

// The rules.
const (
	Together     Affinity = "affinity"           // all on one host
	Apart        Affinity = "anti-affinity"      // no two on one host
	SoftTogether Affinity = "soft-affinity"      // where possible
	SoftApart    Affinity = "soft-anti-affinity" // where possible
)

// Validate refuses a cell that cannot be.
func (c Cell) Validate() error {
	if err := CheckName("cell", c.Name); err != nil {
		return err
	}
	if err := CheckName("broker", c.Broker); err != nil { // which there are, servers know
		return err
	}
	for key := range c.Labels {
		if err := CheckName("label", key); err != nil {
			return err
		}
	}
	switch {
	case twice(c.Projects) != "":
		return badFarm("cell", c.Name, "project %s twice", twice(c.Projects))
	case c.Packing != Pack && c.Packing != Spread && c.Packing != Group:
		return badFarm("cell", c.Name, "no packing is called %q; there are pack, spread and group", c.Packing)
	case c.KeepWhole < 0 || c.PerHost < 0:
		return badFarm("cell", c.Name, "keep_whole and per_host count hosts and VMs: they are not below 0")
	case !(c.Overcommit >= 1 && c.Overcommit <= 10):
		return badFarm("cell", c.Name, "overcommit of %v is not between 1 and 10", c.Overcommit)
	case !c.Limits.valid():
		return badFarm("cell", c.Name, "limits below 0")
	case unprintable(c.Reason) || unprintable(c.Batch):
		return badFarm("cell", c.Name,
			"a reason or batch configuration that cannot be printed, or is longer than %d bytes", maxText)
	}
	return nil
}

// Validate refuses a project that cannot be.
func (p Project) Validate() error {
	if err := CheckName("project", p.Name); err != nil {
		return err
	}
	switch {
	case p.Account != "" && CheckName("account", p.Account) != nil:
		return CheckName("account", p.Account)
	case !p.Quota.valid():
		return badFarm("project", p.Name, "a quota below 0")
	case p.MaxAge < 0 || p.MaxAge > 0 && p.MaxAge < time.Minute:
		return badFarm("project", p.Name, "max_age of %v is less than a minute", p.MaxAge)
	case p.Purpose != PurposeCompute && p.Purpose != PurposeService:
		return badFarm("project", p.Name, "no purpose is called %q; there are compute and service", p.Purpose)
	case p.Pledge < 0:
		return badFarm("project", p.Name, "a pledge below 0")
	case badPattern(p.Images) != "":
		return badFarm("project", p.Name, "images: invalid pattern %q", badPattern(p.Images))
	case len(p.SSHFrom) >= MaxSecurityRules:
		return badFarm("project", p.Name, "ssh_from: more than %d prefixes", MaxSecurityRules-1)
	}
	return p.DefaultGroup().Validate()
}

func (q Quota) valid() bool { return q.VMs >= 0 && q.CPUs >= 0 }

// Validate refuses a group that cannot be.
func (g ServerGroup) Validate() error {
	if err := CheckName("group", g.Name); err != nil {
		return err
	}
	if all := []Affinity{Together, Apart, SoftTogether, SoftApart}; !slices.Contains(all, g.Affinity) {
		return badFarm("group", g.Project+"/"+g.Name, "no rule is called %q; there are %v", g.Affinity, all)
	}
	return CheckName("project", g.Project)
}
