package farm

import "slices"

// Process is one QEMU process as the kernel shows it, ours or not.
type Process struct {
	PID      int
	Name     string // of its VM; "" when its command line does not say
	UUID     string // of its VM; "" when its command line does not say
	Ours     bool   // one of our agents started it
	CPUs     int    // vCPUs that its command line asks for; 0 when it does not say, which means 1
	Named    bool   // its command line asks QEMU to name its threads
	Starting bool   // libvirt is not done with it: threads are not all there, nor pinned
	Threads  []Thread
	Memory   NodeMemory
	Cpuset   CPUSet // CPUs that the cgroup of the whole VM allows; empty when that is not known
}

// NodeMemory is where the memory of a process lies, without programs and libraries.
type NodeMemory struct {
	Bound []BoundMemory // what is strictly bound, as QEMU binds a guest's memory and nothing of its own; by nodes
	// Resident is all of it by node, QEMU's own heap and buffers with it; nil when it is not known.
	Resident map[int]Bytes
}

// BoundMemory is memory that is strictly bound to the same nodes.
type BoundMemory struct {
	Nodes    CPUSet
	Resident map[int]Bytes // by the node that it lies on
}

// Nodes is all nodes that memory is bound to.
func (m NodeMemory) Nodes() CPUSet {
	var all CPUSet
	for _, b := range m.Bound {
		all = all.Or(b.Nodes)
	}
	return all
}

// Guest is the guest's memory by node; nil when it is not bound, and so cannot be told from QEMU's own.
func (m NodeMemory) Guest() map[int]Bytes {
	if len(m.Bound) == 0 {
		return nil
	}
	all := map[int]Bytes{}
	for _, b := range m.Bound {
		for node, size := range b.Resident {
			all[node] += size
		}
	}
	return all
}

// Own is QEMU's own memory by node; nil when it cannot be told from the guest's.
func (m NodeMemory) Own() map[int]Bytes {
	guest := m.Guest()
	if guest == nil {
		return nil
	}
	own := map[int]Bytes{}
	for node, size := range m.Resident {
		if size > guest[node] {
			own[node] = size - guest[node]
		}
	}
	return own
}

// NoVCPU is the VCPU of threads that are none.
const NoVCPU = -1

// Thread is one thread of a QEMU process.
type Thread struct {
	ID      int
	Name    string // as QEMU names it: "CPU 0/KVM", "IO iothread1", "worker"
	VCPU    int    // number of the vCPU that it runs; NoVCPU
	Allowed CPUSet // where the kernel lets it run
	LastCPU int    // where it ran last; -1 when that is not known
	State   string // one letter, as in proc(5): "R", "S"
	Cpuset  CPUSet // CPUs that its own cgroup allows; empty when that is not known
}

// VCPUs are the threads that run vCPUs, in the order of their numbers. A number may be missing.
func (p Process) VCPUs() []Thread {
	var found []Thread
	for _, t := range p.Threads {
		if t.VCPU != NoVCPU {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b Thread) int { return a.VCPU - b.VCPU })
	return found
}
