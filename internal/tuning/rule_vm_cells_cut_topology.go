package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func vmCellsCutTopology() Rule {
	return Rule{
		ID:       "vm-cells-cut-topology",
		Title:    "a VM's guest cells cut through its cores or sockets",
		Severity: Warning,
		Holds:    "VMs with two guest cells or more and a <topology>, pinned or not.",
		Cost: "Not measured by the sources. The guest's kernel gives the topology up (Linux logs that a sibling is not " +
			"on the same node), and programs that read it, such as hwloc and MPI, fail or bind threads wrongly.",
		Sources: []Source{
			libvirtXML("cpu-model-and-topology", "vCPUs fill threads, cores and sockets in the order of their numbers; "+
				"<cell> gives each guest node any list of vCPUs"),
			{"Linux 6.1, arch/x86/kernel/smpboot.c, topology_sane",
				"https://git.kernel.org/pub/scm/linux/kernel/git/stable/linux.git/tree/arch/x86/kernel/smpboot.c?h=v6.1",
				"where siblings of a core or cache are on different nodes the kernel warns that the topology is not " +
					"sane, and drops the sibling"},
			{"QEMU, hw/core/machine.c, validate_cpu_cluster_to_numa_boundary",
				"https://gitlab.com/qemu-project/qemu/-/blob/master/hw/core/machine.c",
				"QEMU warns where CPUs of one cluster are in different nodes: it can cause the guest to misbehave"},
		},
		Why: "QEMU numbers the guest's CPUs by threads, then cores, then sockets: with threads='2' vCPUs 0 and 1 are one " +
			"core. Cells are lists of vCPUs, and nothing compares the two. A list such as 0-1,4-5, copied from the " +
			"numbers of the host's CPUs, puts one half of each socket into each node; even and odd numbers cut each " +
			"core in two. No machine is like that. The guest's scheduler and allocator then contradict each other.",
		Fix: "Give each cell the vCPUs of whole cores and sockets, in a row, and pin them to the CPUs that the cell had.",
		Danger: "vCPUs of the guest change their cells: programs inside that are bound to CPU numbers must be bound " +
			"again.",
		Undo:  "Put the old <numa>, <topology> and <cputune> back.",
		Check: checkVMCellsCutTopology,
	}
}

func checkVMCellsCutTopology(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range h.Domains {
		got := cutBy(d)
		if got == "" {
			continue
		}
		f := Finding{Severity: Warning, Where: vmName(d), Got: got,
			Wanted: "each guest core within one cell, and sockets and cells within each other"}
		next, ok := inRows(h.Topology, d)
		if !ok {
			f.Manual = replan(d, "give each <cell> the vCPUs of whole cores and sockets, in a row")
			out = append(out, f)
			continue
		}
		edits, text := showTopology(h.Topology, d, next.Guest)
		f.Edits = append(pinEdits(d, next), edits...)
		for id, cell := range next.Cells {
			f.Edits = append(f.Edits, set(d, fmt.Sprintf("cpu/numa/cell[id=%d]", id), "cpus", cell.VCPUs.String()))
			text += fmt.Sprintf(", cpus='%s' in cell %d", cell.VCPUs, id)
		}
		if pins := pinsText(d, next); pins != "" {
			text += ", and pins that follow: " + pins
		}
		f.Manual = replan(d, "put "+text)
		if d.Ours {
			f.Edits = nil
		}
		out = append(out, f)
	}
	return out
}

