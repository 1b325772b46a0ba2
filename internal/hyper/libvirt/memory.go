package libvirt

import (
	"fmt"
	"maps"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// memory writes the guest's NUMA cells, binds each to its node, and backs it with the planned pages.
func (h host) memory(d *libvirtxml.Domain, m hyper.Machine, warn func(string, ...any)) {
	var backing libvirtxml.DomainMemoryBacking
	if !lends(m) {
		// Pages that the kernel would merge between machines cost CPU time and leak what a neighbour runs.
		backing.MemoryNosharepages = &libvirtxml.DomainMemoryNosharepages{}
	}
	var nodes []int
	tune := &libvirtxml.DomainNUMATune{}
	pages := map[farm.Bytes][]int{}
	for i, c := range m.Plan.Cells {
		id := uint(i)
		cell := libvirtxml.DomainCell{
			ID: &id, CPUs: c.VCPUs.String(), Memory: kib(c.Memory), Unit: "KiB",
			Distances: h.distances(m.Plan.Cells, i),
		}
		if len(m.Shares) > 0 {
			cell.MemAccess = "shared"
		}
		d.CPU.Numa.Cell = append(d.CPU.Numa.Cell, cell)
		nodes = append(nodes, c.Node)
		tune.MemNodes = append(tune.MemNodes,
			libvirtxml.DomainNUMATuneMemNode{CellID: id, Mode: "strict", Nodeset: fmt.Sprint(c.Node)})
		if c.PageSize != 0 {
			pages[c.PageSize] = append(pages[c.PageSize], i)
		}
	}
	if h.numa {
		tune.Memory = &libvirtxml.DomainNUMATuneMemory{Mode: "strict", Nodeset: farm.NewCPUSet(nodes...).String()}
		d.NUMATune = tune
	} else {
		warn("memory is not bound to node %s: this host's libvirt knows no memory nodes", farm.NewCPUSet(nodes...))
	}
	if len(pages) > 0 {
		huge := &libvirtxml.DomainMemoryHugepages{}
		for _, size := range slices.Sorted(maps.Keys(pages)) {
			huge.Hugepages = append(huge.Hugepages, libvirtxml.DomainMemoryHugepage{
				Size: kib(size), Unit: "KiB", Nodeset: farm.NewCPUSet(pages[size]...).String(),
			})
		}
		backing.MemoryHugePages = huge
	}
	if len(m.Shares) > 0 { // who serves them has the guest's memory too; it has no name on the host
		backing.MemorySource = &libvirtxml.DomainMemorySource{Type: "memfd"}
		backing.MemoryAccess = &libvirtxml.DomainMemoryAccess{Mode: "shared"}
	}
	if backing != (libvirtxml.DomainMemoryBacking{}) {
		d.MemoryBacking = &backing
	}
}

// Distances that the ACPI gives a meaning: a node to itself, and the least and most to another. Linux drops a whole
// table in which another node is as near as the own.
const (
	localDistance = 10
	nearDistance  = 11
	farDistance   = 254 // 255 is "cannot be reached"
)

// distances are those of cell at to each cell, as on the host; nil where the host does not say, or where there is one
// cell alone.
func (h host) distances(cells []farm.GuestCell, at int) *libvirtxml.DomainCellDistances {
	if len(cells) < 2 {
		return nil
	}
	out := &libvirtxml.DomainCellDistances{}
	for i, c := range cells {
		value := localDistance
		if i != at {
			known, ok := h.distance[cells[at].Node][c.Node]
			if !ok {
				return nil
			}
			value = min(max(known, nearDistance), farDistance)
		}
		out.Siblings = append(out.Siblings, libvirtxml.DomainCellSibling{ID: uint(i), Value: uint(value)})
	}
	return out
}
