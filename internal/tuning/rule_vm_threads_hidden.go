package tuning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmThreadsHidden() Rule {
	return Rule{
		ID:       "vm-threads-hidden",
		Title:    "a VM's threads per core are hidden from its guest, for lack of topoext",
		Severity: Advice,
		Holds: "KVM on AMD and Hygon processors that have topoext; VMs with threads='2' or more. Models of QEMU's EPYC " +
			"and Dhyana families have it unless it is taken out; the host's CPU passed through does not have it by itself.",
		Cost: "That of siblings which the guest does not know: see vm-pin-splits-siblings.",
		Sources: []Source{
			{"QEMU, target/i386/cpu.c, feature_word_info",
				"https://gitlab.com/qemu-project/qemu/-/blob/v7.2.0/target/i386/cpu.c",
				"topoext is never turned on by -cpu host alone, as it wants consistent cache topology"},
			{"AMD64 Architecture Programmer's Manual, volume 3, publication 24594, CPUID Fn8000_001E", "",
				"the threads of a core are in leaf 8000_001E, which is there with the feature TopologyExtensions"},
			libvirtXML("cpu-model-and-topology", "<feature policy='require' name='topoext'/> turns a feature on"),
		},
		Why: "An AMD guest learns which of its CPUs are threads of one core from a CPUID leaf that comes with the " +
			"feature topoext. QEMU does not turn it on with the host's CPU, and older models lack it. <topology " +
			"threads='2'/> then has no effect: the guest takes each thread for a core, puts two busy programs on one " +
			"core, and leaves another idle. Programs that start one thread a core start two.",
		Fix:    "Add <feature policy='require' name='topoext'/> to <cpu>, or show threads='1'.",
		Danger: "The guest sees half as many cores; licences by core may count anew.",
		Undo:   "Take the <feature> out.",
		Check:  checkVMThreadsHidden,
	}
}

const topoext = "topoext"

func checkVMThreadsHidden(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		got := hiddenThreads(h.Topology.CPU, d)
		if d.Guest.Threads < 2 || got == "" {
			continue
		}
		out = append(out, Finding{Severity: Advice, Where: vmName(d),
			Wanted: fmt.Sprintf("topoext: threads='%d' needs <feature policy='require' name='topoext'/> on AMD",
				d.Guest.Threads),
			Got:   got + ": the guest sees one thread a core",
			Edits: []Edit{showThreads(d)},
			Manual: edit(d, "put <feature policy='require' name='topoext'/> into <cpu>, in place of any other <feature> of "+
				"that name")})
	}
	return out
}

// hiddenThreads says why a VM's guest would not see threads on a processor: the VM lacks topoext. It is "" where the VM
// has it, where libvirt chooses, and where the processor needs none.
func hiddenThreads(cpu farm.CPUModel, d farm.Domain) string {
	if cpu.Vendor != "AuthenticAMD" && cpu.Vendor != "HygonGenuine" || !slices.Contains(cpu.Flags, topoext) ||
		d.Type != "kvm" {
		return ""
	}
	switch policy := d.CPUFeatures[topoext]; policy {
	case "disable", "forbid":
		return "topoext is taken out (policy " + policy + ")"
	case "":
	default:
		return ""
	}
	switch {
	case d.CPUMode == "host-model":
		return ""
	case d.CPUMode == "host-passthrough", d.CPUMode == "maximum":
		return "CPU mode " + d.CPUMode + " without topoext"
	case strings.HasPrefix(d.CPUModel, "EPYC"), strings.HasPrefix(d.CPUModel, "Dhyana"):
		return ""
	case d.CPUModel == "":
		return "the hypervisor's default model, without topoext"
	}
	return "CPU model " + d.CPUModel + ", without topoext"
}
