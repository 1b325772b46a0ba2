package tuning

import (
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func eptOff() Rule {
	return Rule{
		ID:       "ept-off",
		Title:    "hardware page tables for guests (EPT, NPT) are off",
		Severity: Fault,
		Holds: "Intel processors with EPT (module parameter ept, enable_ept on old kernels) and AMD processors " +
			"with NPT (npt); all kernels.",
		Cost: "At CERN in September 2015 some jobs on Intel hosts ran several times slower with EPT off. Small " +
			"pages with EPT on cost 6 % of HS06 there; huge pages, not EPT off, are the answer to that.",
		Sources: []Source{
			{"INFN Tier-1, \"Experience on running an integrated virtualized cloud/grid infrastructure\", WLCG " +
				"Collaboration Workshop, July 2010", "",
				"history: on Nehalem (E5520) under RHEL 5.4 EPT off brought the loss from more than 15 % to about 5 " +
					"% of " + "HEP-SPEC; huge pages were still to be tried"},
			cernEPTAndKSM("history: EPT off gained 6 % of HS06; CentOS 7 guests then saw one CPU only"),
			cernHugePages("after the roll-out of EPT off some jobs became several times slower: 78.75 % of the time " +
				"in _raw_spin_lock and 6.76 % in set_spte, shadow page tables at work; EPT on with 2 MiB pages took " +
				"its place; AMD servers did not show the effect"),
			kernelDoc("admin-guide/hw-vuln/l1tf",
				"EPT off also closes L1TF, at a significant cost in performance; SMT off, or VMs on cores of their "+
					"own, are the other ways"),
		},
		Why: "A guest's page tables must be combined with the host's. With EPT or NPT the processor does it. " +
			"Without, KVM keeps shadow copies of all guest page tables, " +
			"and each change by the guest is caught, under one lock for the whole VM: programs that map and unmap much " +
			"memory then spend their time in the host's kernel. " +
			"The advice turned round in 2015. Until August, EPT off was recommended for HEP because it gained 6 % of " +
			"HS06, a benchmark that misses the TLB often. By the end of September it was withdrawn, " +
			"because a part of the real jobs fared far worse, and huge pages removed most TLB misses without the risk. " +
			"AMD's page-walk cache makes NPT cheap even with small pages, so off gains nothing there either.",
		Fix: "Stop new VMs, wait until the last one has ended, set the option and load the module anew, then let " +
			"VMs in again.",
		Danger: "The module can be loaded anew only while no VM runs.",
		Undo:   "Put the old option back and load the module anew.",
		Check:  checkEPTOff,
	}
}

func checkEPTOff(h farm.HostFacts, _ Profile) []Finding {
	state, param := h.KVM.Paging()
	module, name, _ := strings.Cut(param, ".")
	if !state.Off() || !hasPaging(h, name) {
		return nil
	}
	return []Finding{{Severity: Fault, Where: "host", Wanted: param + " is Y", Got: param + " is " + string(state),
		Changes: append(pagingOnBoot(h.Kernel),
			Change{Kind: SetModule, Unit: module, Name: name, Value: "1", NoVMs: true})}}
}

// hasPaging reports whether the processor can do it, as far as its flags tell: kernels have named them since 2.6.29.
func hasPaging(h farm.HostFacts, name string) bool {
	flag := "ept"
	if name == "npt" {
		flag = "npt"
	}
	flags := h.Topology.CPU.Flags
	known := slices.Contains(flags, "vmx") || slices.Contains(flags, "svm")
	return !known || slices.Contains(flags, flag)
}

// pagingParams are the names by which a command line may turn hardware page tables off.
var pagingParams = [...]string{"kvm_intel.ept", "kvm_intel.enable_ept", "kvm_amd.npt"}

// pagingOnBoot takes parameters off the next command line that turn hardware page tables off.
func pagingOnBoot(k farm.Kernel) []Change {
	if k.BootFile == "" {
		return nil
	}
	var out []Change
	for _, p := range bootParams(k.NextBoot) {
		for _, name := range pagingParams {
			if sameParam(p.name, name) && farm.Switch(p.value).Off() {
				out = append(out, Change{Kind: SetBoot, Name: p.name, Value: p.value, Remove: true, Reboot: true})
			}
		}
	}
	return out
}
