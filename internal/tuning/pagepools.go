package tuning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// nodePages is a number of huge pages on one node.
type nodePages struct{ node, count int }

// guestNodes are the nodes that VMs can live on: with CPUs and memory.
func guestNodes(h farm.HostFacts) []farm.Node {
	return slices.DeleteFunc(slices.Clone(h.Topology.Nodes), func(n farm.Node) bool {
		return n.CPUs.Empty() ||
			n.Memory == 0
	})
}

// alikeNodes reports whether nodes have the same memory, but for the tenth that firmware and kernel take from some of
// them.
func alikeNodes(nodes []farm.Node) bool {
	if len(nodes) == 0 {
		return true
	}
	least, most := nodes[0].Memory, nodes[0].Memory
	for _, n := range nodes {
		least, most = min(least, n.Memory), max(most, n.Memory)
	}
	return most-least <= most/10
}

// perNode reports whether the kernel takes huge pages for each node on its command line, "hugepages=0:24,1:24": since
// 5.16.
func perNode(h farm.HostFacts) bool { return since(h.Kernel.Release, 5, 16) }

// pageSize is the best of the profile's page sizes that this host can give evenly. Pages of 1 GiB are found while the
// kernel boots or hardly ever, and on several nodes only a kernel that is told the number for each gives them evenly.
func pageSize(h farm.HostFacts, p Profile) (farm.Bytes, bool) {
	for i, size := range p.PageSizes {
		last := i == len(p.PageSizes)-1
		if size >= farm.GiB && (!slices.Contains(h.Topology.CPU.Flags, "pdpe1gb") ||
			!last && (h.Kernel.BootFile == "" || len(guestNodes(h)) > 1 && !perNode(h))) {
			continue
		}
		if poolKnown(h, size) {
			return size, true
		}
	}
	return 0, false
}

// poolKnown reports whether the kernel has pages of a size.
func poolKnown(h farm.HostFacts, size farm.Bytes) bool {
	return slices.ContainsFunc(h.Pages, func(p farm.PagePool) bool { return p.Size == size })
}

// defaultPageSize is the size of huge pages that the running kernel gives to programs that do not name one.
func defaultPageSize(h farm.HostFacts) farm.Bytes {
	if h.Memory.DefaultPage > 0 {
		return h.Memory.DefaultPage
	}
	if text, ok := bootValue(h.Kernel.Command, "default_hugepagesz"); ok {
		if size := memparse(text); size > 0 && kernelHasPage(h, size) {
			return size
		}
	}
	return kernelPage(h)
}

// wantedPages is how many pages of a size each node should have: the profile's share of its memory, less what the host
// needs itself; the same number on all nodes where they are alike.
func wantedPages(h farm.HostFacts, p Profile, size farm.Bytes) []nodePages {
	nodes := guestNodes(h)
	if p.PageShare <= 0 || size == 0 || len(nodes) == 0 {
		return nil
	}
	kept := ownNeed(h, p) / farm.Bytes(len(nodes))
	var out []nodePages
	least := -1
	for _, n := range nodes {
		share := farm.Bytes(float64(n.Memory) * p.PageShare)
		if n.Memory <= kept {
			return nil
		}
		count := int(min(share, n.Memory-kept) / size)
		if count == 0 {
			return nil
		}
		if least < 0 || count < least {
			least = count
		}
		out = append(out, nodePages{n.ID, count})
	}
	if alikeNodes(nodes) {
		for i := range out {
			out[i].count = least
		}
	}
	return out
}

// staticPages is the number of reserved pages of a size: the sum over nodes where they tell, for the host's own count
// may lag.
func staticPages(h farm.HostFacts, size farm.Bytes) int {
	sum, told := 0, false
	for _, n := range h.Topology.Nodes {
		for _, pool := range n.Pages {
			if pool.Size == size {
				sum, told = sum+pool.Total, true
			}
		}
	}
	if told {
		return sum
	}
	for _, pool := range h.Pages {
		if pool.Size == size {
			return pool.Total
		}
	}
	return 0
}

