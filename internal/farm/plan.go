package farm

// Plan says where a VM's threads and memory go on its host, and what its guest sees.
type Plan struct {
	VCPUs    []CPUSet // host CPUs of each vCPU: one when pinned
	Emulator CPUSet   // host CPUs of QEMU's own threads
	IOThread CPUSet   // host CPUs of the I/O thread
	Guest    GuestTopology
	Cells    []GuestCell // guest NUMA cells, at least one; they hold all memory and all vCPUs
	Floating CPUSet      // guest numbers of vCPUs that share their host CPUs with other VMs; the others are pinned
	Extra    CPUSet      // host CPUs held beside the pinned vCPUs': idle siblings of isolated cores, the emulator's own
}

// GuestTopology is what lscpu shows in the guest. Sockets × Cores × Threads = number of vCPUs.
type GuestTopology struct{ Sockets, Cores, Threads int }

// GuestCell is one guest NUMA cell.
type GuestCell struct {
	VCPUs    CPUSet // guest numbers
	Memory   Bytes
	Node     int   // host Node.ID its memory is bound to
	PageSize Bytes // huge page size; 0 means ordinary pages
	// Remote: its vCPUs run on a node without memory, and Node is the nearest that has any.
	Remote bool
}

// CPUs is every host CPU that the plan's vCPUs may use.
func (p Plan) CPUs() CPUSet {
	return Union(p.VCPUs...)
}

// Memory is the guest's whole memory.
func (p Plan) Memory() Bytes {
	var sum Bytes
	for _, c := range p.Cells {
		sum += c.Memory
	}
	return sum
}

// Held is every host CPU that is this VM's alone: those of its pinned vCPUs, and Extra.
func (p Plan) Held() CPUSet {
	size := len(p.Extra.words)
	for i, v := range p.VCPUs {
		if !p.Floating.Has(i) {
			size = max(size, len(v.words))
		}
	}
	if size == 0 {
		return CPUSet{}
	}
	words := make([]uint64, size)
	copy(words, p.Extra.words)
	for i, v := range p.VCPUs {
		if !p.Floating.Has(i) {
			for at, word := range v.words {
				words[at] |= word
			}
		}
	}
	return CPUSet{words}
}
