package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmEmulatorOnVCPUs() Rule {
	return Rule{
		ID:       "vm-emulator-on-vcpus",
		Title:    "QEMU's own threads may run on the CPUs of a pinned VM's vCPUs",
		Severity: Advice,
		Holds:    "VMs whose vCPUs are pinned one to one, on hosts that keep some CPUs free of vCPUs.",
		Cost: "Not measured by the sources: short interruptions of single vCPUs whenever the VM does I/O. It " +
			"matters to jobs that synchronise all their threads.",
		Sources: []Source{
			libvirtXML("cpu-tuning",
				"emulatorpin says where the emulator, all of QEMU but its vCPUs and I/O threads, may run; without it "+
					"all CPUs"),
			redHatTuning("using emulatorpin",
				"sect-Virtualization_Tuning_Optimization_Guide-NUMA-NUMA_and_libvirt-Using_emulatorpin",
				"emulatorpin places the emulator's threads, and with them vhost, on chosen CPUs"),
			{"OpenStack Nova, CPU topologies, emulator threads",
				"https://docs.openstack.org/nova/latest/admin/cpu-topologies.html",
				"by default emulator threads run on the CPUs of the instance's vCPUs; they can be isolated or moved " +
					"to shared CPUs"},
		},
		Why: "Beside the vCPUs a QEMU process has a main loop and workers, and vhost threads of the kernel that " +
			"carry its network. Where nothing says otherwise they run on any CPU the VM may use, in the middle of " +
			"the vCPUs' time. " + "A vCPU that is interrupted for them holds up all the others that wait for it. If " +
			"the host keeps CPUs for itself anyway, this work belongs there.",
		Fix: "Give the VM an <emulatorpin>, and its I/O threads an <iothreadpin>, to CPUs without vCPUs, best on " +
			"the same node.",
		Danger: "Too few CPUs for the emulators of all VMs slow their I/O down.",
		Undo:   "Take the <emulatorpin> and <iothreadpin> out.",
		Check:  checkVMEmulatorOnVCPUs,
	}
}

func checkVMEmulatorOnVCPUs(h farm.HostFacts, _ Profile) []Finding {
	free := h.Topology.Online
	for _, d := range h.Domains {
		free = free.Minus(pinsOf(d, farm.CPURange(0, d.VCPUs)))
	}
	if free.Empty() {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		if !pinned(d) {
			continue
		}
		own := pinsOf(d, farm.CPURange(0, d.VCPUs))
		loose := looseThreads(d, own)
		if len(loose) == 0 {
			continue
		}
		near := free
		for _, n := range h.Topology.Nodes {
			if here := free.And(n.CPUs); !here.Empty() && !own.And(n.CPUs).Empty() {
				near = here
				break
			}
		}
		out = append(out, Finding{Severity: Advice, Where: vmName(d),
			Wanted: fmt.Sprintf("QEMU's own threads off the vCPUs' CPUs %s", own), Got: few(loose),
			Manual: edit(d, fmt.Sprintf(
				"put <emulatorpin cpuset='%s'/> into <cputune>, and <iothreadpin iothread='n' cpuset='%[1]s'/> for "+
					"each "+
					"I/O thread: these CPUs have no pinned vCPU", near))})
	}
	return out
}

// looseThreads names the threads of QEMU that may run on the CPUs of the VM's own vCPUs.
func looseThreads(d farm.Domain, own farm.CPUSet) []string {
	var out []string
	look := func(what string, pin farm.CPUSet) {
		switch {
		case pin.Empty():
			out = append(out, what+" not pinned")
		case !pin.And(own).Empty():
			out = append(out, what+" on "+number("CPU", pin))
		}
	}
	look("emulator", d.EmulatorPin)
	for id := 1; id <= d.IOThreads; id++ {
		look(fmt.Sprintf("I/O thread %d", id), d.IOThreadPins[id])
	}
	return out
}
