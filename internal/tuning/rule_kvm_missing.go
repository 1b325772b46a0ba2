package tuning

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func kvmMissing() Rule {
	return Rule{
		ID:       "kvm-missing",
		Title:    "the processor shows no virtualisation (VT-x, AMD-V) to this system",
		Severity: Fault,
		Holds:    "x86 hosts with QEMU or VMs, on bare metal or in a VM without nested virtualisation.",
		Cost:     "VMs are emulated: many times the run time. Not measured here.",
		Sources: []Source{
			{"QEMU documentation, \"Introduction\": virtualisation accelerators",
				"https://www.qemu.org/docs/master/system/introduction.html",
				"without an accelerator such as KVM, QEMU falls back to TCG, which translates the guest's " +
					"instructions in software"},
			kernelDoc("virt/kvm/x86/running-nested-guests",
				"a VM runs VMs of its own only when its host offers nesting and the CPU model carries vmx or svm"),
		},
		Why: "The processor's flags have neither vmx nor svm. On bare metal that means that the firmware hides it, or " +
			"that the processor is too old. In a VM it means that the host below does not offer nested " +
			"virtualisation, " + "or that this VM's CPU model leaves the flag out. QEMU still works, but interprets " +
			"instructions, so that jobs look as if they hang.",
		Fix: "On bare metal switch virtualisation on in the firmware. In a VM turn nested on in the host below and give " +
			"this VM the CPU mode host-passthrough.",
		Undo:  "Switch it off again in the firmware or on the host below.",
		Check: checkKVMMissing,
	}
}

func checkKVMMissing(h farm.HostFacts, _ Profile) []Finding {
	flags := h.Topology.CPU.Flags
	vendor := h.Topology.CPU.Vendor
	if h.KVM.Loaded || !runsVMs(h) || len(flags) == 0 || vendor != "GenuineIntel" && vendor != "AuthenticAMD" &&
		vendor != "HygonGenuine" || slices.Contains(flags, "vmx") || slices.Contains(flags, "svm") {
		return nil
	}
	manual := "switch virtualisation on in the firmware"
	if h.Virtual {
		manual = "this machine is a VM: turn nested virtualisation on in the host below and use the CPU mode " +
			"host-passthrough"
	}
	return []Finding{{Severity: Fault, Where: "host", Wanted: "the processor flag vmx or svm",
		Got: "neither vmx nor svm, and no kvm module", Manual: manual}}
}
