package farm

import "time"

// HostFacts are all that an audit may know of a host, live or recorded. What the host does not tell is the zero value;
// where zero would be an answer, the type says whether it is known. Paths are from the root, without a leading slash.
type HostFacts struct {
	Name     string
	Virtual  bool // the host is a virtual machine itself (the processor's hypervisor flag)
	OS       OSRelease
	Versions Versions
	Topology Topology
	Kernel   Kernel
	KVM      KVM
	KSM      KSM
	THP      THP
	Memory   MemoryFacts
	Pages    []PagePool        // huge pages of the whole host, by size
	Sysctl   map[string]string // "vm.swappiness": "60", as the kernel says
	PagesSet []PagesSetting    // of sysctl.d, in the order in which they are applied
	Counters map[string]int64  // of /proc/vmstat
	CPUTime  CPUTime
	Pressure map[string]Pressure // "cpu", "memory", "io"; empty where the kernel has no PSI
	Swaps    []Swap
	Clocks   []Governor // of the processor's frequency
	Idle     []IdleState
	// Vulnerabilities is what the kernel does about each ("l1tf": "Mitigation: PTE Inversion; VMX: SMT vulnerable").
	Vulnerabilities map[string]string
	SMT             string // "on", "off", "forceoff", "notsupported"
	Present         CPUSet // CPUs that there are, online or not
	Isolated        CPUSet // isolcpus
	NoHzFull        CPUSet
	Partitions      []Partition // cgroup cpuset partitions
	Services        map[string]Service
	TunedProfile    string // of the tuned daemon
	Tuned           []TunedSetting
	Disks           []BlockDevice
	VhostNet        Switch       // off: the kernel has modules, and this one is not loaded
	Devices         []HostDevice // network cards and NVMe controllers
	Shapes          []ShapePages // of the agent's configuration
	AgentReserve    CPUSet       // CPUs that the agent keeps from VMs
	AgentMemory     Bytes        // memory that it keeps from them
	Mounts          []Mount
	CoreLimit       string // soft limit on core files of new sessions: "0", "unlimited", a number of bytes
	Domains         []Domain
	Unread          []string // what is there and could not be read, with the reason: an audit may lack facts
}

// Switch is a setting with two states as the kernel writes it: Y, N, 1, 0; "" when it is not told.
type Switch string

// On reports whether it is known to be on.
func (s Switch) On() bool { return s == "Y" || s == "y" || s == "1" }

// Off reports whether it is known to be off.
func (s Switch) Off() bool { return s == "N" || s == "n" || s == "0" }

// TunedSetting is what tuned's active profile writes to the kernel each time the daemon starts. Words that it adds to
// the command line of the next boot have the path proc/cmdline.
type TunedSetting struct {
	Path, Value  string // Path may be a pattern of path.Match
	File         string // where a site changes it: the profile of its own, which may not be there yet
	Unit, Option string // section and name there
	Plain        bool   // the section holds for all devices, and says nothing else of itself
	Overruled    bool   // tuned applies a file of sysctl.d after it that sets the same
}

// PagesSetting is a file that sets the number of huge pages of the default size at each boot.
type PagesSetting struct{ File, Value string }

// OSRelease is of /etc/os-release.
type OSRelease struct{ ID, Version, Name string }

// Versions are of programs; "" when they are not installed or did not answer.
type Versions struct{ QEMU, Libvirt string }

// Kernel is the running kernel, and how it was and will be booted.
type Kernel struct {
	Release  string
	Command  string // its command line
	Clock    string // current clock source
	Clocks   []string
	BootFile string // where the next command line is written; "" where no boot loader is known
	NextBoot string // the command line written there
}

// KVM is what the kvm modules say. Keys are "kvm_intel.ept", "kvm.halt_poll_ns"; values as the kernel writes them.
type KVM struct {
	Loaded  bool
	Params  map[string]string // of loaded modules
	Options []ModuleOption    // of /etc/modprobe.d, for the next load
}

