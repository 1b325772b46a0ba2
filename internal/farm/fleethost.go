package farm

import "time"

// Host is an enrolled hypervisor, as the server knows it.
type Host struct {
	ID     string // UUID, for good: its certificate's name
	Name   string // unique
	Cell   string
	Kind   string            // of hardware; a label that hosts report themselves: "amd-epyc-7302-2s"
	Labels map[string]string // set by people
	Closed bool              // to new VMs, by people
	Reason string
	Drain  Drain
	Fenced time.Time // an operator vouched that nothing of it runs any more

	MachineID string    // of /etc/machine-id, hashed
	Serial    string    // of its current certificate; "site": one of the site's CA, which names the host
	Before    string    // serial of the certificate before, until the current one was seen; "": none
	Expires   time.Time // of its current certificate, as far as the server issued it
	// fingerprint of the fleet's authority that issued it; "": of a release before that was kept, or the site's
	Issuer   string
	Enrolled time.Time
	Known    time.Time // it was enrolled then for the first time; zero: by a release before that was kept
	Threads  Threads

	Facts    Facts // as it reported last
	Seen     time.Time
	Clock    time.Duration // its clock minus ours, when it reported
	Revision int64
}

// Threads are how many a host has reported since it was enrolled last; 0: it has not yet.
type Threads struct{ First, Most int }

// Facts are what a host says of itself.
type Facts struct {
	Version     string
	Capability  int    // of its agent, see api/fleet.Capability
	Instance    string // of the agent's process: a random ID
	Boot        string // boot ID of the host
	Accelerator string // "kvm" or "tcg"
	Topology    Topology
	Reserve     HostReserve
	Taken       []Plan   // what VMs and jobs hold that the server did not place
	Images      []string // names and digests of images that are there
	ImageUse    []ImageUse
	FileSystems []HostFileSystem
	Networks    []string // names of bridges, what HostNetworks.Carried returns, FollowsFlows
	ScratchFree Bytes
	Bandwidth   Rate      // that its network carries each way, for all VMs together; 0: not known
	Booked      Bandwidth // of that, what VMs have that the server did not place
	Short       []string  // why the host takes nothing: resources below their minimum, a drain of its own; for people
	Kind        string    // vendor, model and sockets of the processor
	// whether Findings are known: its agent has audited the host, and is of a release that reports it
	Audited  bool
	Findings []HostFinding // by rule
	// fingerprints of the authorities that it believes about servers; none: its agent is of a release that does not
	// report them
	Trusts []string
	// the host's name in its batch system, as its agent is configured; "": it belongs to none
	BatchNode string
}

// HostFinding is what a rule of the tuning audit found of a host itself; what it found of single VMs is not in it.
type HostFinding struct {
	Rule     string
	Severity string // the highest of its places: advice, warning or fault
	Places   int    // nodes, CPUs, devices; at least 1
}

// Orphan is a cloud VM's that a host has, and that the server does not know any more: its row ended while the
// host was away, or came after the backup that the database was restored from. It is left alone until people have it
// evicted.
type Orphan struct {
	Host    string // ID
	VM      string // ID
	Name    string // "project/name", as the host was told once
	State   VMState
	Evicted bool // the host is told to delete it
}

// HostReserve is what a host keeps for itself.
type HostReserve struct {
	CPUs   CPUSet
	Memory Bytes
}

// DrainIn is the drain that counts for a host, its own before its cell's, and what is drained. Of two the earlier
// deadline counts.
func (h Host) DrainIn(cell Cell) (d Drain, what string) {
	earlier := func(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) } // zero is never
	d, what = h.Drain, "its host "+h.Name
	if own := d.Active(); cell.Drain.Active() && (!own || earlier(cell.Drain.Deadline, d.Deadline)) {
		d, what = cell.Drain, "its cell "+cell.Name
	}
	return d, what
}
