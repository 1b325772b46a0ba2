package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmCrossesL3() Rule {
	return Rule{
		ID:       "vm-crosses-l3",
		Title:    "a pinned VM spans more last-level caches than it needs",
		Severity: Advice,
		Holds: "Processors with several last-level caches in a NUMA node, as AMD EPYC with NPS1 or NPS2; VMs " +
			"whose vCPUs are pinned one to one.",
		Cost: "Not measured by us. Threads that share data over two caches pay for each line that moves between " +
			"them.",
		Sources: []Source{
			{"AMD, \"NUMA Topology for AMD EPYC Naples Family Processors\", publication 56308, 2018", "",
				"an EPYC processor has a last-level cache for each core complex; NPS and the option to show caches " +
					"as nodes say how much of that the kernel sees as NUMA"},
			{"AMD, \"Workload Tuning Guide for AMD EPYC 7003 Series\", publication 56665", "",
				"core complexes do not share their last-level caches: threads that share data belong into one"},
		},
		Why: "In an EPYC processor four or eight cores share a last-level cache, and each such group has its own. " +
			"With NPS1 a whole socket is one NUMA node, so a pin that stays in its node may still spread a small VM " +
			"over several caches. " +
			"Its threads then fetch each other's data through the fabric, and it disturbs the neighbours in each of " +
			"those caches. The guest cannot know: it believes in one cache for all of its CPUs.",
		Fix:    "Pin the VM's vCPUs to CPUs of one cache, or of as few as hold them.",
		Danger: "The CPUs must be free.",
		Undo:   "Put the old <cputune> back.",
		Check:  checkVMCrossesL3,
	}
}

func checkVMCrossesL3(h farm.HostFacts, _ Profile) []Finding {
	t := h.Topology
	if len(t.L3) <= len(cpuNodes(t)) {
		return nil // a cache a node at most: what crosses caches crosses nodes, which another rule tells
	}
	var out []Finding
	for _, d := range h.Domains {
		cpus, ok := confinedCPUs(h, d)
		if !ok || !pinned(d) {
			continue
		}
		used, largest := 0, 0
		for _, cache := range t.L3 {
			largest = max(largest, cache.Len())
			if !cache.And(cpus).Empty() {
				used++
			}
		}
		if need := (d.VCPUs + largest - 1) / largest; used > need && nodesOf(t, cpus).Len() == 1 {
			out = append(out, Finding{Severity: Advice, Where: vmName(d),
				Wanted: fmt.Sprintf("CPUs of %s", farm.Count(need, "last-level cache")),
				Got:    fmt.Sprintf("CPUs %s of %d", cpus, used),
				Manual: replan(d, "choose CPUs in <cputune> that share a cache "+
					"(/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list)")})
		}
	}
	return out
}
