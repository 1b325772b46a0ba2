package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmPinSplitsSiblings() Rule {
	return Rule{
		ID:       "vm-pin-splits-siblings",
		Title:    "the threads that a guest sees are not the host's threads",
		Severity: Advice,
		Holds:    "VMs whose vCPUs are pinned one to one, on hosts with or without SMT.",
		Cost: "Not measured by the sources: CERN named the exact mapping of thread siblings as the next thing to " +
			"study. It shows when a VM is not fully loaded.",
		Sources: []Source{
			cernPinning("pinning gave 3 % in a simple one-to-one fashion; exact mappings between thread siblings " +
				"were still needed to get the most out of it"),
			cernTopology("threads of a core share it: SMT gave 20 % more throughput in total, and each thread ran " +
				"slower"),
			libvirtXML("cpu-model-and-topology",
				"<topology> tells the guest its threads per core; consecutive vCPUs are siblings"),
		},
		Why: "A guest's scheduler puts work on idle cores first and on second threads last, if it knows which CPUs " +
			"are siblings. When two vCPUs share a core and the guest was told threads='1', it may put two busy " +
			"programs on one core and leave another idle. " +
			"When it was told threads='2' and its siblings sit on different cores, it avoids cores that are in truth " +
			"free, and side-channel protection by core scheduling protects the wrong pairs. Consecutive vCPU numbers " +
			"are siblings in the guest; on the host they often are not (0 and 16 on CERN's machines).",
		Fix: "Pin consecutive vCPUs to the siblings of one core and show threads='2'; or use one thread of each " +
			"core and show threads='1'.",
		Danger: "A changed topology changes what the guest's licences and programs count.",
		Undo:   "Put the old <cputune> and <topology> back.",
		Check:  checkVMPinSplitsSiblings,
	}
}

func checkVMPinSplitsSiblings(h farm.HostFacts, _ Profile) []Finding {
	if len(h.Topology.Cores) == 0 {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		if !pinned(d) {
			continue
		}
		f := Finding{Severity: Advice, Where: vmName(d)}
		if threads := d.Guest.Threads; threads > 1 {
			split := splitCores(h.Topology, d, threads)
			if len(split) == 0 {
				continue
			}
			f.Wanted = "the vCPUs of each guest core on the threads of one host core"
			f.Got = fmt.Sprintf("threads='%d', and the siblings %s (%d pairs or groups in all) on CPUs %s of "+
				"different cores", threads, split[0], len(split), pinsOf(d, split[0]))
		} else {
			pair, ok := sharedCore(h.Topology, d)
			if !ok {
				continue
			}
			f.Wanted = "threads='2' in the guest's topology where vCPUs share a core"
			f.Got = fmt.Sprintf("one thread a core in the guest, and vCPUs %s on CPUs %s of one core", pair,
				pinsOf(d, pair))
		}
		f.Manual = edit(d, "pin the vCPUs 2n and 2n+1 to the two threads of one core (lscpu -e shows them) and put "+
			"threads='2' into <topology>")
		out = append(out, f)
	}
	return out
}

// splitCores are the guest cores, as sets of vCPUs, whose threads are pinned to more than one host core.
func splitCores(t farm.Topology, d farm.Domain, threads int) []farm.CPUSet {
	core := coreOf(t)
	var out []farm.CPUSet
	for first := 0; first+threads <= d.VCPUs; first += threads {
		vcpus := farm.CPURange(first, first+threads)
		seen := map[int]bool{}
		for vcpu := range vcpus.All() {
			for cpu := range d.VCPUPins[vcpu].All() {
				if c, ok := core[cpu]; ok {
					seen[c] = true
				}
			}
		}
		if len(seen) > 1 {
			out = append(out, vcpus)
		}
	}
	return out
}

// sharedCore finds two vCPUs that are pinned to different threads of one core.
func sharedCore(t farm.Topology, d farm.Domain) (farm.CPUSet, bool) {
	core := coreOf(t)
	first := map[int]int{}
	for vcpu := range d.VCPUs {
		for cpu := range d.VCPUPins[vcpu].All() {
			c, known := core[cpu]
			if other, taken := first[c]; known && taken && !d.VCPUPins[other].Has(cpu) {
				return farm.NewCPUSet(other, vcpu), true
			}
			if known {
				first[c] = vcpu
			}
		}
	}
	return farm.CPUSet{}, false
}

// coreOf gives each CPU the index of its core.
func coreOf(t farm.Topology) map[int]int {
	out := map[int]int{}
	for i, c := range t.Cores {
		for cpu := range c.Threads.All() {
			out[cpu] = i
		}
	}
	return out
}

// pinsOf are the host CPUs of some vCPUs.
func pinsOf(d farm.Domain, vcpus farm.CPUSet) farm.CPUSet {
	var out farm.CPUSet
	for vcpu := range vcpus.All() {
		out = out.Or(d.VCPUPins[vcpu])
	}
	return out
}
