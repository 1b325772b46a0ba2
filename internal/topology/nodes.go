package topology

import (
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// nodes reads the memory nodes, those that are left out because they overlap another, and the distances between the
// others.
func (r reader) nodes(online farm.CPUSet) (nodes, overlapping []farm.Node, distances [][]int) {
	ids := r.Numbered(nodeDir, "node", maxNodes)
	if listed, ok := r.List(nodeDir + "/online"); ok {
		ids = slices.DeleteFunc(ids, func(id int) bool { return !listed.Has(id) })
	}
	gpus, all := r.gpuNodes(), slices.Clone(ids)
	ids = slices.DeleteFunc(ids, func(id int) bool { return gpus[id] })
	if len(ids) == 0 {
		return []farm.Node{r.onlyNode(online)}, nil, nil
	}
	for _, id := range ids {
		dir := nodeDir + "/node" + digits(id)
		info := r.meminfo(dir+"/meminfo", "Node "+digits(id)+" ")
		cpus, _ := r.ListOrMask(dir+"/cpulist", dir+"/cpumap")
		n := farm.Node{ID: id, CPUs: cpus.And(online), Memory: info["MemTotal"],
			Free: min(info["MemFree"], info["MemTotal"])}
		n.Pages = r.pages(dir+"/hugepages", n.Memory)
		nodes = append(nodes, n)
	}
	nodes, overlapping = disjoint(nodes)
	ids = ids[:0]
	for _, n := range nodes {
		ids = append(ids, n.ID)
	}
	return nodes, overlapping, r.distances(ids, all)
}

// disjoint takes nodes whose CPUs overlap for one, as firmware that lies makes them: some machines show several nodes
// with the same CPUs. The first of them gets the CPUs of all and keeps its own memory, for memory can be bound to that
// node and no other. A node within another is a real one: of groups of CPUs within a socket, say.
func disjoint(nodes []farm.Node) (kept, overlapping []farm.Node) {
	for _, n := range nodes {
		i := slices.IndexFunc(kept, func(k farm.Node) bool { return crosses(k.CPUs, n.CPUs) })
		if i < 0 {
			kept = append(kept, n)
			continue
		}
		kept[i].CPUs = kept[i].CPUs.Or(n.CPUs)
		overlapping = append(overlapping, n)
	}
	if len(overlapping) == 0 {
		return kept, nil
	}
	// With its new CPUs a node may overlap one that it did not before.
	again, more := disjoint(kept)
	return again, append(overlapping, more...)
}

// crosses reports whether two sets are equal or overlap without one being part of the other.
func crosses(a, b farm.CPUSet) bool {
	return !a.And(b).Empty() && (a.Equal(b) || !a.Minus(b).Empty() && !b.Minus(a).Empty())
}

// onlyNode is the whole host as one node, for kernels without NUMA.
func (r reader) onlyNode(online farm.CPUSet) farm.Node {
	info := r.meminfo("proc/meminfo", "")
	n := farm.Node{CPUs: online, Memory: info["MemTotal"], Free: min(info["MemFree"], info["MemTotal"])}
	n.Pages = r.pages(pageDir, n.Memory)
	return n
}

// gpuNodes are nodes whose memory is that of an NVIDIA GPU, as on POWER9: neither the kernel nor a VM should use it.
func (r reader) gpuNodes() map[int]bool {
	const dir = "proc/driver/nvidia/gpus"
	out := map[int]bool{}
	for _, gpu := range r.Names(dir) {
		text, _ := r.Text(dir + "/" + gpu + "/numa_status")
		for line := range strings.Lines(text) {
			if number, ok := strings.CutPrefix(line, "Node:"); ok {
				if id, err := strconv.Atoi(strings.TrimSpace(number)); err == nil {
					out[id] = true
				}
			}
		}
	}
	return out
}

// distances reads the SLIT between these nodes, or gives nil when a row is missing or has not one entry for each of all
// nodes.
func (r reader) distances(ids, all []int) [][]int {
	rows := make([][]int, 0, len(ids))
	for _, id := range ids {
		path := nodeDir + "/node" + digits(id) + "/distance"
		text, ok := r.Text(path)
		fields := strings.Fields(text)
		if !ok || len(fields) != len(all) {
			return nil
		}
		row := make([]int, 0, len(ids))
		for i, f := range fields {
			d, err := strconv.Atoi(f)
			if err != nil || d < 0 || d > 255 { // the SLIT has bytes; 255 means unreachable
				r.Fail(path, "%q is not a distance", f)
				return nil
			}
			if slices.Contains(ids, all[i]) {
				row = append(row, d)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// pages reads the pools of huge pages below dir, in rising order of page size. Sizes of which the pool could hold more
// than memory does are an error: every sum after this one may trust them.
func (r reader) pages(dir string, memory farm.Bytes) []farm.HugePages {
	var out []farm.HugePages
	left := memory
	for _, name := range r.Names(dir) {
		kib, ok := strings.CutPrefix(name, "hugepages-")
		kib, ok2 := strings.CutSuffix(kib, "kB")
		if !ok || !ok2 {
			continue
		}
		n, err := strconv.ParseUint(kib, 10, 64)
		if err != nil || n == 0 || n > maxKiB || n&(n-1) != 0 {
			r.Fail(dir+"/"+name, "is not a page size")
			return nil
		}
		p := farm.HugePages{Size: farm.Bytes(n) * farm.KiB}
		p.Total, _ = r.Number(dir+"/"+name+"/nr_hugepages", maxKiB)
		p.Free, _ = r.Number(dir+"/"+name+"/free_hugepages", maxKiB)
		p.Surplus, _ = r.Number(dir+"/"+name+"/surplus_hugepages", maxKiB)
		if p.Total < 0 || p.Free < 0 || farm.Bytes(p.Total) > left/p.Size {
			r.Fail(dir+"/"+name, "%d pages are more than the %v of memory", p.Total, memory)
			return nil
		}
		left -= farm.Bytes(p.Total) * p.Size
		p.Free, p.Surplus = min(p.Free, p.Total), min(max(p.Surplus, 0), p.Total)
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b farm.HugePages) int {
		if a.Size < b.Size {
			return -1
		}
		return 1
	})
	return out
}

// meminfo reads lines of "Name: 123 kB" after prefix.
func (r reader) meminfo(path, prefix string) map[string]farm.Bytes {
	out := map[string]farm.Bytes{}
	text, _ := r.Text(path)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimPrefix(line, prefix), ":")
		if !ok || name != "MemTotal" && name != "MemFree" {
			continue
		}
		fields := strings.Fields(value)
		if len(fields) != 2 || fields[1] != "kB" {
			r.Fail(path, "%q is not an amount of memory", strings.TrimSpace(line))
			continue
		}
		n, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil || n > maxKiB {
			r.Fail(path, "%q is not an amount of memory", strings.TrimSpace(line))
			continue
		}
		out[name] = farm.Bytes(n) * farm.KiB
	}
	return out
}
