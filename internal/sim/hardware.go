package sim

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
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
	cores := w.Sockets * w.Cores
	t := farm.Topology{Online: farm.CPURange(0, 2*cores),
		CPU: farm.CPUModel{Vendor: "AuthenticAMD", Name: "AMD EPYC 7302 16-Core Processor", MaxMHz: 3300}}
	for s := range w.Sockets {
		first := s * w.Cores
		own := farm.CPURange(first, first+w.Cores).Or(farm.CPURange(cores+first, cores+first+w.Cores))
		t.Sockets = append(t.Sockets, farm.Socket{ID: s, CPUs: own})
		t.L3 = append(t.L3, own)
		memory := w.Memory / farm.Bytes(w.Sockets)
		t.Nodes = append(t.Nodes, farm.Node{ID: s, CPUs: own, Memory: memory, Free: memory})
		for c := first; c < first+w.Cores; c++ {
			t.Cores = append(t.Cores, farm.Core{Socket: s, Node: s, Threads: farm.NewCPUSet(c, cores+c)})
		}
		row := make([]int, w.Sockets)
		for o := range row {
			row[o] = 32
		}
		row[s] = 10
		t.Distance = append(t.Distance, row)
	}
	return t
}

func (w Hardware) kind() string { return fmt.Sprintf("amd-epyc-7302-%ds", w.Sockets) }
