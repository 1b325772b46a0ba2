// Package topology reads what Linux says of a host's CPUs, memory nodes and huge pages. It takes any file system rooted like
// "/", so a recorded tree reads as well as the live machine. It never writes and never runs a program.
package topology

import (
	"io/fs"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
	pageDir = "sys/kernel/mm/hugepages"
)

// maxNodes is Linux's own limit (CONFIG_NODES_SHIFT is 10 at most).
const maxNodes = 1024

// Read reads a host. Offline CPUs are left out of everything. A host without NUMA in its kernel has one node, 0, that holds all.
// What an old kernel does not tell (caches, distances, the CPU model) stays empty; what it tells wrongly is a *farm.Error with
// farm.CodeBadTree that names the file.
func Read(fsys fs.FS) (farm.Topology, error) {
	r := reader{hosttree.NewFiles(fsys)}
	var t farm.Topology
	online := r.online()
	if r.Err() == nil && online.Empty() {
		r.Fail(cpuDir, "has no online CPU")
	}
	t.Online = online
	t.Nodes, t.Distance = r.nodes(online)
	t.Sockets = r.sockets(online)
	t.Cores = r.cores(online, t.Sockets, t.Nodes)
	t.L3 = r.caches(online)
	t.CPU = r.model(online)
	if r.Err() != nil {
		return farm.Topology{}, r.Err()
	}
	return t, nil
}

// online lists the CPUs that run: those of the kernel's list, or of the directories where an old kernel has none, without those
// whose own file says 0.
func (r reader) online() farm.CPUSet {
	listed, ok := r.List(cpuDir + "/online")
	if !ok {
		listed = farm.NewCPUSet(r.Numbered(cpuDir, "cpu", hosttree.MaxCPUs)...)
	}
	var ids []int
	for _, cpu := range listed.List() {
		if on, ok := r.Number(cpuPath(cpu, "online"), 1); (!ok || on == 1) && r.Exists(cpuPath(cpu, "")) {
			ids = append(ids, cpu)
		}
	}
	return farm.NewCPUSet(ids...)
}

// sockets groups CPUs by package. Some virtual machines and boards say -1, or nothing: those are socket 0.
func (r reader) sockets(online farm.CPUSet) []farm.Socket {
	by := map[int][]int{}
	for _, cpu := range online.List() {
		id, _ := r.Number(cpuPath(cpu, "topology/physical_package_id"), 1<<31-1)
		by[max(id, 0)] = append(by[max(id, 0)], cpu)
	}
	var out []farm.Socket
	for id, cpus := range by {
		out = append(out, farm.Socket{ID: id, CPUs: farm.NewCPUSet(cpus...)})
	}
	slices.SortFunc(out, func(a, b farm.Socket) int { return a.ID - b.ID })
	return out
}

// cores groups CPUs by SMT siblings. A sibling that claims another core, socket or node than the first of its core is a core of
// its own: a plan that trusted such a table would share a core without knowing.
func (r reader) cores(online farm.CPUSet, sockets []farm.Socket, nodes []farm.Node) []farm.Core {
	socket, node := map[int]int{}, map[int]int{}
	for _, s := range sockets {
		for _, cpu := range s.CPUs.List() {
			socket[cpu] = s.ID
		}
	}
	for _, cpu := range online.List() {
		node[cpu] = nodeOf(cpu, nodes)
	}
	var out []farm.Core
	done := map[int]bool{}
	for _, cpu := range online.List() {
		if done[cpu] {
			continue
		}
		threads := []int{cpu}
		for _, s := range r.siblings(cpu).And(online).List() {
			if s != cpu && !done[s] && socket[s] == socket[cpu] && node[s] == node[cpu] {
				threads = append(threads, s)
			}
		}
		for _, t := range threads {
			done[t] = true
		}
		out = append(out, farm.Core{Socket: socket[cpu], Node: node[cpu], Threads: farm.NewCPUSet(threads...)})
	}
	return out
}

// nodeOf is the node with the fewest CPUs that lists cpu; only emulated trees have it in several. A CPU that no node lists is in
// the first, for every thread must be somewhere.
func nodeOf(cpu int, nodes []farm.Node) int {
	var best *farm.Node
	for i, n := range nodes {
		if n.CPUs.Has(cpu) && (best == nil || n.CPUs.Len() < best.CPUs.Len()) {
			best = &nodes[i]
		}
	}
	switch {
	case best != nil:
		return best.ID
	case len(nodes) > 0:
		return nodes[0].ID
	}
	return 0
}

// siblings is the CPUs of cpu's core. Kernels since 5.2 call the file core_cpus, older ones thread_siblings.
func (r reader) siblings(cpu int) farm.CPUSet {
	for _, name := range []string{"core_cpus", "thread_siblings"} {
		if s, ok := r.CPUs(cpuPath(cpu, "topology/"+name)); ok {
			return s
		}
	}
	return farm.NewCPUSet(cpu)
}

// caches lists the groups of CPUs that share a level 3 cache, in order of their first CPU.
func (r reader) caches(online farm.CPUSet) []farm.CPUSet {
	var out []farm.CPUSet
	done := map[int]bool{}
	for _, cpu := range online.List() {
		if done[cpu] {
			continue
		}
		var shared []int
		for _, s := range r.level3(cpu).And(online).List() {
			if !done[s] {
				done[s] = true
				shared = append(shared, s)
			}
		}
		if len(shared) > 0 {
			out = append(out, farm.NewCPUSet(shared...))
		}
	}
	return out
}

// maxCacheIndex bounds the caches of one CPU: Linux has two of level 1 and one of each other.
const maxCacheIndex = 8

func (r reader) level3(cpu int) farm.CPUSet {
	for i := range maxCacheIndex {
		dir := cpuPath(cpu, "cache/index"+digits(i))
		if level, ok := r.Number(dir+"/level", 16); ok && level == 3 {
			shared, ok := r.ListOrMask(dir+"/shared_cpu_list", dir+"/shared_cpu_map")
			if ok {
				return shared
			}
		}
	}
	return farm.CPUSet{}
}
