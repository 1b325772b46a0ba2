package tuning

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func eptOffCentOS7Guest() Rule {
	return Rule{
		ID:       "ept-off-centos7-guest",
		Title:    "EPT is off and a guest of the CentOS 7 family runs here: it may see one CPU only",
		Severity: Fault,
		Holds: "Intel hosts with EPT off; seen with CentOS 7 hypervisors and CentOS 7 guests, not with guests of " +
			"release 6. A guest is known by the libosinfo ID in its definition.",
		Cost: "All CPUs of the guest but one: a VM of 8 does the work of one.",
		Sources: []Source{
			cernEPTAndKSM("with EPT off a CentOS 7 guest recognised one CPU and reported the others as not " +
				"responding; guests of Scientific Linux CERN 6 worked"),
			cernSummary("EPT off: an open bug with a CentOS 7 guest on a CentOS 7 hypervisor"),
			cernHugePages("by September 2015 EPT off had been given up, because some jobs became several times slower"),
		},
		Why: "With EPT off KVM keeps shadow page tables. In August 2015 CERN found that guests with CentOS 7 then " +
			"start only their first CPU; the kernel reports the rest as unresponsive and goes on without them. " +
			"The VM looks well from outside, has all its vCPUs in libvirt, and does a fraction of the work. EPT off has " +
			"been withdrawn as advice since, for other reasons as well.",
		Fix:    "Turn EPT on again, as ept-off says; then start the guest anew and count its CPUs.",
		Danger: "The module can be loaded anew only while no VM runs.",
		Undo:   "There is no reason to go back.",
		Check:  checkEPTOffCentOS7Guest,
	}
}

func checkEPTOffCentOS7Guest(h farm.HostFacts, _ Profile) []Finding {
	state, param := h.KVM.Paging()
	if !state.Off() || strings.HasSuffix(param, ".npt") {
		return nil
	}
	var out []Finding
	for _, d := range h.Domains {
		if d.VCPUs > 1 && ofRelease7(d.OSInfo) {
			out = append(out, Finding{Severity: Fault, Where: vmName(d),
				Wanted: param + " is Y for a guest with " + d.OSInfo, Got: param + " is " + string(state),
				Manual: "turn EPT on (see grange tune explain ept-off), start " + d.Name +
					" anew, and compare nproc inside with its vCPUs"})
		}
	}
	return out
}

// ofRelease7 reports whether libosinfo's ID is of CentOS 7 or a system built from the same sources:
// "http://redhat.com/rhel/7.2".
func ofRelease7(id string) bool {
	for _, family := range []string{"/centos/", "/rhel/", "/scientificlinux/", "/ol/"} {
		if _, release, ok := strings.Cut(id, family); ok {
			return release == "7" || strings.HasPrefix(release, "7.")
		}
	}
	return false
}
