package tuning

import "github.com/grange-project/grange/internal/farm"

func vmPassthroughOnService() Rule {
	return Rule{
		ID:       "vm-passthrough-on-service",
		Title:    "a VM that should be able to migrate has the host's own CPU model",
		Severity: Advice,
		Roles:    []Role{Service},
		Holds: "KVM on x86, on hosts whose VMs are migrated for interventions or at the end of the hardware's " +
			"warranty. virt-install writes host-passthrough where nobody says otherwise; where all hosts are alike, " +
			"or VMs never move, it may stay.",
		Cost: "Nothing while the VM stays. At the next intervention it cannot be moved to another kind of " +
			"processor: it has to be stopped. host-model costs around 4 % of HS06 for that (CERN 2015).",
		Sources: []Source{
			cernCPUModel("with host passthrough a migration to a new generation of servers fails, so hypervisors for " +
				"services use host-model; around 4 % of HS06 is the price"),
			qemuDoc("system/qemu-cpu-models",
				"with host passthrough source and destination must have identical CPUs, microcode and kernels for a "+
					"live migration to be safe"),
			{"virt-manager, pull request 764, 2024", "https://github.com/virt-manager/virt-manager/pull/764",
				"virt-install writes host-passthrough unless it is told another mode or model"},
		},
		Why: "A running program has chosen its code by the processor that it saw at its start. A VM with " +
			"host-passthrough can therefore go only to a host with the same processor, microcode and KVM; otherwise " +
			"the migration is refused, or worse, succeeds and the guest stops at an unknown instruction. " +
			"host-model names a model that other hosts can offer, too, and libvirt keeps it over the migration. For a " +
			"service that must survive its hardware this is worth more than a few percent.",
		Fix: "Use mode='host-model', or a named model that all hosts of the cell have.",
		Danger: "The guest loses CPU features at its next start: programs built for this very processor may not run, " +
			"and licences bound to it may lapse.",
		Undo:  "Put mode='host-passthrough' back and start the VM again.",
		Check: checkVMPassthroughOnService,
	}
}

func checkVMPassthroughOnService(h farm.HostFacts, p Profile) []Finding {
	if p.CPUMode != "host-model" {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		if d.CPUMode == "host-passthrough" || d.CPUMode == "maximum" {
			out = append(out, Finding{Severity: Advice, Where: vmName(d), Wanted: "CPU mode host-model",
				Got: cpuMode(d), Manual: edit(d,
					"make it <cpu mode='host-model'>, with the <topology> and <numa> that are in it")})
		}
	}
	return out
}
