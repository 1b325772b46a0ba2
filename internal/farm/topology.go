package farm

// Topology is what the planner may know of a host: threads, cores, sockets, caches and memory nodes, as Linux numbers
// them.
type Topology struct {
	Online   CPUSet
	Cores    []Core   // in rising order of their first thread; only online threads
	Sockets  []Socket // in rising order of ID
	Nodes    []Node   // in rising order of ID; never empty
	L3       []CPUSet // threads that share a last-level cache, in rising order
	CPU      CPUModel
	Distance [][]int // ACPI SLIT, by index into Nodes; nil when the host does not say
	// Overlapping are nodes that share CPUs with one of Nodes, which no hardware has: they are left out of Nodes, with
	// their memory.
	Overlapping []Node
	// The kernel does not report cores or sockets: each thread is a core of its own then, and all are on one socket.
	CoresUntold, SocketsUntold bool
}

// Core is one physical core.
type Core struct {
	Socket  int    // Socket.ID
	Node    int    // Node.ID
	Threads CPUSet // SMT siblings that are online
	Kind    CoreKind
}

// CoreKind distinguishes the fast cores of a hybrid processor from the slow ones.
type CoreKind string

// Kinds of core; where all are alike, it is empty.
const (
	FastCore CoreKind = "performance"
	SlowCore CoreKind = "efficient"
)

// Socket is one processor package.
type Socket struct {
	ID   int
	CPUs CPUSet
}

// Node is one NUMA node. A node may have memory without CPUs, or CPUs without memory.
type Node struct {
	ID     int
	CPUs   CPUSet // online ones
	Memory Bytes  // MemTotal, huge pages included
	Free   Bytes  // MemFree when read
	Pages  []HugePages
}

// HugePages is a node's pool of huge pages of one size.
type HugePages struct {
	Size Bytes // of one page
	// pages; Total includes surplus ones, which the kernel took beyond the pool and gives back
	Total, Free, Surplus int
}

// CPUModel is what accounting and users want to know of the processor.
type CPUModel struct {
	Vendor, Name            string
	Family, Model, Stepping int
	Flags                   []string
	MaxMHz                  int    // 0 when unknown
	Microcode               string // revision; "" when unknown
}

// Overcommitted is the host with as much ordinary memory as may be granted, a multiple of what there is. Huge pages
// exist or do not exist.
func (t Topology) Overcommitted(factor float64) Topology {
	nodes := make([]Node, len(t.Nodes))
	for i, n := range t.Nodes {
		var pages Bytes
		for _, p := range n.Pages {
			pages += p.Size * Bytes(p.Total)
		}
		if n.Memory > pages {
			n.Memory = pages + Bytes(float64(n.Memory-pages)*factor)
		}
		nodes[i] = n
	}
	t.Nodes = nodes
	return t
}
