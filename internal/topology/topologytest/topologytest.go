// Package topologytest builds hosts by hand for other packages' tests. It reads no machine.
package topologytest

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
)

// WithPages gives every node that has memory a pool of free huge pages: perNode of the given size.
func WithPages(t farm.Topology, size farm.Bytes, perNode int) farm.Topology {
	t.Nodes = slices.Clone(t.Nodes)
	for i, n := range t.Nodes {
		if n.Memory > 0 {
			t.Nodes[i].Pages = append(slices.Clone(n.Pages), farm.HugePages{Size: size, Total: perNode, Free: perNode})
			t.Nodes[i].Free -= min(n.Free, size*farm.Bytes(perNode))
		}
	}
	return t
}

// CERN2650v2 is CERN's batch server of 2015: two sockets of eight cores with SMT and 32 GiB each; node 0 has threads
// 0-7 and 16-23. No huge pages.
func CERN2650v2() farm.Topology {
	return topology.Grid{Sockets: 2, CoresPerNode: 8, Threads: 2, NodeMemory: 32 * farm.GiB, CPU: farm.CPUModel{
		Vendor: "GenuineIntel", Name: "Intel(R) Xeon(R) CPU E5-2650 v2 @ 2.60GHz", Family: 6, Model: 62, Stepping: 4,
		MaxMHz: 3400,
	}}.Topology()
}

// CERN2630v3 is its successor: the same numbering, with 64 GiB a socket. No huge pages.
func CERN2630v3() farm.Topology {
	return topology.Grid{Sockets: 2, CoresPerNode: 8, Threads: 2, NodeMemory: 64 * farm.GiB, CPU: farm.CPUModel{
		Vendor: "GenuineIntel", Name: "Intel(R) Xeon(R) CPU E5-2630 v3 @ 2.40GHz", Family: 6, Model: 63, Stepping: 2,
		MaxMHz: 3200,
	}}.Topology()
}

// EPYC256 is a server of two sockets of 64 cores with SMT in eight nodes, eight cores to an L3 cache. No huge pages.
func EPYC256() farm.Topology {
	return topology.Grid{Sockets: 2, NodesPerSocket: 4, CoresPerNode: 16, Threads: 2, CachesPerNode: 2,
		NodeMemory: 128 * farm.GiB, Far: 32, CPU: farm.CPUModel{
			Vendor: "AuthenticAMD", Name: "AMD EPYC 7763 64-Core Processor", Family: 25, Model: 1, Stepping: 1,
			MaxMHz: 3529,
		}}.Topology()
}