// cutBy says how a guest's cells cut its cores or sockets; "" where they do not.
func cutBy(d farm.Domain) string {
	g := d.Guest
	if len(d.Cells) < 2 || g.Sockets < 1 || g.Cores < 1 || g.Threads < 1 {
		return ""
	}
	if core := cutGroups(d, g.Threads); len(core) > 0 {
		return fmt.Sprintf("guest cells cut the guest's cores: vCPUs %s are one core and in different cells%s", core[0],
			andMore(len(core), "core"))
	}
	sockets := groups(d.VCPUs, g.Cores*g.Threads)
	for id, cell := range d.Cells {
		var crossed farm.CPUSet
		for n, socket := range sockets {
			both := socket.And(cell.VCPUs)
			if !both.Empty() && !both.Equal(socket) && !both.Equal(cell.VCPUs) {
				crossed = crossed.Or(farm.NewCPUSet(n))
			}
		}
		if crossed.Empty() {
			continue
		}
		what := "parts of " + number("guest socket", crossed)
		if len(sockets) == 2 && crossed.Len() == 2 {
			what = "vCPUs of both guest sockets"
		}
		return fmt.Sprintf("guest cell %d holds %s (vCPUs %s of %d sockets of %d)", id, what, cell.VCPUs, len(sockets),
			g.Cores*g.Threads)
	}
	return ""
}

func andMore(n int, what string) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(", and %s more", farm.Count(n-1, what))
}

// cutGroups are the groups of consecutive vCPUs that are in more than one cell.
func cutGroups(d farm.Domain, size int) []farm.CPUSet {
	var out []farm.CPUSet
	for _, group := range groups(d.VCPUs, size) {
		in := 0
		for _, cell := range d.Cells {
			if !cell.VCPUs.And(group).Empty() {
				in++
			}
		}
		if in > 1 {
			out = append(out, group)
		}
	}
	return out
}

// groups cuts vCPUs into groups of consecutive numbers.
func groups(vcpus, size int) []farm.CPUSet {
	var out []farm.CPUSet
	for first := 0; first < vcpus && size > 0; first += size {
		out = append(out, farm.CPURange(first, min(first+size, vcpus)))
	}
	return out
}

// inRows returns a VM whose cells hold vCPUs in a row, with the pins of those that they held, and a topology that nests
// with them. ok is false where cells overlap or leave vCPUs out.
func inRows(t farm.Topology, d farm.Domain) (next farm.Domain, ok bool) {
	next = d
	next.Cells, next.VCPUPins = slices.Clone(d.Cells), map[int]farm.CPUSet{}
	first, equal := 0, true
	var all farm.CPUSet
	for id, cell := range d.Cells {
		size := cell.VCPUs.Len()
		if size == 0 || !all.And(cell.VCPUs).Empty() {
			return d, false
		}
		all, equal = all.Or(cell.VCPUs), equal && size == d.Cells[0].VCPUs.Len()
		for i, old := range byCore(t, d, cell.VCPUs.List()) {
			if pin, given := d.VCPUPins[old]; given {
				next.VCPUPins[first+i] = pin
			}
		}
		next.Cells[id].VCPUs = farm.CPURange(first, first+size)
		first += size
	}
	if !all.Equal(farm.CPURange(0, d.VCPUs)) {
		return d, false
	}
	next.Guest = nesting(t, next, equal)
	return next, true
}

// nesting is a topology that nests with cells which hold vCPUs in a row: the VM's own number of sockets where that
// does, and threads where whole cores fit into the cells.
func nesting(t farm.Topology, d farm.Domain, equal bool) farm.GuestTopology {
	g, cells := d.Guest, len(d.Cells)
	g.Sockets, g.Threads = max(g.Sockets, 1), max(g.Threads, 1)
	fits := func(threads int) bool {
		return !slices.ContainsFunc(d.Cells, func(c farm.DomainCell) bool { return c.VCPUs.Len()%threads != 0 })
	}
	if g.Threads > 1 && (!fits(g.Threads) || pinned(d) && len(splitCores(t, d, g.Threads)) > 0) {
		g.Threads = 1
	}
	if pair, shared := sharedCore(t, d); shared && pinned(d) && g.Threads == 1 && fits(pair.Len()) &&
		len(splitCores(t, d, pair.Len())) == 0 {
		g.Threads = pair.Len()
	}
	switch {
	case !equal:
		g.Sockets = 1
	case cells%g.Sockets != 0 && g.Sockets%cells != 0 || d.VCPUs%(g.Sockets*g.Threads) != 0:
		g.Sockets = cells
	}
	g.Cores = d.VCPUs / g.Sockets / g.Threads
	return g
}
