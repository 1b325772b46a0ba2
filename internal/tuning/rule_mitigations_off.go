package tuning

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func mitigationsOff() Rule {
	return Rule{
		ID:       "mitigations-off",
		Title:    "the command line turns protection against attacks by guests off",
		Severity: Warning,
		Holds: "Hosts that run VMs of users; all processors that the kernel calls vulnerable. On a host whose " +
			"guests are all trusted it is a choice: leave this rule out there.",
		Cost: "Security. What the protection costs depends on how often guests leave: 1 to 50 % were seen for " +
			"flushing L1 on entry to a guest, little where exits are rare, as with jobs that compute in huge pages.",
		Sources: []Source{
			kernelDoc("admin-guide/kernel-parameters",
				"mitigations=off is the same as turning off each of the protections, for users of the host and for "+
					"guests"),
			kernelDoc("admin-guide/hw-vuln/vmscape",
				"a guest may read memory of QEMU through the branch predictor; vmscape=off leaves it so. SRSO, GDS, "+
					"RFDS, BHI, ITS and TSA, found in 2023 to 2025, have a page and a parameter each"),
			kernelDoc("admin-guide/hw-vuln/attack_vector_controls",
				"from 6.17 on mitigations=auto;no_guest_host and its like turn protection off by who attacks whom"),
			kernelDoc("admin-guide/hw-vuln/l1tf",
				"with protection off a guest with untrusted code can read the memory of the host and of other "+
					"guests; with trusted guests it may be turned off; flushing L1D cost 1 to 50 %"),
		},
		Why: "A job VM runs code of people whom the site does not know well, often as root. On a vulnerable " +
			"processor such a guest can read other guests' memory and the host's keys when the kernel does not clear " +
			"caches and buffers on the way in. " +
			"The parameter is common on compute nodes where one user has the whole machine, and comes to hypervisors " +
			"with the same configuration.",
		Fix:    "Take the parameter off the command line and reboot.",
		Danger: "Some loss of speed; measure it with the site's own jobs.",
		Undo:   "Put the parameter back.",
		Check:  checkMitigationsOff,
	}
}

// protections are parameters that, with this value, let guests attack. nopti and its like concern the host's own users.
var protections = map[string]string{
	"mitigations": "off", "l1tf": "off", "mds": "off", "tsx_async_abort": "off", "mmio_stale_data": "off",
	"spectre_v2": "off", "retbleed": "off",
	"srbds": "off", "spec_rstack_overflow": "off", "gather_data_sampling": "off", "reg_file_data_sampling": "off",
	"spectre_bhi":               "off",
	"indirect_target_selection": "off", "tsa": "off", "vmscape": "off",
	"kvm_intel.vmentry_l1d_flush": "never", "kvm-intel.vmentry_l1d_flush": "never",
}

func checkMitigationsOff(h farm.HostFacts, _ Profile) []Finding {
	if h.Virtual || !runsVMs(h) || !vulnerable(h) {
		return nil
	}
	var out []Finding
	for _, p := range bootParams(nextLine(h.Kernel)) {
		if !unprotects(p.name, p.value) {
			continue
		}
		text := strings.TrimSuffix(p.name+"="+p.value, "=")
		f := Finding{Severity: Warning, Where: bootPlace(h.Kernel),
			Wanted: "no " + text + " (takes effect at the next boot)", Got: text}
		if h.Kernel.BootFile != "" {
			f.Changes = []Change{{Kind: SetBoot, Name: p.name, Value: p.value, Remove: true, Reboot: true}}
		} else {
			f.Manual = "take " + text + " off the command line"
		}
		out = append(out, f)
	}
	return out
}

// unprotects reports whether a parameter lets guests attack the host or each other.
func unprotects(name, value string) bool {
	if name == "nospectre_v2" && value == "" {
		return true
	}
	if name == "mitigations" && (strings.Contains(value, "no_guest_host") ||
		strings.Contains(value, "no_guest_guest")) {
		return true
	}
	off, ok := protections[name]
	return ok && value == off
}

// vulnerable reports whether the processor has any of the flaws, protected or not.
func vulnerable(h farm.HostFacts) bool {
	for _, text := range h.Vulnerabilities {
		if !strings.HasPrefix(text, "Not affected") {
			return true
		}
	}
	return false
}
