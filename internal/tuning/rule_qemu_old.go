package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func qemuOld() Rule {
	return Rule{
		ID:       "qemu-old",
		Title:    "QEMU is too old for guest NUMA cells that hold both threads of each core",
		Severity: Advice,
		Holds: "QEMU before 2.1 on hosts with several nodes whose CPU numbers have gaps, as SMT numbers them: " +
			"0-7,16-23.",
		Cost: "Guests get twice as many cells as the host has nodes. CERN measured its 9 % gain of guest NUMA " +
			"with four cells on two nodes; what two cells would have given was not published.",
		Sources: []Source{
			cernPinning("two cells (0-7,16-23 and 8-15,24-31) would be ideal, but KVM on CentOS 7 takes no ranges " +
				"with gaps, so four cells were made; RHEV's QEMU 2.1.2 takes them"),
		},
		Why: "Linux numbers the first threads of all cores first, then the second ones. A node's CPUs are therefore " +
			"two ranges, and a guest that shall look like its host needs cells of two ranges each. " +
			"QEMU before 2.1 takes one range for each cell. The way around is a cell for each range: the guest then " +
			"believes that two threads of one core are on different nodes, and spreads memory accordingly.",
		Fix: "Update QEMU (on RHEL 7 and its rebuilds: qemu-kvm-ev or qemu-kvm-rhev). Until then number the " +
			"guest's CPUs so that each cell is one range, as grange's planner does for such hosts.",
		Danger: "VMs keep the old QEMU until they are started anew.",
		Undo:   "Go back to the old package.",
		Check:  checkQEMUOld,
	}
}

func checkQEMUOld(h farm.HostFacts, _ Profile) []Finding {
	if !before(h.Versions.QEMU, 2, 1) {
		return nil
	}
	nodes := guestNodes(h)
	gaps := ""
	for _, n := range nodes {
		if list := n.CPUs.List(); list[len(list)-1]-list[0] >= len(list) && gaps == "" {
			gaps = fmt.Sprintf("node %d has CPUs %s", n.ID, n.CPUs)
		}
	}
	if len(nodes) < 2 || gaps == "" {
		return nil
	}
	return []Finding{{Severity: Advice, Where: "host", Wanted: "QEMU 2.1 or later", Got: h.Versions.QEMU + "; " + gaps,
		Manual: "update QEMU"}}
}
