package tuning

import "github.com/grange-project/grange/internal/farm"

func ksmAcrossNodes() Rule {
	return Rule{
		ID:       "ksm-across-nodes",
		Title:    "KSM merges pages of different NUMA nodes",
		Severity: Advice,
		Holds:    "Hosts with several nodes, KSM on by choice, and Linux 3.9 or later.",
		Cost:     "Not measured; guests read shared pages over the link between sockets.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/ksm",
				"merge_across_nodes=0 merges pages of one node only, which lowers the latency of shared pages; it "+
					"can be changed only while nothing is merged"),
			{"Red Hat, \"Virtualization Tuning and Optimization Guide\" (RHEL 6 and 7), KSM on NUMA",
				"https://docs.redhat.com/en/documentation/Red_Hat_Enterprise_Linux/6/html-single/Virtualization_Tuning_and_Optimization_Guide/index.html", "with merge_across_nodes at 1, KSM gives up the placement of memory that numad or pinning achieved"},
		},
		Why: "Guests that are bound to a node have their memory there. KSM with its default setting may replace a " +
			"page on node 0 by an equal one on node 1, for example of the C library, and the guest then fetches it " +
			"from the other socket. " +
			"With merge_across_nodes at 0 each node keeps one copy: a little more memory, and no remote reads.",
		Fix: "While nothing is merged, write 0 to merge_across_nodes. Where pages are merged, un-merge first " +
			"(run=2), then set it, then start KSM again.",
		Danger: "Un-merging needs as much memory as is merged.",
		Undo:   "Un-merge, write 1 to merge_across_nodes, and start KSM again.",
		Check:  checkKSMAcrossNodes,
	}
}

func checkKSMAcrossNodes(h farm.HostFacts, p Profile) []Finding {
	if p.KSM == "off" || !h.KSM.Known || h.KSM.Run != 1 || !h.KSM.MergeAcrossNodes.On() || len(guestNodes(h)) < 2 {
		return nil
	}
	f := Finding{Severity: Advice, Where: "host", Wanted: "merge_across_nodes is 0",
		Got: "merge_across_nodes is 1, " + ksmState(h)}
	if h.KSM.Shared == 0 && h.KSM.Sharing == 0 {
		f.Changes = []Change{{Kind: SetValue, Path: "sys/kernel/mm/ksm/merge_across_nodes", Value: "0"}}
	} else {
		f.Manual = "with " + roughly(merged(h)) +
			" and some to spare available: write 2 to /sys/kernel/mm/ksm/run, 0 to merge_across_nodes, then 1 to run"
	}
	return []Finding{f}
}
