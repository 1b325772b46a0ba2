package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmPinOffline() Rule {
	return Rule{
		ID:       "vm-pin-offline",
		Title:    "a vCPU is pinned to a CPU that is offline",
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
		var lost, gone farm.CPUSet // vCPUs without any CPU; CPUs that are not there
		for vcpu := range d.VCPUs {
			pin := d.VCPUPins[vcpu]
			missing := pin.Minus(h.Topology.Online)
			gone = gone.Or(missing)
			if !pin.Empty() && missing.Equal(pin) {
				lost = lost.Or(farm.NewCPUSet(vcpu))
			}
		}
		if gone.Empty() {
			continue
		}
		f := Finding{Severity: Advice, Where: vmName(d),
			Wanted: "pins to CPUs that are online: " + h.Topology.Online.String(),
			Got:    fmt.Sprintf("%s of its pins: offline", number("CPU", gone)),
			Manual: replan(d, "name in <cputune> only CPUs out of "+h.Topology.Online.String())}
		if !lost.Empty() {
			f.Severity, f.Got = Fault, fmt.Sprintf("%s pinned to %s: offline", number("vCPU", lost),
				number("CPU", gone))
		}
		out = append(out, f)
	}
	return out
}
