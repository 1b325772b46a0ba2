package farm

// GuestView is what a guest's kernel sees of its machine. It is the guest's word, which may be a lie: it is compared
// with the plan, shown, and believed in nothing else.
type GuestView struct {
	Sockets []CPUSet    // its CPUs by socket; nil where the kernel does not tell
	Cores   []CPUSet    // and by core
	Nodes   []GuestNode // nil for a kernel without NUMA
	Pages   []Bytes     // sizes of the huge pages that it can use
	Clock   string      // its clocksource: "kvm-clock", "tsc"
	Flags   []string    // of its first CPU, as in /proc/cpuinfo
}

// GuestNode is a NUMA node as the guest sees it.
type GuestNode struct {
	CPUs   CPUSet
	Memory Bytes // without what its kernel keeps from the start
}
