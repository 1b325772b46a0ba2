package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmEmulatorOtherNode() Rule {
	return Rule{
		ID:       "vm-emulator-other-node",
		Title:    "QEMU's own threads are pinned to nodes without any of the VM's memory",
		Severity: Advice,
		Holds: "Hosts with several nodes that have memory; VMs whose memory is bound, with pinned or floating vCPUs, if " +
			"a node of the memory has CPUs without pinned vCPUs.",
		Cost: "Not measured by us: each block and each packet of the VM is copied across the link between the nodes.",
		Sources: []Source{
			redHatTuning("using emulatorpin",
				"sect-Virtualization_Tuning_Optimization_Guide-NUMA-NUMA_and_libvirt-Using_emulatorpin",
				"emulatorpin places the emulator's threads and vhost on the same CPUs and memory, which they gain from"),
			libvirtXML("cpu-tuning", "emulatorpin and iothreadpin say where the emulator and the I/O threads may run"),
		},
		Why: "The emulator and its I/O threads read and write the guest's memory for its disks and networks, and vhost " +
			"threads run where the emulator may. Pins to another node make all of this remote. libvirt " +
			"compares the pins with no node. Such pins are left when memory is bound to another node, or " +
			"stem from CPUs that the host keeps for itself on its first node only.",
		Fix:    "Pin the emulator and the I/O threads to CPUs without vCPUs on a node of the VM's memory.",
		Danger: "These CPUs then do the VM's I/O. Too few CPUs for the emulators of all VMs slow their I/O down.",
		Undo:   "Put the old <emulatorpin> and <iothreadpin> back.",
		Check:  checkVMEmulatorOtherNode,
	}
}

func checkVMEmulatorOtherNode(h farm.HostFacts, _ Profile) []Finding {
	if memoryNodes(h.Topology) < 2 {
		return nil
	}
	free := unpinnedCPUs(h).Minus(isolated(h))
	var out []Finding
	for _, d := range foreign(h) {
		memory := boundNodes(d)
		near := nodeSet(h.Topology, memory).And(free)
		cpus, confined := confinedCPUs(h, d)
		away := confined && nodesOf(h.Topology, cpus).And(memory).Empty() // vm-memory-other-node
		if near.Empty() || away || d.VCPUAuto {
			continue
		}
		var threads, pins []string
		var edits []Edit
		for _, t := range ownThreads(d) {
			if on := nodesOf(h.Topology, t.pin); !on.Empty() && on.And(memory).Empty() {
				threads = append(threads, t.what)
				pins = append(pins, fmt.Sprintf("%s on %s of %s", t.what, number("CPU", t.pin), number("node", on)))
				edits = append(edits, set(d, t.element, "cpuset", near.String()))
			}
		}
		if len(edits) == 0 {
			continue
		}
		out = append(out, Finding{Severity: Advice, Where: vmName(d),
			Wanted: "QEMU's own threads on " + number("node", memory),
			Got:    fmt.Sprintf("%s, memory on %s", few(pins), number("node", memory)),
			Manual: edit(d, fmt.Sprintf("in <cputune> pin %s to CPUs %s: they have no pinned vCPU",
				strings.Join(threads, ", "), near)), Edits: edits})
	}
	return out
}
