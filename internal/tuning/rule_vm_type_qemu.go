package tuning

import (
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmTypeQEMU() Rule {
	return Rule{
		ID:       "vm-type-qemu",
		Title:    "a VM runs in software emulation although the host has KVM",
		Severity: Fault,
		Holds: "Hosts whose processor has VT-x or AMD-V, or that have the kvm modules loaded. VMs with machine " +
			"types of other architectures, and those that grange itself starts in emulation after it has tried KVM, " +
			"are left out.",
		Cost: "No figure of HS06 was published. In emulation each instruction of the guest is translated by " +
			"QEMU, which costs a multiple of the job's time rather than percents of it.",
		Sources: []Source{
			qemuDoc("system/introduction",
				"with an accelerator such as KVM guest code runs directly on the host's processor; without one TCG "+
					"translates it"),
			libvirtXML("element-and-attribute-overview",
				"the type attribute of <domain> chooses the hypervisor: kvm, or qemu for emulation"),
		},
		Why: "The word in <domain type=…> decides whether KVM or QEMU's translator TCG executes the guest. With " +
			"type='qemu' a VM looks healthy, boots and shows the right number of CPUs, and is many times slower. " +
			"It comes from tools that found no /dev/kvm when the VM was defined: modules not loaded, virtualisation off " +
			"in the firmware, or a user without the right to open the device. The definition then stays as it is.",
		Fix:    "Define the VM with type='kvm', after /dev/kvm is there.",
		Danger: "The guest sees another processor, as after a move to new hardware.",
		Undo:   "Put type='qemu' back.",
		Check:  checkVMTypeQEMU,
	}
}

func checkVMTypeQEMU(h farm.HostFacts, _ Profile) []Finding {
	flags := h.Topology.CPU.Flags
	if !h.KVM.Loaded && !slices.Contains(flags, "vmx") && !slices.Contains(flags, "svm") {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		if d.Type == "qemu" && machineOfX86(d.Machine) {
			out = append(out, Finding{Severity: Fault, Where: vmName(d), Wanted: "type kvm",
				Got:    "type qemu: emulation",
				Manual: edit(d, "write <domain type='kvm'> in the first line, and <cpu mode='host-passthrough'/>")})
		}
	}
	return out
}

// machineOfX86 reports whether a machine type is one of x86, or not known. KVM runs no other architecture there.
func machineOfX86(machine string) bool {
	for _, prefix := range []string{"pc", "q35", "isapc", "microvm", "ubuntu"} {
		if strings.HasPrefix(machine, prefix) {
			return true
		}
	}
	return machine == ""
}