// staticMemory is all memory in huge pages, now or, where the next boot changes that, then.
func staticMemory(h farm.HostFacts) farm.Bytes {
	var sum farm.Bytes
	if pagesChangeAtBoot(h.Kernel) {
		for _, pool := range bootPools(h, h.Kernel.NextBoot) {
			sum += farm.Bytes(pool.total) * pool.size
		}
		return sum
	}
	for _, pool := range h.Pages {
		sum += farm.Bytes(staticPages(h, pool.Size)) * pool.Size
	}
	return sum
}

// sizesInUse are the sizes of which the host has pages.
func sizesInUse(h farm.HostFacts) []farm.Bytes {
	var out []farm.Bytes
	for _, pool := range h.Pages {
		if staticPages(h, pool.Size) > 0 {
			out = append(out, pool.Size)
		}
	}
	return out
}

// bootPageChanges puts a pool on the next command line, in place of all that the line says about huge pages.
func bootPageChanges(h farm.HostFacts, size farm.Bytes, pages []nodePages) []Change {
	if h.Kernel.BootFile == "" {
		return nil
	}
	name := bootSize(size)
	return []Change{{Kind: SetBoot, Name: "default_hugepagesz", Value: name, Reboot: true},
		{Kind: SetBoot, Name: "hugepagesz", Value: name, Reboot: true},
		{Kind: SetBoot, Name: "hugepages", Value: bootCount(h, pages), Reboot: true}}
}

func bootSize(size farm.Bytes) string { return size.String() }

func bootCount(h farm.HostFacts, pages []nodePages) string {
	if len(pages) > 1 && perNode(h) {
		var parts []string
		for _, n := range pages {
			parts = append(parts, fmt.Sprintf("%d:%d", n.node, n.count))
		}
		return strings.Join(parts, ",")
	}
	sum := 0
	for _, n := range pages {
		sum += n.count
	}
	return fmt.Sprint(sum)
}

// livePageChanges set the pools of a running host, node by node. They wait for the last VM: memory that VMs hold cannot
// become pages, and pages that VMs hold cannot go.
func livePageChanges(h farm.HostFacts, size farm.Bytes, pages []nodePages) []Change {
	var out []Change
	for _, n := range pages {
		path := fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages", n.node,
			size/farm.KiB)
		if len(pages) == 1 && !nodeTells(h, n.node, size) {
			path = fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages", size/farm.KiB)
		}
		out = append(out, Change{Kind: SetValue, Path: path, Value: fmt.Sprint(n.count), NoVMs: true})
	}
	return out
}

func nodeTells(h farm.HostFacts, id int, size farm.Bytes) bool {
	for _, n := range h.Topology.Nodes {
		if n.ID == id {
			return slices.ContainsFunc(n.Pages, func(p farm.HugePages) bool { return p.Size == size })
		}
	}
	return false
}

// pageChanges reserve pages: small ones now and at each boot, those of 1 GiB at the next boot only.
func pageChanges(h farm.HostFacts, size farm.Bytes, pages []nodePages) []Change {
	out := bootPageChanges(h, size, pages)
	if size < farm.GiB || len(out) == 0 {
		out = append(livePageChanges(h, size, pages), out...)
	}
	return out
}

// pagesInWords is "28 on each of nodes 0-1", or "28 on node 0, 12 on node 1".
func pagesInWords(pages []nodePages) string {
	var ids []int
	same := true
	var parts []string
	for _, n := range pages {
		ids = append(ids, n.node)
		same = same && n.count == pages[0].count
		parts = append(parts, fmt.Sprintf("%d on node %d", n.count, n.node))
	}
	if same && len(pages) > 1 {
		return fmt.Sprintf("%d on each of nodes %s", pages[0].count, farm.NewCPUSet(ids...))
	}
	return strings.Join(parts, ", ")
}
