package topology

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// caches lists the groups of CPUs that share a level 3 cache, in order of their first CPU. A cache that cuts through
// another is left out: such tables of broken firmware say nothing.
func (r reader) caches(t farm.Topology) []farm.CPUSet {
	var out []farm.CPUSet
	taken, some := farm.CPUSet{}, false
	for _, cpu := range t.Online.List() {
		shared, any := r.level3(cpu)
		some = some || any
		if shared = shared.And(t.Online); shared.Empty() || shared.List()[0] != cpu {
			continue
		}
		if shared.And(taken).Empty() {
			out = append(out, shared)
			taken = taken.Or(shared)
		}
	}
	switch {
	case len(out) > 0:
		return out
	case knightsLanding(t.CPU):
		return r.mcdram(t.Nodes)
	case !some:
		return r.treeCaches(t.Online)
	}
	return nil
}

// maxCacheIndex bounds the caches of one CPU: Linux has two of level 1 and one of each other.
const maxCacheIndex = 10

// level3 is the CPUs that share cpu's level 3 cache, and whether it has any cache at all.
func (r reader) level3(cpu int) (shared farm.CPUSet, any bool) {
	for i := range maxCacheIndex {
		dir := cpuPath(cpu, "cache/index"+digits(i))
		level, ok := r.Number(dir+"/level", 16)
		any = any || ok
		if !ok || level != 3 {
			continue
		}
		if kind, _ := r.Text(dir + "/type"); kind == "Instruction" {
			continue
		}
		if shared, ok = r.ListOrMask(dir+"/shared_cpu_list", dir+"/shared_cpu_map"); ok && shared.Empty() {
			shared, _ = r.siblings(cpu) // as on Itanium
		}
		return shared, true
	}
	return farm.CPUSet{}, any
}

// knightsLanding reports whether a processor is Intel's Xeon Phi x200 or its successor.
func knightsLanding(m farm.CPUModel) bool {
	return m.Vendor == "GenuineIntel" && m.Family == 6 && (m.Model == 87 || m.Model == 133)
}

// mcdram is the fast memory of Knights Landing, as far as it is a cache: one in front of the memory of each group of
// CPUs. /sys does not know it. What is not a cache is a memory node without CPUs; there are 16 GiB in all.
// hwloc-dump-hwdata writes at boot what the firmware says.
func (r reader) mcdram(nodes []farm.Node) []farm.CPUSet {
	const file = "var/run/hwloc/knl_memoryside_cache"
	text, told := r.Text(file)
	cached := false
	for line := range strings.Lines(text) {
		if mode, ok := strings.CutPrefix(line, "memory_mode:"); ok {
			mode = strings.TrimSpace(mode)
			cached = mode == "Cache" || strings.HasPrefix(mode, "Hybrid")
		}
	}
	if !told {
		flat := farm.Bytes(0)
		for _, n := range nodes {
			if n.CPUs.Empty() {
				flat += n.Memory
			}
		}
		cached = flat < 15*farm.GiB // some of it is kept back by the firmware
	}
	var out []farm.CPUSet
	for _, n := range nodes {
		if cached && !n.CPUs.Empty() {
			out = append(out, n.CPUs)
		}
	}
	return out
}
