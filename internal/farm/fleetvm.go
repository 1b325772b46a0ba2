package farm

import (
	"net/netip"
	"strings"
	"time"
)

// VM is one virtual machine of the fleet, as the server knows it. What people want of it and what its host says of it
// are written by different parties.
type VM struct {
	ID      string // UUID
	Name    string // unique in its project
	Project string
	Owner   string // who made it
	// SSH key that was generated for it: the public half; the private half was told once and is kept nowhere
	Key     string
	Keys    []string // public SSH keys for its first user
	Image   string   // by name or digest, as asked
	Digest  string   // what the catalogue has under that; "": the image is none of the catalogue's
	Shape   Shape    // resolved
	Cell    string   // asked for: VMs of a project may go to several. Then: where it is
	Network string   // FleetNetwork.Name; "": none
	Lease   Lease
	Group   string // ServerGroup.Name
	// names of the SecurityGroups that it is in; none: it receives and sends whatever its network lets pass
	SecurityGroups []string
	Needs          []string          // label selectors of hosts: "gpu", "kind=amd-7302", "rack!=b3"
	Tags           map[string]string // the user's own
	UserData       []byte            // for cloud-init, as the user wrote it
	Created        time.Time
	Expires        time.Time // zero: never

	Wanted Wanted
	Host   string // Host.ID; "": no host has it yet
	Plan   Plan   // the claim; the zero value where the cell's broker or the host itself plans
	// of a batch cell: the job that holds its place there, as "slurm/17", or ToReserve; "": it is of no batch cell
	Reservation string
	Waiting     string // why it has no host yet, or why it was not resized, for people
	// asked for in place of Shape; the placer claims it on the same host, or drops it and says why in Waiting
	Resize   *Shape
	Observed Observed
	Revision int64
	// Changed is the revision at which people last wanted something else of it: what a host reports meanwhile is no
	// conflict.
	Changed int64
}

// ToReserve is the Reservation of a VM of a batch cell whose place no job holds: not yet, or not any more.
const ToReserve = "/"

// Job is the job of a batch system that holds the VM's place, as Allotment.Key has it; "" where there is none.
func (v VM) Job() string {
	if _, job, ok := strings.Cut(v.Reservation, "/"); !ok || job == "" {
		return ""
	}
	return v.Reservation
}

// Wanted is what people want of a VM. A host that has carried it out reports the same numbers.
type Wanted struct {
	Power  Power
	Boots  int // restarts asked for so far
	Builds int // rebuilds and resizes asked for so far: each makes the machine anew, a rebuild with fresh disks
	Fresh  int // the Builds at which disks were last asked to be fresh
}

// Power is whether a VM runs.
type Power string

// Powers.
const (
	PowerOn      Power = "on"
	PowerOff     Power = "off"     // its disks stay, and so does its claim
	PowerDeleted Power = "deleted" // nothing of it stays
)

// Observed is what a host says of a VM.
type Observed struct {
	State   VMState
	Reason  string    // of a failure, for people; lines behind the first quote the guest's console
	Since   time.Time // of State
	Boots   int       // that were carried out; of a VM that its host would not have, those that it refused
	Builds  int
	Ready   bool // the guest has said that it is up
	Plan    Plan // where it really is
	CPUTime time.Duration
	Digest  string // of its image
	// Disowned is set by the server: the VM's host was replaced by a machine that did not prove to be the same one,
	// which must not get anything of it.
	Disowned bool
}

// ConsoleFollows ends the first line of a reason whose other lines quote the guest's console.
const ConsoleFollows = "the end of its console:"

// Brief is the reason for those who may not read the guest's console. Agents of earlier releases quoted the guest in
// the first line, too.
func (o Observed) Brief() string {
	first, _, more := strings.Cut(o.Reason, "\n")
	if before, _, ok := strings.Cut(first, " in a kernel panic ("); ok {
		return before + " in a kernel panic"
	}
	if more {
		first = strings.TrimSuffix(first, "; "+ConsoleFollows)
	}
	return first
}

// VMState is how a VM is.
type VMState string

// The states that a host reports, and those that only the server knows: VMPlacing, VMUnknown, VMLost.
const (
	VMPlacing  VMState = "placing"  // no host has it yet
	VMStarting VMState = "starting" // its host has it, and it does not run yet
	VMRunning  VMState = "running"
	VMStopping VMState = "stopping"
	VMStopped  VMState = "stopped"
	VMDeleting VMState = "deleting"
	VMGone     VMState = "gone"    // its host has nothing of it any more
	VMFailed   VMState = "failed"  // it does not run, and will not without somebody's doing; Reason
	VMUnknown  VMState = "unknown" // its host is silent: it may run
	VMLost     VMState = "lost"    // its host is proven to be gone, or was fenced
)

// Lease is a VM's name and address in its network, for as long as there is the VM.
type Lease struct {
	Network  string
	Address  netip.Prefix
	MAC      string
	Hostname string
}

// Done reports whether its host has carried out all restarts, rebuilds and resizes. A host may have done more than the
// server knows of, whose database was restored from a backup.
func (v VM) Done() bool {
	return v.Observed.Boots >= v.Wanted.Boots && v.Observed.Builds >= v.Wanted.Builds
}

// WantBoot asks for one more restart than its host has ever been asked for.
func (v *VM) WantBoot() { v.Wanted.Boots = max(v.Wanted.Boots, v.Observed.Boots) + 1 }

// WantBuild asks for its machine to be made anew, as WantBoot does.
func (v *VM) WantBuild() { v.Wanted.Builds = max(v.Wanted.Builds, v.Observed.Builds) + 1 }

// State is how the VM is, from what is wanted, what its host said last, and whether that host is silent.
func (v VM) State(silent bool) VMState {
	switch {
	case v.Observed.State == VMLost, v.Observed.State == VMGone:
		return v.Observed.State
	case v.Host == "" && v.Wanted.Power == PowerDeleted:
		return VMDeleting
	case v.Host == "":
		return VMPlacing
	case silent:
		return VMUnknown
	case v.Wanted.Power == PowerDeleted:
		return VMDeleting
	case v.Observed.State == "":
		return VMStarting
	case v.Wanted.Power == PowerOff && v.Observed.State == VMRunning:
		return VMStopping
	// with a reason, as that its guest powered off, it stays so
	case v.Wanted.Power == PowerOn && v.Observed.State == VMStopped && v.Observed.Reason == "":
		return VMStarting
	}
	return v.Observed.State
}
