// Package numa plans and checks where one VM's threads, memory and pages go on one host. It is pure: it reads nothing and
// changes nothing.
package numa

import "github.com/grange-project/grange/internal/farm"

// Room is what a host still has to give. The zero value has nothing.
type Room struct {
	Topology farm.Topology
	Reserve  Reserve          // what even an empty host does not give; without it a VM that never fits would wait for ever
	Free     farm.CPUSet      // threads that nobody holds
	Nodes    map[int]NodeRoom // by farm.Node.ID
}

// NodeRoom is what one memory node still has to give.
type NodeRoom struct {
	Memory farm.Bytes         // ordinary memory
	Pages  map[farm.Bytes]int // free huge pages by page size
}

// Request is what one VM asks for.
type Request struct {
	VCPUs    int
	Memory   farm.Bytes
	PageSize farm.Bytes         // huge page size; 0 means ordinary pages
	Allowed  farm.CPUSet        // the caller's own CPUs; the plan never leaves them
	Service  farm.CPUSet        // CPUs reserved for the host's own work, where emulator threads go; may be empty
	Guest    farm.GuestTopology // wanted guest topology; zero means follow the pins
}

// Observed is where a VM's threads may really run, as the kernel says.
type Observed struct {
	VCPUs    []farm.CPUSet // by vCPU number
	Emulator farm.CPUSet
	Nodes    []int // memory nodes the VM is bound to; nil when not bound
}
