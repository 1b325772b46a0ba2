package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmDeviceOtherNode() Rule {
	return Rule{
		ID:       "vm-device-other-node",
		Title:    "a VM's network card or NVMe disk is in a slot of another NUMA node",
		Severity: Advice,
		Holds: "Hosts with several NUMA nodes; VMs whose memory is bound to nodes, on an NVMe disk of the host or " +
			"a bridge with a card of the host.",
		Cost: "Not measured by us: each block and each packet crosses the link between the processors.",
		Sources: []Source{
			redHatTuning("NUMA node locality for PCI devices",
				"sect-virtualization_tuning_optimization_guide-numa-node_locality_for_pci",
				"a device belongs to the node that its slot is wired to; VMs that use it should run there"),
			kernelDoc("admin-guide/abi-testing",
				"numa_node of a PCI device: the node that it is attached to, -1 where that is not known"),
		},
		Why: "A slot is wired to one processor. A VM that lives on the other one has its packets and blocks written " +
			"into memory across the link, and the interrupts handled there. " +
			"For jobs that compute this hardly counts. For VMs that move much data (caches, file servers, many small " +
			"packets) the node of the device is the place to be.",
		Fix:    "Put VMs that move much data onto the node of the device, or the device into a slot of their node.",
		Danger: "The node must have the CPUs and the memory to spare.",
		Undo:   "Put the old pins back.",
		Check:  checkVMDeviceOtherNode,
	}
}

func checkVMDeviceOtherNode(h farm.HostFacts, _ Profile) []Finding {
	if len(cpuNodes(h.Topology)) < 2 {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		if d.MemoryNodes.Empty() {
			continue
		}
		for _, dev := range h.Devices {
			if dev.Node < 0 || d.MemoryNodes.Has(dev.Node) || !usesDevice(d, dev) {
				continue
			}
			out = append(out, Finding{Severity: Advice, Where: vmName(d),
				Wanted: fmt.Sprintf("node %d, where %s is", dev.Node, dev.Name),
				Got:    fmt.Sprintf("memory on node %s, %s on node %d", d.MemoryNodes, dev.Name, dev.Node),
				Manual: edit(d, "pin it to that node, if it moves much data")})
		}
	}
	return out
}

// usesDevice reports whether a VM's disk is on an NVMe controller, or its card goes out by a card of the host.
func usesDevice(d farm.Domain, dev farm.HostDevice) bool {
	for _, k := range d.Disks {
		if rest, ok := strings.CutPrefix(k.Path, "/dev/"+dev.Name); ok && strings.HasPrefix(rest, "n") {
			return true
		}
	}
	for _, n := range d.NICs {
		if n.Source != "" && (n.Source == dev.Name || n.Source == dev.Bridge) {
			return true
		}
	}
	return false
}
