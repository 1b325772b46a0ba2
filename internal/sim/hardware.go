package sim

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
)

// Hardware is what a host pretends to be made of: one NUMA node a socket, two threads a core, siblings half of the
// threads apart, as Linux numbers them on x86.
type Hardware struct {
	Sockets int
	Cores   int        // of each socket
	Memory  farm.Bytes // of the whole host
}

// Topology is that hardware in full.
func (w Hardware) Topology() farm.Topology {
	cpu := farm.CPUModel{Vendor: "AuthenticAMD", Name: "AMD EPYC 7302 16-Core Processor", MaxMHz: 3300}
	return topology.Grid{Sockets: w.Sockets, CoresPerNode: w.Cores, Threads: 2, Far: 32, CPU: cpu,
		NodeMemory: w.Memory / farm.Bytes(w.Sockets)}.Topology()
}

func (w Hardware) kind() string { return fmt.Sprintf("amd-epyc-7302-%ds", w.Sockets) }
