package farm

// CPUPolicy is how a VM's vCPUs get host threads.
type CPUPolicy string

// CPU policies.
const (
	Pinned CPUPolicy = ""       // each vCPU has a host thread to itself
	Shared CPUPolicy = "shared" // vCPUs float over a pool that VMs share
)

// ThreadPolicy is how pinned vCPUs use SMT siblings.
type ThreadPolicy string

// Thread policies. The names and meanings are OpenStack Nova's hw:cpu_thread_policy.
const (
	PreferSiblings  ThreadPolicy = ""        // whole cores where there are any, else whatever is free
	RequireSiblings ThreadPolicy = "require" // at least two vCPUs on every core it uses, but for one left over
	IsolateCores    ThreadPolicy = "isolate" // one vCPU a core, and the core's other threads stay empty
)

// EmulatorPolicy is where QEMU's own threads run.
type EmulatorPolicy string

// Emulator policies.
const (
	EmulatorBeside  EmulatorPolicy = ""        // on the host's service CPUs; where there are none, with the vCPUs
	EmulatorIsolate EmulatorPolicy = "isolate" // on one more CPU of its own, on the first cell's node
)
