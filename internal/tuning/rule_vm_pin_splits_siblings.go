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
		if !pinned(d) || cutBy(d) != "" {
			continue // siblings of a guest whose cells cut its cores are another rule's
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
		f.Manual, f.Edits = pairSiblings(h.Topology, d)
		out = append(out, f)
	}
	return out
}

// pairSiblings is the advice: the VM's own CPUs in another order, within each guest cell, so that siblings are
// consecutive vCPUs, and the threads that this makes true. Where some cores are the VM's in part only, a person chooses
// other CPUs.
func pairSiblings(t farm.Topology, d farm.Domain) (string, []Edit) {
	next := d
	next.VCPUPins = map[int]farm.CPUSet{}
	cells := d.Cells
	if len(cells) == 0 {
		cells = []farm.DomainCell{{VCPUs: farm.CPURange(0, d.VCPUs)}}
	}
	for _, cell := range cells {
		vcpus := cell.VCPUs.And(farm.CPURange(0, d.VCPUs)).List()
		for i, old := range byCore(t, d, vcpus) {
			next.VCPUPins[vcpus[i]] = d.VCPUPins[old]
		}
	}
	threads, whole := threadsOf(t, d)
	next.Guest.Threads = threads
	next.Guest.Sockets = max(next.Guest.Sockets, 1)
	if d.Guest == (farm.GuestTopology{}) || whole && d.VCPUs%(next.Guest.Sockets*threads) != 0 {
		next.Guest.Sockets = 1
	}
	if whole {
		next.Guest.Cores = d.VCPUs / next.Guest.Sockets / threads
	}
	if !whole || cutBy(next) != "" || threads > 1 && len(splitCores(t, next, threads)) > 0 {
		return edit(d, "give the VM whole cores in <cputune> (lscpu -e shows them), consecutive vCPUs on the threads of "+
			"one core, and as many threads in <topology>; or one thread of each core, and threads='1'"), nil
	}
	edits, text := showTopology(t, d, next.Guest)
	text = "put " + text
	if pins := pinsText(d, next); pins != "" {
		text += ", and pin " + pins
	}
	return edit(d, text), append(pinEdits(d, next), edits...)
}

// threadsOf is how many threads the VM has of each core that it is pinned to; whole is false where that differs from
// core to core, or where two vCPUs have one CPU.
func threadsOf(t farm.Topology, d farm.Domain) (threads int, whole bool) {
	core := coreOf(t)
	count, cpus := map[int]int{}, map[int]bool{}
	for vcpu := range d.VCPUs {
		for cpu := range d.VCPUPins[vcpu].All() {
			c, known := core[cpu]
			if cpus[cpu] || !known {
				return 1, false
			}
			cpus[cpu] = true
			count[c]++
		}
	}
	for _, n := range count {
		if threads != 0 && n != threads {
			return 1, false
		}
		threads = n
	}
	return max(threads, 1), threads > 0 && d.VCPUs%threads == 0
}
