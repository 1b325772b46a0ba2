package tuning

import "github.com/grange-project/grange/internal/farm"

func nestedOn() Rule {
	return Rule{
		ID:       "nested-on",
		Title:    "guests may run VMs of their own, though the profile does not want it",
		Severity: Advice,
		Holds:    "kvm_intel and kvm_amd; Linux 4.20 and later have nested on unless told otherwise.",
		Cost: "Throughput: not measured; nothing while no guest uses it. What it costs is attack surface, and " +
			"migration of guests that do use it.",
		Sources: []Source{
			kernelDoc("virt/kvm/x86/running-nested-guests",
				"nested is on by default since Linux 4.20; on AMD a guest that has started a VM of its own must not "+
					"be migrated or saved"),
		},
		Why: "With nested on, every guest with a passed-through CPU can use the virtualisation instructions. KVM " +
			"then emulates them for a guest kernel that may be hostile: code that job VMs need not be able to reach. " +
			"Batch jobs hardly ever start VMs. Where they do (builds of images, tests of hypervisors), set nested to on " +
			"in the profile instead.",
		Fix:    "Set nested=0 for the module and load it anew while no VM runs.",
		Danger: "Guests that run VMs of their own fail to start those.",
		Undo:   "Set nested=1 and load the module anew.",
		Check:  checkNestedOn,
	}
}

func checkNestedOn(h farm.HostFacts, p Profile) []Finding {
	if p.Nested != "off" {
		return nil
	}
	for _, module := range []string{"kvm_intel", "kvm_amd"} {
		if farm.Switch(h.KVM.Params[module+".nested"]).On() {
			return []Finding{{Severity: Advice, Where: "host", Wanted: module + ".nested is off",
				Got:     module + ".nested is " + h.KVM.Params[module+".nested"],
				Changes: []Change{{Kind: SetModule, Unit: module, Name: "nested", Value: "0", NoVMs: true}}}}
		}
	}
	return nil
}
