// Package numa plans and checks where one VM's threads, memory and pages go on one host. It is pure: it reads nothing
// and changes nothing.
package numa

import "github.com/grange-project/grange/internal/farm"

// Room is what a host still has to give. The zero value has nothing.
type Room struct {
	Topology farm.Topology
	// what even an empty host does not give; without it a VM that never fits would wait for ever
	Reserve Reserve
	Free    farm.CPUSet      // threads that nobody holds
	Nodes   map[int]NodeRoom // by farm.Node.ID

	index *index // of Topology; nil in a room that was made by hand
}

// NodeRoom is what one memory node still has to give.
type NodeRoom struct {
	Memory farm.Bytes         // ordinary memory
	Base   farm.Bytes         // ordinary memory comes in multiples of this; 0 means that any amount will do
	Pages  map[farm.Bytes]int // free huge pages by page size
	Shared SharedRoom
}

// SharedRoom is what a node still has for vCPUs that float over CPUs which VMs share. Without CPUs the node has no such
// pool, and memory for VMs that float over another node's comes from NodeRoom.Memory.
type SharedRoom struct {
	CPUs   farm.CPUSet // the pool; disjoint from the CPUs that are given to one VM alone
	VCPUs  int         // how many more may come, overcommit included
	Memory farm.Bytes  // ordinary memory for VMs without a vCPU of their own, overcommit included
}

// Request is what one VM asks for.
type Request struct {
	VCPUs  int
	Memory farm.Bytes // a multiple of 1 MiB, or of a page size that will do
	// page sizes that will do, best first; 0 stands for ordinary pages; empty means ordinary pages
	Pages    []farm.Bytes
	Allowed  farm.CPUSet        // the caller's own CPUs; the plan gives no others, beside the pools that all VMs share
	Service  farm.CPUSet        // CPUs reserved for the host's own work, where emulator threads go; may be empty
	Guest    farm.GuestTopology // wanted guest topology; zero means follow the pins
	CPU      farm.CPUPolicy     // of all vCPUs; a request for some of each uses Each
	Threads  farm.ThreadPolicy  // of pinned vCPUs
	Emulator farm.EmulatorPolicy
	// Cells is the guest's NUMA: 0 lets the plan decide (one cell where the VM fits one node, else as few nodes as will
	// do), 1 is no guest NUMA, n is n equal cells on n different nodes.
	Cells int
	// Each, when not empty, says the cells one by one, each on a node of its own. VCPUs, Memory and Cells are then 0 or
	// their sums; Pages, CPU and Threads above do not count, for each cell has its own.
	Each []CellRequest
	// Contiguous is for a QEMU that takes only one run of vCPU numbers for each cell: cells with gaps are cut at the
	// gaps, into several on the same node.
	Contiguous bool
}

// CellRequest is one wanted guest NUMA cell.
type CellRequest struct {
	VCPUs    farm.CPUSet // guest numbers; all cells together have every number from 0 on, once
	Floating farm.CPUSet // those of VCPUs that share host CPUs; the others are pinned
	Memory   farm.Bytes
	Pages    []farm.Bytes
	Threads  farm.ThreadPolicy
}

// Observed is where a VM's threads may really run, as the kernel says.
type Observed struct {
	VCPUs    []farm.CPUSet // by vCPU number
	Emulator farm.CPUSet
	Nodes    []int // memory nodes the VM is bound to; nil when not bound
}
