package server

import (
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// VMView is a VM as somebody may see it now.
type VMView struct {
	farm.VM
	State    farm.VMState
	HostName string    // "": no host has it
	Notice   string    // what its owner should know: "its host is being drained: ..."; may be empty
	StopsAt  time.Time // the deadline of that drain; zero: none
}

// VMList is one page of VMs.
type VMList struct {
	Items    []VMView
	Next     string // Filter.After of the next page; "": this was the last
	Revision int64  // watch from here
}

// HostState is what a host is to new VMs.
type HostState string

// The states of a host; the first that holds.
const (
	HostFenced   HostState = "fenced"   // an operator vouched that nothing of it runs
	HostSilent   HostState = "silent"   // it does not report
	HostDraining HostState = "draining" // it, or its cell
	HostClosed   HostState = "closed"
	HostOpen     HostState = "open"
)

// HostView is a host as people see it.
type HostView struct {
	farm.Host
	State      HostState
	VMs        int // of the server, that have their place here
	CPUs       int
	FreeCPUs   int
	Memory     farm.Bytes
	FreeMemory farm.Bytes
	Jobs       int // of its cell's batch system that still run on it; only while it is drained
	Orphans    []farm.Orphan
	Warnings   []string // what an operator should look at
}

// CellView is a cell as people see it.
type CellView struct {
	farm.Cell
	Hosts int
	VMs   int
	Used  farm.Quota
}

// SecurityGroupView is a security group with the VMs that are in it.
type SecurityGroupView struct {
	farm.SecurityGroup
	VMs []string // names
}

// GroupView is a server group with its members.
type GroupView struct {
	farm.ServerGroup
	VMs []string // names
}
