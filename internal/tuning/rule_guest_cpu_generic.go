package tuning

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func guestCPUGeneric() Rule {
	return Rule{
		ID:       "guest-cpu-generic",
		Title:    "this VM sees a model of a processor, not the real one",
		Severity: Warning,
		Roles:    []Role{Guest},
		Holds: "x86 VMs under QEMU, recognised by the names that QEMU gives its CPU models. Right for VMs that " +
			"must migrate.",
		Cost: "The hypervisor's default model: 5 % of HS06; host-model: around 4 %, 4.1 to 5.2 % in CERN's " +
			"summary table (Xeon E5-2650 v2, 2015).",
		Sources: []Source{
			cernCPUModel("the default shows \"QEMU Virtual CPU version 1.5.3\" and costs 5 %; host-model shows " +
				"\"Intel Xeon E312xx (Sandy Bridge)\" on an E5-2650 v2 and costs around 4 %"),
			cernSummary("4.1 to 5.2 % by the choice of CPU model"),
			qemuDoc("system/qemu-cpu-models",
				"models such as qemu64 and kvm64 are discouraged: they show a very limited set of features, which "+
					"keeps guests from the best performance"),
		},
		Why: "Programs and libraries look at the processor's flags to choose their code: with AVX or without, with " +
			"AES in hardware or in software. A VM is shown a CPU model by its hypervisor. The default of QEMU is the " +
			"least that any processor has; a named model is an older relative of the real one. " +
			"What the model leaves out, jobs cannot use, although the silicon has it.",
		Fix: "Ask for host-passthrough: in libvirt <cpu mode='host-passthrough'/>, in Nova cpu_mode on compute " +
			"hosts. Only the owner of the host can do it.",
		Danger: "The VM can then move only to hosts with the same processor.",
		Undo:   "Set the old model again on the host.",
		Check:  checkGuestCPUGeneric,
	}
}

// modelNames begin what QEMU's CPU models call themselves; the first three are its defaults.
var modelNames = [...]string{"QEMU Virtual CPU", "Common KVM processor", "Common 32-bit KVM processor",
	"Intel Celeron_4x0", "Intel Core 2 Duo P9xxx", "Intel Core i7 9xx (Nehalem", "Westmere E56xx", "Intel Xeon E312xx",
	"Intel Xeon E3-12xx v2", "Intel Core Processor (", "Intel Xeon Processor (", "AMD Opteron 240", "AMD Opteron 22xx",
	"AMD Opteron 23xx", "AMD Opteron 62xx", "AMD Opteron 63xx", "AMD EPYC Processor", "AMD EPYC-"}

const defaultModels = 3

func checkGuestCPUGeneric(h farm.HostFacts, _ Profile) []Finding {
	for i, name := range modelNames {
		if !strings.HasPrefix(h.Topology.CPU.Name, name) {
			continue
		}
		f := Finding{Severity: Advice, Where: "this VM", Wanted: "the host's own processor",
			Got:    "the model " + h.Topology.CPU.Name,
			Manual: "if this VM need not migrate, ask for <cpu mode='host-passthrough'/> where it is defined"}
		if i < defaultModels {
			f.Severity, f.Got = Warning, "the hypervisor's default model, "+h.Topology.CPU.Name
		}
		return []Finding{f}
	}
	return nil
}
