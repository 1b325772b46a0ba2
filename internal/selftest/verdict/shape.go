package verdict

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// Room is what of a host VMs of the caller may have.
type Room struct {
	Host    farm.Topology // Free of nodes and pages is what can still be granted
	Allowed farm.CPUSet   // to the caller, without what is reserved
	Free    farm.CPUSet   // of all CPUs, now
}

// Shape is a VM to try.
type Shape struct {
	Name     string
	CPUs     int
	Memory   farm.Bytes
	Cells    int        // guest NUMA cells
	Whole    bool       // whole cores, with all their threads, where a core has several
	PageSize farm.Bytes // of huge pages; 0: ordinary ones
	Missing  string     // why the host can never hold it
	InUse    string     // why it cannot now
}

const (
	// leastMemory boots the micro image, and leaves room for what the test does in it.
	leastMemory = 256 * farm.MiB
	// memoryOfCPU is what a guest's kernel takes for each more CPU, generously.
	memoryOfCPU = 16 * farm.MiB
	smallPage   = 2 * farm.MiB
)

// One is the smallest VM.
func One(r Room) Shape {
	return r.fit(Shape{Name: "1 vCPU", CPUs: 1, Memory: leastMemory, Cells: 1})
}

// ShapesOf are the VMs to try on a host: one vCPU, one core, one node, all nodes. What is no other VM than the one
// before is left out.
func ShapesOf(r Room) []Shape {
	shapes := []Shape{One(r)}
	threads, widest, least, nodes := 0, 0, 0, 0
	for _, n := range r.Host.Nodes {
		cpus, core := r.wholeCores(n.ID, r.Allowed)
		if cpus == 0 || n.Memory == 0 {
			continue
		}
		nodes++
		threads, widest = max(threads, core), max(widest, cpus)
		if least == 0 || cpus < least {
			least = cpus
		}
	}
	add := func(name string, cpus, cells int) {
		if cpus > shapes[len(shapes)-1].CPUs {
			shapes = append(shapes, r.fit(Shape{Name: name, CPUs: cpus, Cells: cells, Whole: threads > 1,
				Memory: farm.Bytes(cells)*leastMemory + farm.Bytes(cpus)*memoryOfCPU}))
		}
	}
	add(fmt.Sprintf("one core, %s", count(threads, "thread")), threads, 1)
	add(fmt.Sprintf("one node, %s", count(widest, "vCPU")), widest, 1)
	if nodes > 1 {
		add(fmt.Sprintf("%d nodes, %s", nodes, count(nodes*least, "vCPU")), nodes*least, nodes)
	}
	return shapes
}

// PagesShape is a VM whose memory is in huge pages of a size.
func PagesShape(r Room, size farm.Bytes) Shape {
	s := Shape{Name: fmt.Sprintf("1 vCPU in pages of %v", size), CPUs: 1, Cells: 1, PageSize: size,
		Memory: max(leastMemory, size)}
	most, now := 0, 0
	for _, n := range r.Host.Nodes {
		if n.CPUs.And(r.Allowed).Empty() {
			continue
		}
		for _, p := range n.Pages {
			if p.Size == size {
				most, now = max(most, p.Total), max(now, p.Free)
			}
		}
	}
	need := int(s.Memory / size)
	switch {
	case most < need:
		s.Missing = fmt.Sprintf("no node has a pool of %s of %v", count(need, "page"), size)
	case now < need || r.Free.And(r.Allowed).Empty():
		s.InUse = "its pages or CPUs are in use"
	}
	return s
}

// fit returns why a shape without huge pages cannot be held, if it cannot.
func (r Room) fit(s Shape) Shape {
	unit := smallPage * farm.Bytes(s.Cells) // cells are alike, and in whole pages
	s.Memory = (s.Memory + unit - 1) / unit * unit
	each, memory := s.CPUs/s.Cells, s.Memory/farm.Bytes(s.Cells)
	could, can := 0, 0
	for _, n := range r.Host.Nodes {
		if r.cpusOn(n, r.Allowed, s.Whole) >= each && n.Memory >= 2*memory {
			could++
		}
		if r.cpusOn(n, r.Allowed.And(r.Free), s.Whole) >= each && n.Free >= memory {
			can++
		}
	}
	switch {
	case could < s.Cells:
		s.Missing = "the host has not the CPUs or the memory for it"
	case can < s.Cells:
		s.InUse = "its CPUs or memory are in use"
	}
	return s
}

func (r Room) cpusOn(n farm.Node, within farm.CPUSet, whole bool) int {
	if !whole {
		return n.CPUs.And(within).Len()
	}
	cpus, _ := r.wholeCores(n.ID, within)
	return cpus
}

// wholeCores returns how many CPUs of a node are on cores that lie within a set with all their threads, and the most
// threads of such a core.
func (r Room) wholeCores(node int, within farm.CPUSet) (cpus, threads int) {
	for _, c := range r.Host.Cores {
		if c.Node == node && c.Threads.Minus(within).Empty() {
			cpus, threads = cpus+c.Threads.Len(), max(threads, c.Threads.Len())
		}
	}
	return cpus, threads
}
