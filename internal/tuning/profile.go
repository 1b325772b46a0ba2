package tuning

import "github.com/grange-project/grange/internal/farm"

// Profile is the wanted tuning of a kind of hardware in one role. Empty words mean that the profile does not care.
type Profile struct {
	Name    string // "xeon-e5-compute"
	Title   string
	Role    Role
	Match   Match
	Sources []Basis

	// PageSizes are the huge page sizes that VMs should get, best first; empty means ordinary pages. A host without 1
	// GiB pages, or whose nodes could not give them evenly, takes the next.
	PageSizes []farm.Bytes
	// part of each node's memory for huge pages, 0 to 1; what Reserved needs is kept free in any case
	PageShare float64
	Reserved  farm.Bytes // memory of the whole host that its own programs need

	THP            string     // "always", "madvise", "never"
	KSM            string     // "off", "on"
	NUMABalancing  string     // "off", "on"
	Governor       string     // "performance"
	MaxIdleLatency int        // microseconds: deeper C-states should be disabled; 0 does not care
	SMT            string     // "on", "off"
	Swappiness     int        // at most; negative does not care
	Overcommit     float64    // vCPUs per thread, and memory per memory, at most; 0 does not care
	Nested         string     // "off", "on"
	CPUMode        string     // of VMs: "host-passthrough", "host-model"
	DiskCache      string     // of VMs' disks: "writeback", "none"
	Pinned         bool       // VMs' vCPUs should be pinned
	CoreFiles      string     // "off", "on"
	SwapPerCPU     farm.Bytes // in guests: swap that jobs need for each CPU; 0 does not care
	ScratchPerCPU  farm.Bytes // in guests: space for jobs' files

	// Overheads are what was measured against bare metal. They are of single settings and single sizes: never add them
	// up.
	Overheads []Overhead
}

// Basis is the evidence for some of a profile's values.
type Basis struct {
	Keys []string // as the TOML names them: "page_sizes"
	Source
}

// Match says which processors a profile is for. Empty fields match all.
type Match struct {
	OnlyNamed          bool     // never chosen for a host, only asked for by name
	Vendor             string   // "GenuineIntel", "AuthenticAMD"
	Models             []string // any of these in the processor's model name: "E5-2650 v2"
	Family             int
	MinModel, MaxModel int // of the family; MaxModel 0 means no bound
}

// Overhead is one measurement of VMs against bare metal.
type Overhead struct {
	VMs, VCPUs int     // so many VMs of so many vCPUs at a time
	Percent    float64 // throughput lost
	Tuned      bool    // with the profile's settings
	Source     string
}
