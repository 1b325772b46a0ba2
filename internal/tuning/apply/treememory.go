package apply

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func poolDir(p pool, node int) string {
	name := fmt.Sprintf("hugepages-%dkB", p.size/farm.KiB)
	if node < 0 {
		return "sys/kernel/mm/hugepages/" + name
	}
	return fmt.Sprintf("sys/devices/system/node/node%d/hugepages/%s", node, name)
}

const (
	meminfo = "proc/meminfo"
	nodeDir = "sys/devices/system/node"
)

// infoOf is what tells of the memory of a node, or of the host when node is negative.
func infoOf(node int) string {
	if node < 0 {
		return meminfo
	}
	return fmt.Sprintf("%s/node%d/meminfo", nodeDir, node)
}

// nodes lists the numbers of the memory nodes, in order.
func (t *tree) nodes() ([]int, error) {
	names, err := entries(t.root, nodeDir)
	var out []int
	for _, name := range names {
		text, ok := strings.CutPrefix(name, "node")
		if n, err := strconv.Atoi(text); ok && err == nil && n >= 0 && len(out) < 1024 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, err
}

// setPages gives a pool as many pages as memory allows, of one node or shared out over all, and keeps every count in
// step.
func (t *tree) setPages(p pool, value string) error {
	want, err := strconv.ParseInt(value, 10, 32)
	if err != nil || want < 0 {
		return fmt.Errorf("invalid number of pages %q", value)
	}
	if p.node >= 0 {
		return t.setNodePages(p, p.node, want)
	}
	nodes, err := t.nodes()
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(nodes, func(n int) bool { return !t.exists(poolDir(p, n) + "/nr_hugepages") })
	if len(nodes) == 0 {
		return t.setNodePages(p, -1, want)
	}
	for i, node := range nodes {
		share := want / int64(len(nodes))
		if int64(i) < want%int64(len(nodes)) {
			share++
		}
		if err := t.setNodePages(p, node, share); err != nil {
			return err
		}
	}
	return nil
}

// setNodePages sets the pool of a node, or of a host that does not tell of nodes when node is negative.
func (t *tree) setNodePages(p pool, node int, want int64) error {
	more := want - t.number(poolDir(p, node)+"/nr_hugepages")
	if room, known := t.room(node); known && more > 0 {
		more = min(more, room/int64(p.size))
	}
	if more < 0 { // pages in use stay
		more = max(more, -t.number(poolDir(p, node)+"/free_hugepages"))
	}
	if err := t.addPages(p, -1, more); err != nil || node < 0 {
		return err
	}
	return t.addPages(p, node, more)
}

// room is the memory of a node that the kernel could make into huge pages: free, or page cache that it can drop. It is
// not known of a recorded host with VMs on it, which would end first and give back nobody knows how much of each node.
func (t *tree) room(node int) (int64, bool) {
	if vms, err := t.VMs(); err != nil || len(vms) > 0 {
		return 0, false
	}
	b, err := readBytes(t.root, infoOf(node))
	if err != nil {
		return 0, false
	}
	m := readMemory(string(b))
	return m["MemFree"] + m["Active(file)"] + m["Inactive(file)"], m["MemTotal"] > 0
}

// addPages changes the counts of one node, or of the host when node is negative.
func (t *tree) addPages(p pool, node int, more int64) error {
	dir := poolDir(p, node)
	for _, name := range []string{"nr_hugepages", "free_hugepages"} {
		err := t.put(dir+"/"+name, func(old string) string {
			n, _ := strconv.ParseInt(strings.TrimSpace(old), 10, 64)
			return render(old, strconv.FormatInt(n+more, 10))
		})
		if err != nil {
			return err
		}
	}
	kib := more * int64(p.size/farm.KiB)
	counts := map[string]int64{"MemFree": -kib, "MemUsed": kib, "MemAvailable": -kib, "Hugetlb": kib}
	if t.defaultSize() == p.size {
		counts["HugePages_Total"], counts["HugePages_Free"] = more, more
	}
	return t.put(infoOf(node), func(old string) string { return addMemory(old, counts) })
}

// defaultSize is the size of the huge pages that meminfo counts.
func (t *tree) defaultSize() farm.Bytes {
	b, err := readBytes(t.root, meminfo)
	if err != nil {
		return 0
	}
	return farm.Bytes(readMemory(string(b))["Hugepagesize"])
}

// memoryLine takes a line of meminfo apart, the host's or a node's: everything up to the colon, the name, the blanks,
// the number.
func memoryLine(line string) (head, name, blanks string, n int64, tail string, ok bool) {
	head, rest, ok := strings.Cut(line, ":")
	name = head[strings.LastIndexByte(head, ' ')+1:]
	number := strings.TrimLeft(rest, " \t")
	blanks = rest[:len(rest)-len(number)]
	digits := len(number) - len(strings.TrimLeft(number, "0123456789"))
	n, err := strconv.ParseInt(number[:digits], 10, 64)
	return head, name, blanks, n, number[digits:], ok && err == nil
}

// readMemory reads meminfo: bytes, and plain counts for what has no unit.
func readMemory(text string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		_, name, _, n, tail, ok := memoryLine(line)
		if !ok {
			continue
		}
		if strings.TrimSpace(tail) == "kB" {
			n *= int64(farm.KiB)
		}
		out[name] = n
	}
	return out
}

// addMemory adds to lines of meminfo, which keep their columns.
func addMemory(text string, counts map[string]int64) string {
	return edit(text, func(line string) []string {
		head, name, blanks, n, tail, ok := memoryLine(line)
		more, wanted := counts[name]
		if !ok || !wanted || more == 0 {
			return []string{line}
		}
		width := len(blanks) + len(strconv.FormatInt(n, 10))
		number := strconv.FormatInt(max(0, n+more), 10)
		return []string{head + ":" + strings.Repeat(" ", max(1, width-len(number))) + number + tail}
	})
}
