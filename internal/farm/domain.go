package farm

// Domain is one VM as libvirt describes it, ours or not. Strings are libvirt's words; "" where the XML is silent.
type Domain struct {
	Name, UUID    string
	Path          string // of the XML
	Running       bool
	Ours          bool   // our metadata is in it
	Type          string // "kvm", "qemu"
	Machine       string // "pc-q35-7.2"
	OSInfo        string // libosinfo's ID of the guest: "http://centos.org/centos/7.0"
	VCPUs         int
	Memory        Bytes
	CPUMode       string // "host-passthrough", "host-model", "custom", "maximum"; "" is the hypervisor's default
	CPUModel      string
	CPUFeatures   map[string]string // policy by name: "topoext": "disable"
	CPUCache      string            // "passthrough", "emulate", "disable": what caches the guest sees
	Migratable    string
	Guest         GuestTopology // zero where the XML is silent: as many sockets as vCPUs
	Cells         []DomainCell
	VCPUPins      map[int]CPUSet
	VCPUAuto      bool // vCPUs without a pin of their own run where numad advises; pins of a running VM have that
	EmulatorPin   CPUSet
	IOThreadPins  map[int]CPUSet
	IOThreads     int
	VCPUSched     map[int]string // scheduler of a vCPU where the XML sets one: "fifo", "rr", "batch", "idle"
	IOThreadSched map[int]string
	EmulatorSched string
	MemoryMode    string // "strict", "preferred", "interleave", "restrictive"; "" when memory is not bound
	MemoryNodes   CPUSet // of the whole VM; of all cells where only these are bound
	WholeBound    bool   // the VM is bound as a whole, not only cells of it
	MemoryAuto    bool   // numad advises MemoryNodes at each start; empty where that is not known
	MemorySource  string // "memfd", "file", "anonymous"
	MemoryShared  bool   // with other processes, as virtiofs needs
	Pages         []DomainPages
	HugePages     bool // memory is backed by huge pages, of the default size where Pages is empty
	NoShare       bool // <nosharepages/>: kept from KSM
	Locked        bool
	Autostart     bool
	Balloon       string // model of the memory balloon
	Disks         []DomainDisk
	NICs          []DomainNIC
	Timers        map[string]string // "hpet": "no", "kvmclock": "yes"
	PVSpinlock    string            // "on", "off"
	PollControl   string            // of the kvm features
	HintDedicated string
}

// DomainCell is one guest NUMA cell.
type DomainCell struct {
	VCPUs  CPUSet
	Memory Bytes
	Nodes  CPUSet // host nodes that its memory is bound to; empty when only the whole VM's is
	Mode   string // of that binding; "" without one
}

// DomainPages is a huge page size for some guest cells; none means all.
type DomainPages struct {
	Size  Bytes
	Cells CPUSet
}

// DomainDisk is one disk of a VM.
type DomainDisk struct {
	Target, Bus, Format, Cache, IO, Discard, Path string
	Device                                        string // "disk", "cdrom"
	ReadOnly                                      bool
	Queues, IOThread                              int
	Size                                          Bytes // that the guest sees, of a qcow2 image; 0 when not known
	Cluster                                       Bytes // of a qcow2 image; 0 when not known
	ExtendedL2                                    bool  // qcow2 sub-clusters
	Backing                                       bool  // the image has a backing file
}

// DomainNIC is one network card of a VM.
type DomainNIC struct {
	Model, Kind string // "virtio", "e1000"; "network", "bridge", "user"
	Source      string // bridge or card of the host: "br0", "eth0"; "" where it is neither
	Queues      int
}
