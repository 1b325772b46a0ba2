package wire

import (
	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// Topology is a host's topology on the wire. A node's Grantable carries Node.Free, and so do its pages. Family, model
// and stepping of the processor stay behind: nobody far away needs them.
func Topology(t farm.Topology) fleet.Topology {
	v := fleet.Topology{Online: t.Online.String(),
		CPU:      api.CPU{Vendor: t.CPU.Vendor, Model: t.CPU.Name, MaxMHz: t.CPU.MaxMHz, Flags: t.CPU.Flags},
		Distance: t.Distance, CoresUntold: t.CoresUntold, SocketsUntold: t.SocketsUntold}
	for _, s := range t.Sockets {
		v.Sockets = append(v.Sockets, api.Socket{ID: s.ID, CPUs: s.CPUs.String()})
	}
	for _, c := range t.Cores {
		v.Cores = append(v.Cores, api.Core{Socket: c.Socket, Node: c.Node, Threads: c.Threads.String(),
			Kind: string(c.Kind)})
	}
	for _, s := range t.L3 {
		v.L3 = append(v.L3, s.String())
	}
	for _, n := range t.Nodes {
		node := api.Node{ID: n.ID, CPUs: n.CPUs.String(), Memory: uint64(n.Memory), Grantable: uint64(n.Free)}
		for _, p := range n.Pages {
			node.Pages = append(node.Pages, api.HugePages{Size: uint64(p.Size), Total: p.Total, Grantable: p.Free,
				Surplus: p.Surplus})
		}
		v.Nodes = append(v.Nodes, node)
	}
	return v
}

// ParseTopology reads a host's topology. Where Online is missing, it is what the sockets have. The error is a
// *farm.Error of kind Invalid.
func ParseTopology(v fleet.Topology) (farm.Topology, error) {
	var r reader
	t := r.topology(v)
	return t, r.err
}

// HostTopology reads the topology of an agent's answer about its host.
func HostTopology(h api.Host) (farm.Topology, error) {
	return ParseTopology(fleet.Topology{CPU: h.CPU, Sockets: h.Sockets, Cores: h.Cores, Nodes: h.Nodes, L3: h.L3,
		Distance: h.Distance})
}

// maxPages bounds the sizes of huge pages of a node.
const maxPages = 64

// distance reads the distances between nodes.
func (r *reader) distance(v [][]int) [][]int {
	v = listed(r, "distance", v, maxUnits)
	for _, row := range v {
		listed(r, "distance", row, maxUnits)
	}
	return v
}

func (r *reader) topology(v fleet.Topology) farm.Topology {
	t := farm.Topology{Online: r.cpus("online", v.Online), Distance: r.distance(v.Distance), CoresUntold: v.CoresUntold,
		SocketsUntold: v.SocketsUntold, CPU: farm.CPUModel{Vendor: word(v.CPU.Vendor), Name: word(v.CPU.Model),
			MaxMHz: v.CPU.MaxMHz, Flags: words(v.CPU.Flags, maxFlags)}}
	for _, s := range listed(r, "sockets", v.Sockets, maxUnits) {
		t.Sockets = append(t.Sockets, farm.Socket{ID: s.ID, CPUs: r.cpus("sockets", s.CPUs)})
	}
	if t.Online.Empty() {
		for _, s := range t.Sockets {
			t.Online = t.Online.Or(s.CPUs)
		}
	}
	for _, c := range listed(r, "cores", v.Cores, maxUnits) {
		t.Cores = append(t.Cores, farm.Core{Socket: c.Socket, Node: c.Node, Threads: r.cpus("cores", c.Threads),
			Kind: farm.CoreKind(word(c.Kind))})
	}
	for _, text := range listed(r, "l3", v.L3, maxUnits) {
		t.L3 = append(t.L3, r.cpus("l3", text))
	}
	for _, n := range listed(r, "nodes", v.Nodes, maxUnits) {
		node := farm.Node{ID: n.ID, CPUs: r.cpus("nodes", n.CPUs), Memory: farm.Bytes(n.Memory),
			Free: farm.Bytes(n.Grantable)}
		for _, p := range listed(r, "pages", n.Pages, maxPages) {
			node.Pages = append(node.Pages, farm.HugePages{Size: farm.Bytes(p.Size), Total: p.Total, Free: p.Grantable,
				Surplus: p.Surplus})
		}
		t.Nodes = append(t.Nodes, node)
	}
	return t
}
