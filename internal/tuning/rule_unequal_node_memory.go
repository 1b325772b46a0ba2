package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func unequalNodeMemory() Rule {
	return Rule{
		ID:       "unequal-node-memory",
		Title:    "NUMA nodes have different amounts of memory",
		Severity: Warning,
		Holds: "Hosts with several nodes with CPUs whose memory differs by more than a tenth. Nodes with memory " +
			"only (CXL, HBM) are not compared.",
		Cost: "Placement: VMs of equal size do not fill the host. Bandwidth: vendors measured that unbalanced " +
			"DIMMs lose up to a third of the memory bandwidth.",
		Sources: []Source{
			{"Dell, \"Balanced Memory with 2nd Generation Intel Xeon Scalable Processors\", 2019", "",
				"unbalanced configurations can lose up to 33 % of memory bandwidth"},
			{"Lenovo, \"Balanced Memory Configurations for 2-Socket Servers with 3rd-Gen Intel Xeon Scalable " +
				"Processors\", LP1517",
				"https://lenovopress.lenovo.com/lp1517-balanced-memory-configurations-3rd-gen-2s-intel-processors",
				"measures balanced and unbalanced sets of DIMMs; all sockets should carry the same"},
		},
		Why: "Either DIMMs were fitted unevenly, or one has failed and the firmware has taken it out. VMs are cut " +
			"for one node's share of CPUs and memory, so the node with less gives fewer of them and its CPUs stay " +
			"idle, or VMs reach across to the other node. " +
			"Channels without a DIMM also cost bandwidth, for all VMs on that socket.",
		Fix: "Look in the firmware's log for a DIMM that was disabled, and fit the DIMMs alike on all sockets and " +
			"channels.",
		Undo:  "Nothing is changed.",
		Check: checkUnequalNodeMemory,
	}
}

func checkUnequalNodeMemory(h farm.HostFacts, _ Profile) []Finding {
	nodes := guestNodes(h)
	if alikeNodes(nodes) {
		return nil
	}
	least, most := nodes[0], nodes[0]
	for _, n := range nodes {
		if n.Memory < least.Memory {
			least = n
		}
		if n.Memory > most.Memory {
			most = n
		}
	}
	return []Finding{{Severity: Warning, Where: fmt.Sprintf("node %d", least.ID),
		Wanted: fmt.Sprintf("as much memory as node %d: %s", most.ID, roughly(most.Memory)), Got: roughly(least.Memory),
		Manual: "compare the DIMMs of the sockets (dmidecode -t memory) and look for one that the firmware has " +
			"disabled"}}
}
