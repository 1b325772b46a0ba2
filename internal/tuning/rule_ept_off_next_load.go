package tuning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func eptOffNextLoad() Rule {
	return Rule{
		ID:       "ept-off-next-load",
		Title:    "hardware page tables are on, but will be off when the kvm module is loaded next",
		Severity: Warning,
		Holds: "Hosts whose modprobe.d or next kernel command line turns ept, enable_ept or npt off while the " +
			"running module has it on.",
		Cost: "Nothing now; after the next load of the module what ept-off says: several times the run time for " +
			"some jobs.",
		Sources: []Source{
			cernHugePages("EPT was turned off by an option in /etc/modprobe.d/kvm_intel.conf; some jobs then became " +
				"several times slower, and the setting was given up"),
			{"modprobe.d(5)", "https://man7.org/linux/man-pages/man5/modprobe.d.5.html",
				"options are given to a module each time it is loaded, so an option left behind comes into force at " +
					"a reboot or reload"},
		},
		Why: "The running module has the right setting, so the host works well and nobody looks. The option in " +
			"modprobe.d or on the command line is read when the module is loaded, " +
			"which is at the next reboot, perhaps in a year. The host then comes back with shadow page tables, and " +
			"nothing shows why jobs have become slow. " +
			"Such lines are remains of the advice of 2010 to August 2015 to turn EPT off.",
		Fix:   "Set the option to 1 in modprobe.d and take the parameter off the command line.",
		Undo:  "Put the old line back.",
		Check: checkEPTOffNextLoad,
	}
}

func checkEPTOffNextLoad(h farm.HostFacts, _ Profile) []Finding {
	if state, _ := h.KVM.Paging(); state.Off() {
		return nil // ept-off says it
	}
	last := map[string]farm.ModuleOption{} // of several lines the last one wins
	var order []string
	for _, o := range h.KVM.Options {
		key := o.Module + "." + o.Name
		if _, seen := last[key]; !seen {
			order = append(order, key)
		}
		last[key] = o
	}
	var out []Finding
	for _, key := range order {
		o := last[key]
		if key != pagingParams[0] && key != pagingParams[1] && key != pagingParams[2] || !farm.Switch(o.Value).Off() ||
			!forThisCPU(h, o.Module) {
			continue
		}
		out = append(out, Finding{Severity: Warning, Where: "/" + o.Path, Wanted: key + "=1, or no option",
			Got:     fmt.Sprintf("%s=%s", key, o.Value),
			Changes: []Change{{Kind: SetModule, Unit: o.Module, Name: o.Name, Value: "1", NoVMs: true}}})
	}
	for _, c := range pagingOnBoot(h.Kernel) {
		if module, _, _ := strings.Cut(c.Name, "."); !forThisCPU(h, module) {
			continue
		}
		out = append(out, Finding{Severity: Warning, Where: "next boot",
			Wanted: "no " + c.Name + " on the command line", Got: c.Name + "=" + c.Value, Changes: []Change{c}})
	}
	return out
}

// forThisCPU reports whether a module is for this processor, as far as its flags tell: one configuration may go to
// hosts of both kinds.
func forThisCPU(h farm.HostFacts, module string) bool {
	flags := h.Topology.CPU.Flags
	intel, amd := slices.Contains(flags, "vmx"), slices.Contains(flags, "svm")
	if intel == amd {
		return true
	}
	return intel == sameParam(module, "kvm_intel")
}
