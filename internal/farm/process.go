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
	Bound    CPUSet        // memory nodes that its strictly bound memory is bound to
	Resident map[int]Bytes // the guest's memory and QEMU's own, by the node it lies on; without programs and libraries
	Cpuset   CPUSet        // CPUs that the cgroup of the whole VM allows; empty when that is not known
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
