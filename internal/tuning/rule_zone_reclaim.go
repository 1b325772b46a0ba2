package tuning

import "github.com/grange-project/grange/internal/farm"

func zoneReclaim() Rule {
	return Rule{
		ID:       "zone-reclaim",
		Title:    "the kernel frees memory of a node before it takes memory of another",
		Severity: Warning,
		Holds:    "Hosts with several nodes. Kernels before 3.16 turn it on by themselves where nodes are far apart.",
		Cost: "Not measured. Programs stall in reclaim, and guests' memory may be swapped out, while another " +
			"node has memory free.",
		Sources: []Source{
			kernelDoc("admin-guide/sysctl/vm",
				"zone_reclaim_mode is off by default; with it the kernel reclaims on the local node, at the cost of "+
					"stalls, and with bit 2 swaps; useful only where the load is partitioned so that it fits each "+
					"node"),
		},
		Why: "When a node is full, the kernel normally takes a page of the next node. With zone_reclaim_mode it " +
			"first drops file cache of the full node, and with some bits writes or swaps, again and again, though " +
			"there is memory elsewhere. " +
			"For VMs that are bound strictly the setting changes nothing; for all others, and for write-back cache of " +
			"disks, it means stalls.",
		Fix:   "Write 0 to vm.zone_reclaim_mode.",
		Undo:  "Write the old value back.",
		Check: checkZoneReclaim,
	}
}

func checkZoneReclaim(h farm.HostFacts, _ Profile) []Finding {
	value := h.Sysctl["vm.zone_reclaim_mode"]
	if value == "" || value == "0" || len(h.Topology.Nodes) < 2 {
		return nil
	}
	return []Finding{{Severity: Warning, Where: "host", Wanted: "vm.zone_reclaim_mode is 0",
		Got:     "vm.zone_reclaim_mode is " + value,
		Changes: []Change{{Kind: SetValue, Path: "proc/sys/vm/zone_reclaim_mode", Value: "0"}}}}
}
