package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func numadWithGuestNUMA() Rule {
	return Rule{
		ID:       "numad-with-guest-numa",
		Title:    "numad moves VMs that are pinned or have NUMA cells of their own",
		Severity: Warning,
		Holds:    "Hosts with numad and VMs with guest NUMA cells, pinned vCPUs or bound memory.",
		Cost: "CERN measured the better way: guest NUMA with numad off gained 9 % of HS06 for one VM of 32 " +
			"vCPUs, pinning a further 3 %. What numad does to such VMs was not measured; alone it gained 1.6 % for " +
			"VMs of 8 vCPUs.",
		Sources: []Source{
			cernPinning("numad gained 1.6 % for VMs of 8 cores without guest NUMA and much less for large ones; the " +
				"9 % of guest NUMA were measured with numad off"),
			{"Red Hat, \"Virtualization Tuning and Optimization Guide\" (RHEL 6 and 7), numad",
				"https://docs.redhat.com/en/documentation/Red_Hat_Enterprise_Linux/6/html-single/Virtualization_Tuning_and_Optimization_Guide/index.html", "numad moves processes and their memory between nodes by itself; manual pinning is the other way, not to be mixed with it"},
		},
		Why: "numad watches processes and moves each, with its memory, to the node where it seems to fit. A guest " +
			"with NUMA cells has already placed its own processes by the cells it was told about; when numad moves " +
			"the memory under a cell, " +
			"the guest's picture becomes wrong and it cannot know. Both cost: the moving, and the remote memory " +
			"afterwards. numad is for VMs that know nothing of nodes and are pinned to nothing.",
		Fix:   "Stop and disable numad.",
		Undo:  "Enable and start numad again.",
		Check: checkNUMADWithGuestNUMA,
	}
}

func checkNUMADWithGuestNUMA(h farm.HostFacts, _ Profile) []Finding {
	if !runsOrStarts(h, "numad") || len(h.Topology.Nodes) < 2 {
		return nil
	}
	placed := 0
	example := ""
	for _, d := range h.Domains {
		if placedByHand(d) {
			if placed++; example == "" {
				example = d.Name
			}
		}
	}
	if placed == 0 {
		return nil
	}
	got := fmt.Sprintf("%s, beside %s with a place of its own: %s", serviceState(h.Services["numad"]),
		farm.Count(placed, "VM"), example)
	return []Finding{{Severity: Warning, Where: "service numad", Wanted: "stopped and disabled", Got: got,
		Changes: []Change{{Kind: SetService, Unit: "numad", Value: "off"}}}}
}

// placedByHand reports whether a VM's vCPUs or memory are tied to host nodes, or its guest counts on nodes. numad may
// move what it has placed itself.
func placedByHand(d farm.Domain) bool {
	return len(d.Cells) > 1 || len(d.VCPUPins) > 0 && !d.VCPUAuto || d.MemoryMode == "strict" && !d.MemoryAuto
}
