package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func guestOneNode() Rule {
	return Rule{
		ID:       "guest-one-node",
		Title:    "this large VM sees one memory node",
		Severity: Advice,
		Roles:    []Role{Guest},
		Holds: "VMs with more than 16 CPUs, on hosts with several nodes. From inside nobody can tell how large " +
			"the host's nodes are: compare before acting.",
		Cost: "About 9 % of HS06 for one VM of 32 vCPUs on two nodes of 16, with numad off on the host (CERN " +
			"2015).",
		Sources: []Source{
			cernPinning("VMs see one node by default; showing the host's nodes to a VM of 32 vCPUs improved it by 9 %"),
			cernTier0("without guest NUMA the loss grew with the size of the VM: 7.8 % for 4 VMs of 8, 16 % for 2 of " +
				"16, 20.4 % for 1 of 32"),
		},
		Why: "A VM that spans two processors of its host and sees one node gives programs memory without regard to " +
			"where they run: half of the accesses go to the other processor. The host cannot mend that, because it " +
			"sees one program. " + "If this VM is larger than a node of its host, it should have a cell for each; if " +
			"it fits into one, one node is the truth and all is well.",
		Fix: "Ask for guest NUMA cells: hw:numa_nodes in Nova, <numa> in libvirt's <cpu>, with vCPUs and memory " +
			"bound to the same nodes.",
		Danger: "A program that is bound to one node inside sees only that node's share of memory.",
		Undo:   "Take the cells out again where the VM is defined.",
		Check:  checkGuestOneNode,
	}
}

const largeGuest = 16 // CPUs; half of CERN's hosts of 2015, and less than a node of most later ones

func checkGuestOneNode(h farm.HostFacts, _ Profile) []Finding {
	cpus := h.Topology.Online.Len()
	if cpus <= largeGuest || len(cpuNodes(h.Topology)) != 1 {
		return nil
	}
	return []Finding{{Severity: Advice, Where: "this VM", Wanted: "as many nodes as the VM has on its host",
		Got:    fmt.Sprintf("%d CPUs in one node", cpus),
		Manual: "compare with lscpu on the host; where the VM is larger than a node, ask for guest NUMA cells"}}
}
