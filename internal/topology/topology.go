// Package topology reads what Linux says of a host's CPUs, memory nodes and huge pages. It takes any file system rooted
// like "/", so a recorded tree reads as well as the live machine. It never writes and never runs a program.
package topology

import (
	"io/fs"
	"maps"
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

// Read reads a host. Offline CPUs are left out of everything. A host without NUMA in its kernel has one node, 0, that
// holds all. What an old kernel does not tell (caches, distances, the CPU model, memory) stays empty; what it tells
// wrongly is a *farm.Error with farm.CodeBadTree that names the file.
func Read(fsys fs.FS) (farm.Topology, error) {
	r := reader{hosttree.NewFiles(fsys)}
	var t farm.Topology
	online := r.online()
	if r.Err() == nil && online.Empty() {
		r.Fail(cpuDir, "has no online CPU")
	}
	t.Online = online
	t.CPU = r.model(online)
	t.Nodes, t.Overlapping, t.Distance = r.nodes(online)
	var told bool
	t.Sockets, told = r.sockets(online)
	t.SocketsUntold = !told
	t.Cores, told = r.cores(t, twinModules(t.CPU))
	t.CoresUntold = !told
	t.L3 = r.caches(t)
	if r.Err() != nil {
		return farm.Topology{}, r.Err()
	}
	return t, nil
}

// online lists the CPUs that run: those of the kernel's list, or of the directories where an old kernel has none,
// without those whose own file says 0. Old kernels show an offline CPU without its topology. A tree without any CPU in
// /sys has those of /proc/cpuinfo.
func (r reader) online() farm.CPUSet {
	listed, ok := r.List(cpuDir + "/online")
	there := farm.NewCPUSet(r.Numbered(cpuDir, "cpu", hosttree.MaxCPUs)...)
	if !ok {
		listed = there
	}
	var ids, told []int
	for _, cpu := range listed.And(there).List() {
		if on, ok := r.Number(cpuPath(cpu, "online"), 1); ok && on != 1 {
			continue
		}
		ids = append(ids, cpu)
		if r.Exists(cpuPath(cpu, "topology")) {
			told = append(told, cpu)
		}
	}
	switch {
	case len(told) > 0:
		return farm.NewCPUSet(told...)
	case !there.Empty():
		return farm.NewCPUSet(ids...)
	}
	return r.cpuinfo()
}

// sockets groups CPUs by the package whose CPUs each names. A CPU that names none, as of some virtual machines and
// boards, goes by the number of its package; where that is -1 or missing, it is 0. It reports whether the kernel said
// anything.
func (r reader) sockets(online farm.CPUSet) (sockets []farm.Socket, told bool) {
	done, used := map[int]bool{}, map[int]bool{}
	add := func(id int, cpus []int) {
		for used[id] { // boards that number all packages alike
			id++
		}
		used[id] = true
		for _, cpu := range cpus {
			done[cpu] = true
		}
		sockets = append(sockets, farm.Socket{ID: id, CPUs: farm.NewCPUSet(cpus...)})
	}
	for _, cpu := range online.List() {
		if set, ok := r.first(cpu, "package_cpus", "core_siblings"); ok && !done[cpu] {
			told = true
			add(r.packageOf(cpu), without(set.And(online), done, cpu))
		}
	}
	by := map[int][]int{}
	for _, cpu := range online.List() {
		if !done[cpu] {
			by[r.packageOf(cpu)] = append(by[r.packageOf(cpu)], cpu)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(by)) {
		if i := slices.IndexFunc(sockets, func(s farm.Socket) bool { return s.ID == id }); i >= 0 {
			sockets[i].CPUs = sockets[i].CPUs.Or(farm.NewCPUSet(by[id]...))
		} else {
			add(id, by[id])
		}
		told = told || len(by) > 1 || id != 0
	}
	slices.SortFunc(sockets, func(a, b farm.Socket) int { return a.ID - b.ID })
	return sockets, told
}

func (r reader) packageOf(cpu int) int {
	id, _ := r.Number(cpuPath(cpu, "topology/physical_package_id"), 1<<31-1)
	return max(id, 0)
}

// without lists cpu and those of a set that no other group has.
func without(set farm.CPUSet, done map[int]bool, cpu int) []int {
	out := []int{cpu}
	for _, c := range set.List() {
		if c != cpu && !done[c] {
			out = append(out, c)
		}
	}
	return out
}

// first reads the first of these sets of a CPU that is there. Kernels since 5.2 have other names for them.
func (r reader) first(cpu int, names ...string) (farm.CPUSet, bool) {
	for _, name := range names {
		if s, ok := r.CPUs(cpuPath(cpu, "topology/"+name)); ok {
			return s, true
		}
	}
	return farm.CPUSet{}, false
}

// cores groups CPUs by SMT siblings, and reports whether the kernel said anything of them. A sibling that claims
// another core, socket or node than the first of its core is a core of its own: a plan that trusted such a table would
// share a core without knowing.
func (r reader) cores(t farm.Topology, modules bool) (cores []farm.Core, told bool) {
	socket, node := map[int]int{}, map[int]int{}
	for _, s := range t.Sockets {
		for _, cpu := range s.CPUs.List() {
			socket[cpu] = s.ID
		}
	}
	for _, cpu := range t.Online.List() {
		node[cpu] = nodeOf(cpu, t.Nodes)
	}
	done, kinds := map[int]bool{}, r.kinds(t.Online)
	for _, cpu := range t.Online.List() {
		siblings, ok := r.siblings(cpu)
		told = told || ok
		if done[cpu] {
			continue
		}
		var threads []int
		for _, s := range without(siblings.And(t.Online), done, cpu) {
			if socket[s] == socket[cpu] && node[s] == node[cpu] && (!modules || r.coreID(s) == r.coreID(cpu)) {
				threads = append(threads, s)
				done[s] = true
			}
		}
		cores = append(cores, farm.Core{Socket: socket[cpu], Node: node[cpu], Threads: farm.NewCPUSet(threads...),
			Kind: kinds[cpu]})
	}
	return cores, told
}

func (r reader) coreID(cpu int) int {
	id, _ := r.Number(cpuPath(cpu, "topology/core_id"), 1<<31-1)
	return id
}

// twinModules reports whether a processor is of AMD's families 15h and 16h, which Linux shows as one core with two
// threads: each thread has a core of its own, that shares its caches with the other.
func twinModules(m farm.CPUModel) bool {
	return m.Vendor == "AuthenticAMD" && (m.Family == 21 || m.Family == 22)
}

// kinds distinguishes fast cores from slow ones, where a processor has both.
func (r reader) kinds(online farm.CPUSet) map[int]farm.CoreKind {
	out := map[int]farm.CoreKind{}
	for _, cpu := range r.listOf("sys/devices/cpu_core/cpus") { // Intel: the PMU of each kind names its CPUs
		out[cpu] = farm.FastCore
	}
	slow := r.listOf("sys/devices/cpu_atom/cpus")
	for _, cpu := range slow {
		out[cpu] = farm.SlowCore
	}
	if len(slow) > 0 {
		return out
	}
	clear(out)
	capacity, top := map[int]int{}, 0 // ARM, of 1024 for the fastest
	for _, cpu := range online.List() {
		capacity[cpu], _ = r.Number(cpuPath(cpu, "cpu_capacity"), 1<<20)
		top = max(top, capacity[cpu])
	}
	for cpu, c := range capacity {
		if c < top {
			out[cpu] = farm.SlowCore
		}
	}
	for cpu, c := range capacity {
		if c == top && len(out) > 0 && out[cpu] == "" {
			out[cpu] = farm.FastCore
		}
	}
	return out
}

func (r reader) listOf(path string) []int {
	set, _ := r.List(path)
	return set.List()
}

// nodeOf is the node with the fewest CPUs that lists cpu; only emulated trees have it in several. A CPU that no node
// lists is in the first, for every thread must be somewhere.
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

// siblings is the CPUs of cpu's core.
func (r reader) siblings(cpu int) (farm.CPUSet, bool) {
	return r.first(cpu, "core_cpus", "thread_siblings")
}
