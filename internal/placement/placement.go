// Package placement chooses the host of a VM among thousands, claims threads, memory and pages there, and explains
// every refusal. It is pure: it reads nothing, and knows no clock.
package placement

import (
	"github.com/grange-project/grange/internal/farm"
)

// Host is what placement may know of a host.
type Host struct {
	ID, Name, Cell string
	Labels         map[string]string // of people and of its cell, with what LabelsOf adds
	// why it takes no new VM at all (closed, draining, silent, short of something); "": it does
	Refuses  string
	Closed   bool          // it refuses because people closed it or drain it: opening it would do
	Topology farm.Topology // as it is: Fleet does the cell's overcommit
	Reserve  farm.HostReserve
	Taken    []farm.Plan // that are not VMs of the fleet
	Images   []string    // names and digests
	Networks []string    // names of farm.FleetNetwork that it can carry
	Scratch  farm.Bytes  // for all VMs of the fleet together
	// that its network carries each way; VMs of the fleet book of it what their shapes have
	Bandwidth farm.Rate
	Booked    farm.Bandwidth // of it, by others
}

// Request is one VM to place.
type Request struct {
	VM       string // ID
	Project  string
	Shape    farm.Shape
	Cells    []string // where it may go, best first; never empty
	Image    string   // that the host must have, for none can fetch it; "": any
	Prefer   string   // an image that any host can fetch: of hosts that are as good, one that has it; "": none
	Network  string   // that the host must carry; "": none
	Needs    []string // selectors, all of which must hold: "gpu", "!gpu", "kind=x", "kind!=x"
	Group    string   // project/name of a server group; "": none
	Affinity farm.Affinity
	Avoid    []string // IDs of hosts that refused it lately
}

// Placed is where a VM goes: what the fleet holds from then on.
type Placed struct {
	VM, Project, Host, Cell string
	Group                   string     // project/name
	Size                    farm.Quota // one VM's
	Bandwidth               farm.Bandwidth
	Plan                    farm.Plan // the zero value holds nothing: the host plans, or a batch system does
}

// Explanation is why a request does, or does not, go to each host.
type Explanation struct {
	Fits, Hosts int      // hosts that would take it, of all
	Sums        []Sum    // by constraint, most refusals first
	Changes     []Change // each of which admits it, verified, the cheapest first; none when it fits
	Each        []Answer // by cell in the order of the request, then by name
}

// Sum is how many hosts one constraint refused.
type Sum struct {
	Constraint Constraint
	Hosts      int
	Example    string // the message of one of them
}

// Answer is one host's.
type Answer struct {
	Host, Name, Cell string
	Fits             bool
	Constraint       Constraint // that refused; "" when it fits
	Message          string
	Score            float64 // what the place costs, in threads; lower is better. Of hosts that fit
}

// Constraint names what refused.
type Constraint string

// The constraints, in the order in which they are looked at: a host is counted under the first that refuses.
const (
	NotItsCell  Constraint = "cell"         // the VM may not go to the host's cell
	OfABatch    Constraint = "broker"       // a batch system places the cell's VMs
	CellClosed  Constraint = "cell closed"  // to new VMs
	CellLimit   Constraint = "cell limit"   // the cell has as much as it may
	HostRefuses Constraint = "host refuses" // closed, draining, silent, short of something
	WrongLabels Constraint = "labels"
	NoNetwork   Constraint = "network"
	NoImage     Constraint = "image"
	TooBig      Constraint = "too big"   // not even when the host is empty
	HostFull    Constraint = "full"      // as many VMs as a host of the cell may have
	NoCPUs      Constraint = "cpus"      // too few free threads, or cores
	NoMemory    Constraint = "memory"    // too little free memory
	NoPages     Constraint = "pages"     // too few free huge pages
	NoScratch   Constraint = "scratch"   // too little disk
	NoBandwidth Constraint = "bandwidth" // too little of its network is free
	InPieces    Constraint = "in pieces" // enough of each, and not side by side on the nodes that the VM may have
	GroupRule   Constraint = "group"     // the rule of its server group
	Refused     Constraint = "refused"   // the host refused this VM lately
)

// Change is one thing that would admit the request.
type Change struct {
	Kind ChangeKind
	Text string // "2 fewer CPUs", "open host h3"
	VM   string // whose end it is, for those who may know
}

// ChangeKind says who gives what up. The order of the constants is the order of cost.
type ChangeKind int

// The kinds, the cheapest first: tuning costs the VM's owner some speed, a size costs work, what others must do comes
// last.
const (
	ChangeTuning  ChangeKind = iota // page sizes, thread and emulator policy, cells
	ChangeLabels                    // a selector less
	ChangeGroup                     // no server group
	ChangeSize                      // fewer CPUs, less memory, less scratch
	ChangeNetwork                   // another network
	ChangeImage                     // bring the image to a host
	ChangeHost                      // open a host
	ChangeCell                      // open a cell, or have another one, or raise its limit
	ChangeEnd                       // end a VM
)
