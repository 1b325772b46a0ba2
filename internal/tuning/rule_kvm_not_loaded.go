package tuning

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func kvmNotLoaded() Rule {
	return Rule{
		ID:       "kvm-not-loaded",
		Title:    "the processor can run VMs, but KVM is not loaded",
		Severity: Fault,
		Holds:    "Hosts with QEMU or VMs whose processor has VT-x or AMD-V.",
		Cost: "VMs do not start, or QEMU interprets every instruction: many times the run time. Not measured " +
			"here; QEMU's documentation counts on KVM for near-native speed.",
		Sources: []Source{
			{"QEMU documentation, \"Introduction\": virtualisation accelerators",
				"https://www.qemu.org/docs/master/system/introduction.html",
				"without an accelerator such as KVM, QEMU falls back to TCG, which translates the guest's " +
					"instructions in software"},
			kernelDoc("virt/kvm/api", "VMs are made through /dev/kvm, which the modules kvm_intel and kvm_amd provide"),
		},
		Why: "Without kvm_intel or kvm_amd there is no /dev/kvm. libvirt then refuses domains of type kvm, and tools " +
			"that fall back to emulation run guests in software, at a small part of the speed. " +
			"The usual reasons are a module that is blocked in modprobe.d, virtualisation that is switched off in the " +
			"firmware (the kernel log says \"disabled by bios\"), or a kernel package without extra modules.",
		Fix: "Load kvm_intel or kvm_amd; when that fails, look in the kernel log and switch virtualisation on in " +
			"the firmware.",
		Undo:  "Unload the module.",
		Check: checkKVMNotLoaded,
	}
}

func checkKVMNotLoaded(h farm.HostFacts, _ Profile) []Finding {
	flags := h.Topology.CPU.Flags
	if h.KVM.Loaded || !runsVMs(h) {
		return nil
	}
	module := ""
	switch {
	case slices.Contains(flags, "vmx"):
		module = "kvm_intel"
	case slices.Contains(flags, "svm"):
		module = "kvm_amd"
	default:
		return nil
	}
	return []Finding{{Severity: Fault, Where: "host", Wanted: module + " loaded",
		Got: "no kvm module for this processor is loaded",
		Manual: "run modprobe " + module +
			"; when it fails, dmesg shows why (disabled in the firmware, blocked in modprobe.d)"}}
}

// runsVMs reports whether a machine is there to run VMs: one without QEMU and without VMs may lack anything.
func runsVMs(h farm.HostFacts) bool { return h.Versions.QEMU != "" || len(h.Domains) > 0 }
