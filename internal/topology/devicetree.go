package topology

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

const treeDir = "proc/device-tree/cpus"

// treeNode is a processor or a cache of the device tree. Each names the cache behind it.
type treeNode struct {
	handle, next uint32 // 0 where there is none
	cpus         farm.CPUSet
}

// treeCaches reads level 3 caches of POWER machines whose kernel shows no caches in /sys.
func (r reader) treeCaches(online farm.CPUSet) []farm.CPUSet {
	var all []treeNode
	for _, name := range r.Names(treeDir) {
		if len(all) == hosttree.MaxCPUs {
			r.Fail(treeDir, "has more than %d entries", hosttree.MaxCPUs)
			return nil
		}
		dir := treeDir + "/" + name
		kind, _ := r.Text(dir + "/device_type")
		if kind != "cpu" && kind != "cache" {
			continue
		}
		n := treeNode{handle: r.cell(dir, "phandle", "ibm,phandle", "linux,phandle"),
			next: r.cell(dir, "l2-cache", "next-level-cache")}
		if kind == "cpu" {
			n.cpus = r.treeThreads(dir)
		}
		all = append(all, n)
	}
	var out []farm.CPUSet
	for _, l3 := range all {
		if l3.handle == 0 || !l3.cpus.Empty() {
			continue
		}
		var ids []int
		for _, l2 := range all {
			if l2.next != l3.handle || !l2.cpus.Empty() {
				continue
			}
			for _, cpu := range all {
				if cpu.next == l2.handle && l2.handle != 0 {
					ids = append(ids, cpu.cpus.List()...)
				}
			}
		}
		if shared := farm.NewCPUSet(ids...).And(online); !shared.Empty() {
			out = append(out, shared)
		}
	}
	slices.SortFunc(out, func(a, b farm.CPUSet) int { return a.List()[0] - b.List()[0] })
	return out
}

// treeThreads is the CPUs of one core.
func (r reader) treeThreads(dir string) farm.CPUSet {
	text, ok := r.Head(dir + "/ibm,ppc-interrupt-server#s")
	if !ok {
		text, _ = r.Head(dir + "/reg")
	}
	var ids []int
	for cell := range slices.Chunk([]byte(text), 4) {
		if len(cell) == 4 && binary.BigEndian.Uint32(cell) < hosttree.MaxCPUs && len(ids) < hosttree.MaxCPUs {
			ids = append(ids, int(binary.BigEndian.Uint32(cell)))
		}
	}
	return farm.NewCPUSet(ids...)
}

// cell reads a number from the first of these properties that is there.
func (r reader) cell(dir string, names ...string) uint32 {
	for _, name := range names {
		if text, ok := r.Head(dir + "/" + name); ok && len(text) == 4 {
			return binary.BigEndian.Uint32([]byte(text))
		}
	}
	return 0
}

// cpuinfo lists the processors of /proc/cpuinfo: "processor : 3", or "processor 3: version = FF" on s390. A machine
// that numbers none has one.
func (r reader) cpuinfo() farm.CPUSet {
	text, _ := r.Large("proc/cpuinfo")
	var list []string
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		number, ok := strings.CutPrefix(strings.TrimSpace(name), "processor")
		if !ok {
			continue
		}
		if number = strings.TrimSpace(number); number == "" {
			number = strings.TrimSpace(value)
		}
		list = append(list, number)
	}
	set, ok := hosttree.ParseList(strings.Join(list, ","))
	switch {
	case !ok && text != "":
		r.Fail("proc/cpuinfo", "numbers its processors in a way that is not known")
	case set.Empty() && text != "":
		return farm.NewCPUSet(0)
	}
	return set
}
