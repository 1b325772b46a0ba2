package capacity

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// WithoutSMT is hosts with one thread of each core, as SMT off leaves them.
func (h Hosts) WithoutSMT() Hosts {
	t := h.Topology
	var all farm.CPUSet
	t.Cores = slices.Clone(t.Cores)
	for i, c := range t.Cores {
		t.Cores[i].Threads = farm.NewCPUSet(c.Threads.List()[0])
		all = all.Or(t.Cores[i].Threads)
	}
	t.Online = t.Online.And(all)
	t.Nodes, t.Sockets, t.L3 = slices.Clone(t.Nodes), slices.Clone(t.Sockets), slices.Clone(t.L3)
	for i := range t.Nodes {
		t.Nodes[i].CPUs = t.Nodes[i].CPUs.And(all)
	}
	for i := range t.Sockets {
		t.Sockets[i].CPUs = t.Sockets[i].CPUs.And(all)
	}
	for i := range t.L3 {
		t.L3[i] = t.L3[i].And(all)
	}
	h.Topology = t
	h.Reserve.CPUs = h.Reserve.CPUs.And(all)
	return h
}

// WithPages is hosts with all memory of each node, but for its part of the reserve, in huge pages of a size; 0: in
// ordinary ones.
func (h Hosts) WithPages(size farm.Bytes) Hosts {
	h.Topology.Nodes = slices.Clone(h.Topology.Nodes)
	kept := h.Reserve.Memory / farm.Bytes(max(len(h.Topology.Nodes), 1))
	for i := range h.Topology.Nodes {
		n := &h.Topology.Nodes[i]
		n.Pages, n.Free = nil, n.Memory
		if pages := int((max(n.Memory, kept) - kept) / max(size, 1)); size > 0 && pages > 0 {
			n.Pages = []farm.HugePages{{Size: size, Total: pages, Free: pages}}
			n.Free = n.Memory - size*farm.Bytes(pages)
		}
	}
	return h
}

// Asking is jobs that each ask for so much memory a CPU.
func Asking(jobs []Job, memory farm.Bytes) []Job {
	out := slices.Clone(jobs)
	for i := range out {
		out[i].Memory = memory * farm.Bytes(out[i].CPUs)
	}
	return out
}
