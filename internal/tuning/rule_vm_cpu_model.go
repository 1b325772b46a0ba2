package tuning

import "github.com/grange-project/grange/internal/farm"

func vmCPUModel() Rule {
	return Rule{
		ID:       "vm-cpu-model",
		Title:    "a VM on a compute host has not the host's own CPU model",
		Severity: Warning,
		Roles:    []Role{Compute},
		Holds: "KVM on x86, where VMs are replaced and not migrated. The loss depends on the instructions that " +
			"the model hides: newer processors have more to lose.",
		Cost: "host-model: around 4 % of HS06, 4.1 to 5.2 % in CERN's summary table; the hypervisor's default " +
			"model: 5 % (Xeon E5-2650 v2, QEMU 1.5.3).",
		Sources: []Source{
			cernCPUModel("CPU-bound programs lost around 4 % with host-model and 5 % with the hypervisor's default; " +
				"compute hypervisors run passthrough, service hypervisors host-model"),
			cernSummary("4.1 to 5.2 % by the choice of CPU model, with some impact on live migration"),
			qemuDoc("system/qemu-cpu-models",
				"host passthrough gives all features of the host's CPU; named models are for migration between "+
					"unlike hosts; models such as qemu64 and kvm64 are discouraged, for their very limited set of "+
					"features"),
		},
		Why: "The CPU model decides which instructions and features a guest sees. host-passthrough shows the real " +
			"processor. host-model shows the nearest model that libvirt has a name for, and QEMU's default is a " +
			"lowest common denominator: " +
			"at CERN the guest then saw a \"QEMU Virtual CPU\" without AVX, AES and even SSE4. Programs and libraries " +
			"choose their code by these flags, so what is hidden is lost. What passthrough costs is migration to " +
			"other processors, and compute VMs need none: they are deleted and made anew.",
		Fix: "Use mode='host-passthrough' for VMs that run jobs.",
		Danger: "The VM can no longer be migrated to a host with another processor. Keep host-model for services " +
			"that move.",
		Undo:  "Put the old <cpu> element back and start the VM again.",
		Check: checkVMCPUModel,
	}
}

func checkVMCPUModel(h farm.HostFacts, p Profile) []Finding {
	if p.CPUMode != "host-passthrough" {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		if d.Type != "kvm" || d.CPUMode == "host-passthrough" || d.CPUMode == "maximum" {
			continue
		}
		out = append(out, Finding{Severity: Warning, Where: vmName(d), Wanted: "CPU mode host-passthrough",
			Got: cpuMode(d), Manual: edit(d,
				"make it <cpu mode='host-passthrough'>, with the <topology> and <numa> that are in it, and without "+
					"<model> and <feature>")})
	}
	return out
}

func cpuMode(d farm.Domain) string {
	switch {
	case d.CPUMode == "" && d.CPUModel == "":
		return "the hypervisor's default model"
	case d.CPUModel == "":
		return "CPU mode " + d.CPUMode
	case d.CPUMode == "":
		return "CPU model " + d.CPUModel
	}
	return "CPU mode " + d.CPUMode + ", " + d.CPUModel
}
