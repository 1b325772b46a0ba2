package verify

import (
	"fmt"
	"maps"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// slack is memory of QEMU itself that may lie anywhere: its heap, stacks and buffers. A guest has more than that. It is
// left out where the guest's memory can be told from QEMU's.
const slack = 64 * farm.MiB

// memoryProblems compares where a VM's memory lies with where its vCPUs run and with what was planned.
func (h *host) memoryProblems(m *machine) []Problem {
	if len(h.nodes) < 2 || len(m.vcpus) == 0 {
		return nil
	}
	out := h.binding(m)
	remote := h.remote(m)
	if len(remote) == 0 {
		remote = h.astray(m)
	}
	if len(remote) == 0 {
		remote = h.uneven(m)
	}
	if len(remote) == 0 {
		remote = h.roaming(m)
	}
	return append(append(out, remote...), h.cellsApart(m)...)
}

// binding compares the nodes that memory is bound to with the plan's.
func (h *host) binding(m *machine) []Problem {
	if m.plan == nil || m.proc.Memory.Resident == nil {
		return nil
	}
	var nodes []int
	for _, c := range m.plan.Cells {
		nodes = append(nodes, c.Node)
	}
	if want := farm.NewCPUSet(nodes...); !m.proc.Memory.Nodes().Equal(want) {
		return []Problem{{Kind: Differs, Severity: tuning.Warning, VM: m.name, Source: locality,
			Fix: "end the VM; its job can run again",
			Message: fmt.Sprintf("memory is bound to %s, planned on %s", counted(m.proc.Memory.Nodes(), "node"),
				counted(want, "node"))}}
	}
	return nil
}

// remote finds memory on nodes where none of the VM's vCPUs may run. A node without CPUs is near to nobody: memory that
// is bound there is meant to be there.
func (h *host) remote(m *machine) []Problem {
	var near []int
	for _, cpu := range m.allowed().List() {
		if node, ok := h.nodeOf[cpu]; ok {
			near = append(near, node)
		}
	}
	local := farm.NewCPUSet(near...)
	if local.Empty() {
		return nil
	}
	memory, tolerated := m.guestMemory()
	var far, all farm.Bytes
	where := ""
	for _, node := range slices.Sorted(maps.Keys(memory)) {
		size := memory[node]
		all += size
		if size == 0 || local.Has(node) || m.proc.Memory.Nodes().Has(node) && h.nodes[node].Empty() {
			continue
		}
		far += size
		where += fmt.Sprintf(", %v on node %d", size, node)
	}
	if far == 0 || tolerated > 0 && far <= max(tolerated, all/100) {
		return nil
	}
	p := Problem{Kind: RemoteMem, Severity: tuning.Warning, VM: m.name, CPUs: m.allowed(), Source: locality,
		Message: fmt.Sprintf("its vCPUs run on %s, and %v of its %v lie elsewhere: %s", counted(local, "node"), far,
			all, where[len(", "):]), Fix: "bind memory to the vCPUs' nodes (numatune, mode strict) and start the VM " +
			"anew, or move the pages: migratepages PID FROM TO"}
	if h.memoryless(local) {
		p.Message += fmt.Sprintf("; %s has no memory", counted(local, "node"))
		p.Fix = h.towardsMemory(m, memory)
		if m.plan != nil {
			p.Severity, p.Fix = tuning.Advice, "nothing: it is planned so, as CPUs beside memory were taken"
		} else if p.Fix == "" {
			p.Severity = tuning.Advice
			p.Fix = "nothing as long as the CPUs of nodes with memory are taken: all memory is remote to these CPUs"
		}
	}
	return []Problem{p}
}

// memoryless reports whether none of some nodes has memory, as far as the host tells.
func (h *host) memoryless(nodes farm.CPUSet) bool {
	known := false
	for _, n := range h.Topology.Nodes {
		known = known || n.Memory > 0
		if nodes.Has(n.ID) && n.Memory > 0 {
			return false
		}
	}
	return known
}

// towardsMemory is the advice to move vCPUs to free CPUs of the nodes that have their memory; "" without enough of
// them.
func (h *host) towardsMemory(m *machine, memory map[int]farm.Bytes) string {
	var used farm.CPUSet
	for _, other := range h.machines {
		if allowed := other.allowed(); !allowed.Equal(h.Topology.Online) {
			used = used.Or(allowed)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(memory)) {
		if free := h.nodes[node].Minus(used); memory[node] > 0 && free.Len() >= len(m.vcpus) {
			return fmt.Sprintf("move the vCPUs to CPUs of node %d (%s), which are free: virsh vcpupin", node, free)
		}
	}
	return ""
}

// roaming finds memory that is bound to some nodes while the vCPUs that use it may run on others, too: where they do,
// all of it is remote. Plans of grange's share such CPUs on purpose.
func (h *host) roaming(m *machine) []Problem {
	if m.plan != nil {
		return nil
	}
	what, vcpus, bound := "memory", m.allowed(), m.proc.Memory.Nodes()
	if m.domain != nil && len(m.domain.Cells) > 1 {
		for id, c := range m.domain.Cells {
			if allowed := m.allowedOf(c.VCPUs); !c.Nodes.Empty() && allowed.Equal(h.Topology.Online) {
				what, vcpus, bound = fmt.Sprintf("the memory of guest cell %d", id), allowed, c.Nodes
				break
			}
		}
	}
	var on []int
	for id, cpus := range h.nodes {
		if !cpus.And(vcpus).Empty() {
			on = append(on, id)
		}
	}
	nodes := farm.NewCPUSet(on...)
	if bound.Empty() || nodes.And(bound).Empty() || nodes.Minus(bound).Empty() {
		return nil
	}
	return []Problem{{Kind: RemoteMem, Severity: tuning.Warning, VM: m.name, CPUs: vcpus, Source: locality,
		Message: fmt.Sprintf("%s is bound to %s, the vCPUs may run on %s", what, counted(bound, "node"),
			counted(nodes, "node")),
		Fix: fmt.Sprintf("pin the vCPUs to CPUs of %s (virsh vcpupin), or take the binding of memory away",
			counted(bound, "node"))}}
}

// allowedOf is where some of the machine's vCPUs may run.
func (m *machine) allowedOf(vcpus farm.CPUSet) farm.CPUSet {
	var set farm.CPUSet
	for _, v := range m.vcpus {
		if vcpus.Has(v.thread.VCPU) {
			set = set.Or(v.thread.Allowed)
		}
	}
	return set
}

// guestMemory is the guest's memory by node, and how much of QEMU's own may be with it.
func (m *machine) guestMemory() (memory map[int]farm.Bytes, own farm.Bytes) {
	if guest := m.proc.Memory.Guest(); guest != nil {
		return guest, 0
	}
	return m.proc.Memory.Resident, slack
}

// astray finds memory that lies on other nodes than it is bound to: the kernel puts none there by itself, and others
// may move pages.
func (h *host) astray(m *machine) []Problem {
	var out []Problem
	for _, b := range m.proc.Memory.Bound {
		for _, node := range slices.Sorted(maps.Keys(b.Resident)) {
			if size := b.Resident[node]; size > 0 && !b.Nodes.Has(node) {
				out = append(out, Problem{Kind: RemoteMem, Severity: tuning.Warning, VM: m.name, CPUs: h.nodes[node],
					Source: locality, Message: fmt.Sprintf("%v of its memory that is bound to %s lie on node %d", size,
						counted(b.Nodes, "node"), node),
					Fix: "find out what moves pages on this host; move them back: migratepages PID FROM TO"})
			}
		}
	}
	return out
}

// uneven finds nodes that hold more of a VM than its guest cells have there: the rest belongs to vCPUs of other nodes.
func (h *host) uneven(m *machine) []Problem {
	want := m.cellMemory()
	if len(want) < 2 {
		return nil
	}
	memory, _ := m.guestMemory()
	for _, node := range slices.Sorted(maps.Keys(memory)) {
		if have := memory[node]; have > want[node]+want[node]/20+4*slack {
			return []Problem{{Kind: RemoteMem, Severity: tuning.Warning, VM: m.name, CPUs: h.nodes[node],
				Source: locality, Message: fmt.Sprintf(
					"%v of it lie on node %d, where its guest cells have %v: the rest belongs to other cells", have,
					node,
					want[node]), Fix: "bind each cell's memory (memnode, mode strict) and start the VM anew"}}
		}
	}
	return nil
}

// cellMemory is how much memory the guest's cells have by host node; nil when nothing says so.
func (m *machine) cellMemory() map[int]farm.Bytes {
	out := map[int]farm.Bytes{}
	if m.plan != nil {
		for _, c := range m.plan.Cells {
			out[c.Node] += c.Memory
		}
		return out
	}
	if m.domain == nil {
		return nil
	}
	for _, c := range m.domain.Cells {
		if c.Nodes.Len() != 1 {
			return nil
		}
		out[c.Nodes.List()[0]] += c.Memory
	}
	return out
}

// cellsApart finds guest cells whose vCPUs may run on another node than that of their memory: the guest believes them
// local. vCPUs that may run everywhere are no news.
func (h *host) cellsApart(m *machine) []Problem {
	type cell struct{ vcpus, nodes farm.CPUSet }
	var cells []cell
	switch {
	case m.plan != nil:
		for _, c := range m.plan.Cells {
			cells = append(cells, cell{c.VCPUs, farm.NewCPUSet(c.Node)})
		}
	case m.domain != nil:
		for _, c := range m.domain.Cells {
			cells = append(cells, cell{c.VCPUs, c.Nodes})
		}
	}
	var out []Problem
	for i, c := range cells {
		var local farm.CPUSet
		for _, node := range c.nodes.List() {
			local = local.Or(h.nodes[node])
		}
		var g group
		for _, v := range m.vcpus {
			allowed := v.thread.Allowed
			if away := allowed.Minus(local); c.vcpus.Has(v.thread.VCPU) && !local.Empty() && !away.Empty() &&
				!allowed.Equal(h.Topology.Online) {
				g.add(away, fmt.Sprintf("%s may run on %s", v.label, cpus(away)))
			}
		}
		for _, p := range g.problem(CellApart, tuning.Warning, m, locality,
			"pin the cell's vCPUs to the CPUs of its memory's node") {
			p.Message = fmt.Sprintf("guest cell %d has its memory on %s, and %s", i,
				counted(c.nodes, "node"), p.Message)
			out = append(out, p)
		}
	}
	return out
}