// ModuleOption is one option of a module in a file of modprobe.d.
type ModuleOption struct{ Path, Module, Name, Value string }

// Paging is whether guests get hardware page tables (EPT on Intel, NPT on AMD), and the parameter that says so:
// "kvm_intel.ept", "kvm_intel.enable_ept" on old kernels, or "kvm_amd.npt".
func (k KVM) Paging() (Switch, string) {
	for _, name := range []string{"kvm_intel.ept", "kvm_intel.enable_ept", "kvm_amd.npt"} {
		if v, ok := k.Params[name]; ok {
			return Switch(v), name
		}
	}
	return "", ""
}

// KSM is kernel same-page merging. Counters are in pages.
type KSM struct {
	Known                             bool
	Run                               int // 0 stopped, 1 runs, 2 stopped and everything un-merged
	Shared, Sharing, Unshared, Passes int64
	PagesToScan, SleepMillis          int64
	MergeAcrossNodes                  Switch
}

// THP is transparent huge pages: the chosen word of each file, such as "always".
type THP struct {
	Enabled, Defrag, Shmem string
	// of the largest size, from Linux 6.8 on; "inherit" is what Enabled and Shmem say
	SizeEnabled, SizeShmem string
}

// MemoryFacts is of /proc/meminfo.
type MemoryFacts struct {
	Total, Free, Available, AnonHuge, Committed, CommitLimit, SwapTotal, SwapFree, PageTables Bytes

	DefaultPage Bytes // the default size of huge pages
}

// PagePool is the huge pages of one size on the whole host.
type PagePool struct {
	Size                                       Bytes
	Total, Free, Reserved, Surplus, Overcommit int
}

// CPUTime is how the host's CPUs have spent their time since boot, in clock ticks. Guest time is part of User.
type CPUTime struct{ User, Nice, System, Idle, IOWait, Steal, Guest int64 }

// Pressure is a line pair of PSI: percent of time in which some, or all, tasks waited, and for how long since boot.
type Pressure struct {
	Some10, Some60, Some300, Full10, Full60, Full300 float64
	SomeTotal, FullTotal                             time.Duration
}

// Swap is one swap device or file.
type Swap struct {
	Path       string
	Size, Used Bytes
}

// Governor is the frequency policy of a set of CPUs.
type Governor struct {
	CPUs         CPUSet
	Name, Driver string // "performance", "intel_pstate"
	Preference   string // energy_performance_preference
}

// IdleState is one C-state.
type IdleState struct {
	Name          string
	LatencyMicros int
	Enabled       CPUSet // CPUs that may enter it
}

// Partition is a cgroup whose CPUs are its own.
type Partition struct {
	Path string
	CPUs CPUSet
	Kind string // "root", "isolated"
}

// Service is a daemon that matters to VMs: running, and started at boot.
type Service struct{ Running, Enabled bool }

// BlockDevice is one disk of the host.
type BlockDevice struct {
	Name       string
	Rotational bool
	Scheduler  string
	Schedulers []string // that the kernel offers for it
}

// HostDevice is a PCI device that guests' data passes through.
type HostDevice struct {
	Name   string // "eth0", "nvme0"
	Bridge string // that a network card is a port of
	// of a network card, and of its bridge; 0: the kernel does not tell
	MTU, BridgeMTU int
	Node           int // NUMA node of its slot; -1 where it is not known
}

// ShapePages is the size of VMs of one of the agent's shapes, and the pages that they get: "1G,2M", "any", "0". Fields
// that the shape does not say are zero.
type ShapePages struct {
	Name, Pages string
	CPUs        int
	Memory      Bytes
}

// Mount is a mounted file system. Size and Free are 0 where they are not known.
type Mount struct {
	Source, Path, Type string
	Options            []string
	Size, Free         Bytes
}
