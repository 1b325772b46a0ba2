package tuning

import (
	"fmt"
	"maps"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func vmPinOffline() Rule {
	return Rule{
		ID:       "vm-pin-offline",
		Title:    "a vCPU, the emulator or an I/O thread is pinned to a CPU that is offline",
		Severity: Fault,
		Holds: "All hosts on which CPUs were taken offline, SMT was switched off, or a definition came from " +
			"another machine.",
		Cost: "A VM that is not running does not start. In a running one the kernel has let the vCPU go to other " +
			"CPUs, where it takes a neighbour's time.",
		Sources: []Source{
			kernelDoc("core-api/cpu_hotplug",
				"when a CPU goes offline its processes are moved away, also those bound to it"),
			libvirtXML("cpu-tuning", "vcpupin says which of the host's physical CPUs a vCPU may use"),
		},
		Why: "Pins are numbers of host CPUs. Switching SMT off, one of the answers to L1TF and its relatives, takes " +
			"every second thread away, and a change in the firmware may number all CPUs anew. The definition keeps " +
			"its old numbers. " + "A vCPU whose only CPU is gone cannot be placed: libvirt fails to start the VM " +
			"with an error about affinity, often months later, when the host was started again.",
		Fix:    "Pin the vCPUs to CPUs that are online, or bring the CPUs back.",
		Danger: "Other VMs may have the CPUs that are left: see vm-pin-overlap.",
		Undo:   "Put the old <cputune> back.",
		Check:  checkVMPinOffline,
	}
}

func checkVMPinOffline(h farm.HostFacts, _ Profile) []Finding {
	if h.Topology.Online.Empty() {
		return nil
	}
	var out []Finding
	for _, d := range h.Domains {
		for _, threads := range lostThreads(h, d) {
			out = append(out, offlineFinding(h, d, threads))
		}
	}
	return out
}

// lostPins are threads of a VM of one kind whose pins name CPUs that are not there.
type lostPins struct {
	what string      // "vCPU 1", "emulator"
	all  bool        // of some of them no CPU is left
	gone farm.CPUSet // the CPUs
	next []Edit      // pins to the CPUs that are left
}

// lostThreads are vCPUs, the emulator and I/O threads with pins to CPUs that are not online.
func lostThreads(h farm.HostFacts, d farm.Domain) []lostPins {
	var out []lostPins
	var vcpus lostPins
	var lost farm.CPUSet
	for vcpu := range d.VCPUs {
		set := d.VCPUPins[vcpu]
		missing := set.Minus(h.Topology.Online)
		vcpus.gone = vcpus.gone.Or(missing)
		switch left := set.Minus(missing); {
		case missing.Empty():
		case left.Empty():
			lost = lost.Or(farm.NewCPUSet(vcpu))
		default:
			vcpus.next = append(vcpus.next, pin(d, vcpu, left))
		}
	}
	if !vcpus.gone.Empty() {
		if vcpus.all = !lost.Empty(); vcpus.all {
			vcpus.what, vcpus.next = number("vCPU", lost), movedEdits(h, d, lost)
		}
		out = append(out, vcpus)
	}
	other := func(what, element string, set farm.CPUSet) {
		gone := set.Minus(h.Topology.Online)
		// libvirt gives the emulator the cpuset of <vcpu> where it has no pin: that is said of the vCPUs
		if gone.Empty() || element == "cputune/emulatorpin" && set.Equal(d.VCPUPins[0]) && len(out) > 0 {
			return
		}
		left := set.Minus(gone)
		l := lostPins{what: what, all: left.Empty(), gone: gone}
		if l.all {
			left = serviceCPUs(h, d)
		}
		if !left.Empty() {
			l.next = []Edit{pinTo(d, element, left)}
		}
		out = append(out, l)
	}
	other("the emulator", "cputune/emulatorpin", d.EmulatorPin)
	for _, id := range slices.Sorted(maps.Keys(d.IOThreadPins)) {
		other(fmt.Sprintf("I/O thread %d", id), fmt.Sprintf("cputune/iothreadpin[iothread=%d]", id), d.IOThreadPins[id])
	}
	return out
}

// pinTo is the edit of a pin that is not a vCPU's.
func pinTo(d farm.Domain, element string, cpus farm.CPUSet) Edit {
	return set(d, element, "cpuset", cpus.String())
}

// movedEdits pin vCPUs to CPUs that no VM is pinned to, of the nodes of the VM's other vCPUs and memory first. Without
// enough of them there are none.
func movedEdits(h farm.HostFacts, d farm.Domain, vcpus farm.CPUSet) []Edit {
	near, _ := confinedCPUs(h, d)
	nodes := nodesOf(h.Topology, near).Or(d.MemoryNodes)
	free := unpinnedCPUs(h)
	var first, rest []int
	for cpu := range free.All() {
		if nodes.And(nodesOf(h.Topology, farm.NewCPUSet(cpu))).Empty() {
			rest = append(rest, cpu)
		} else {
			first = append(first, cpu)
		}
	}
	if nodes.Empty() {
		first = append(first, rest...)
	}
	if len(first) < vcpus.Len() {
		return nil
	}
	var out []Edit
	for i, vcpu := range vcpus.List() {
		out = append(out, pin(d, vcpu, farm.NewCPUSet(first[i])))
	}
	return out
}

func offlineFinding(h farm.HostFacts, d farm.Domain, l lostPins) Finding {
	state := ": offline"
	if absent := l.gone.Minus(h.Present); !h.Present.Empty() && absent.Equal(l.gone) {
		state = ", which the host does not have"
	}
	f := Finding{Severity: Advice, Where: vmName(d),
		Wanted: "pins to CPUs that are online: " + h.Topology.Online.String(),
		Got:    fmt.Sprintf("%s of its pins%s", number("CPU", l.gone), state),
		Manual: replan(d, "name in <cputune> only CPUs out of "+h.Topology.Online.String()), Edits: l.next}
	if l.all {
		f.Severity = Fault
	}
	if l.what != "" {
		f.Got = fmt.Sprintf("%s pinned to %s%s", l.what, number("CPU", l.gone), state)
	}
	if d.Ours {
		f.Edits = nil
	}
	return f
}
