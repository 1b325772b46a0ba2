// Package placement chooses the host of a VM among thousands, claims threads, memory and pages there, and explains every refusal. It is
// pure: it reads nothing, and knows no clock.
package placement

import (
	"github.com/grange-project/grange/internal/farm"
)

// Fleet is all hosts with what they hold. It is kept by Set, Remove, Claim, Restore and Release, each in time that does not grow with the number of
// hosts, and is not safe for several goroutines.
type Fleet struct{}

// Host is what placement may know of a host.
type Host struct {
	ID, Name, Cell string
	Labels         map[string]string // of people and of its cell, with "kind", "cell", "host" and "accelerator" added
	Refuses        string            // why it takes no new VM at all (closed, draining, silent, short of something); "": it does
	Topology       farm.Topology
	Reserve        farm.HostReserve
	Taken          []farm.Plan // that are not VMs of the fleet
	Images         []string
	Networks       []string // names of farm.FleetNetwork that it can carry
	ScratchFree    farm.Bytes
}

// Request is one VM to place.
type Request struct {
	VM      string // ID
	Project string
	Shape   farm.Shape
	Cells   []string // where it may go, best first; never empty
	Image   string   // a preference: hosts that have it come first
	Network string   // a constraint; "": none
	Needs   []string // selectors: "gpu", "kind=x", "kind!=x"
	Group   string   // project/name of a server group
	Affinity farm.Affinity
	Avoid   []string // hosts that refused it lately
}

// Placed is where a VM goes: what the fleet holds from then on.
type Placed struct {
	VM, Host, Cell string
	Plan           farm.Plan
}

// Restore enters a VM that has its place already, as after a start. It may exceed what the host has.
// Claim finds the best host and takes the room there in one step; farm.NoCapacity with the sums of Why when there is none.
// Release gives it back. Why explains host by host without claiming. Cells tells the fleet of a cell's packing, limits and overcommit.
