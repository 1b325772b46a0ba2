package tuning

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func nxHugePages() Rule {
	return Rule{
		ID:       "nx-huge-pages",
		Title:    "KVM's protection against iTLB multihit does not fit the processor",
		Severity: Warning,
		Holds:    "kvm_intel with Linux 5.4 and later, and older kernels of distributions that have the parameter.",
		Cost: "Off on a processor with the flaw: any guest can stop the host. On where it is not needed: code in " +
			"huge pages runs in small ones; not measured by us.",
		Sources: []Source{
			kernelDoc("admin-guide/hw-vuln/multihit",
				"a guest may cause a machine check that stops the processor; KVM marks huge pages not executable and "+
					"splits those that are executed"),
			kernelDoc("admin-guide/kernel-parameters",
				"kvm.nx_huge_pages=auto applies the protection where the processor has the flaw, force always, off "+
					"never"),
		},
		Why: "Some Intel processors stop with a machine check when the size of a page changes while code runs from " +
			"it, which any guest can bring about. KVM therefore maps huge pages of guests not executable and splits " +
			"those from which code runs. " +
			"Where the protection is off, one job can take the host down, with all VMs on it. Where it is forced on a " +
			"processor without the flaw, guests lose a part of what huge pages give them and get nothing for it.",
		Fix:    "Take the setting away: by default KVM decides by the processor.",
		Danger: "With the protection on, code of guests is in small pages: programs with much code lose a little.",
		Undo:   "Set the parameter as it was and load kvm anew.",
		Check:  checkNXHugePages,
	}
}

func checkNXHugePages(h farm.HostFacts, _ Profile) []Finding {
	flaw, known := h.Vulnerabilities["itlb_multihit"]
	value, set := h.KVM.Params["kvm.nx_huge_pages"]
	if !known || !set || h.Virtual {
		return nil
	}
	f := Finding{Where: "host", Got: "kvm.nx_huge_pages is " + value,
		Manual: "take kvm.nx_huge_pages out of /etc/modprobe.d and off the command line, and load kvm anew while no " +
			"VM runs"}
	switch on := farm.Switch(value).On(); {
	case strings.HasPrefix(flaw, "Not affected") && on:
		f.Severity, f.Wanted = Advice, "kvm.nx_huge_pages auto: the processor does not have the flaw"
	case !strings.HasPrefix(flaw, "Not affected") && !on && !strings.Contains(flaw, "VMX disabled"):
		f.Severity, f.Wanted = Warning, "kvm.nx_huge_pages auto: the processor has the flaw"
	default:
		return nil
	}
	return []Finding{f}
}
