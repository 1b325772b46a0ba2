package farm

import "time"

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
	Revision int64
}

// Quota bounds what VMs hold together. A zero value bounds nothing.
type Quota struct {
	VMs     int
	CPUs    int
	Memory  Bytes
	Scratch Bytes
}

// FleetNetwork is a network that VMs of the fleet may have.
type FleetNetwork struct {
	Name      string
	Bridge    string // on each host that carries it
	VLAN      int    // 0: none
	Addresses []AddressPool
	Gateway   string // "": none
	DNS       []string
	Domain    string   // of host names: "vm-12.example.org"
	Names     []string // host names to lease, in order; none: the VM's own name
	Closed    bool     // only the outside can be reached, not the local network
	Hosts     []string // patterns of hosts that carry it; none: all that have the bridge
	Revision  int64
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
