package tuning

import "github.com/grange-project/grange/internal/farm"

func psiOff() Rule {
	return Rule{
		ID:       "psi-off",
		Title:    "the kernel does not measure pressure, so rules on it see nothing",
		Severity: Advice,
		Roles:    []Role{Compute, Service, Guest},
		Holds:    "Linux 4.20 and later, and 4.18 of RHEL 8, which have PSI and may have it switched off.",
		Cost:     "Knowledge: memory-pressure finds nothing, and iowait-high and guest-swapping have less to go by.",
		Sources: []Source{
			kernelDoc("accounting/psi",
				"PSI measures how long tasks wait for CPU, memory and I/O; a kernel built with "+
					"CONFIG_PSI_DEFAULT_DISABLED needs psi=1 on its command line"),
		},
		Why: "Pressure stall information says how much time programs lose because CPU, memory or I/O is short. It is " +
			"the one figure that distinguishes a busy host from one that is overloaded. " +
			"RHEL and its relatives build it in and leave it off. That nothing is found there by rules on pressure does " +
			"not mean that there is none.",
		Fix:    "Boot with psi=1.",
		Danger: "A little time at each switch of tasks: below what we can measure on hosts for jobs.",
		Undo:   "Take psi=1 off the command line and reboot.",
		Check:  checkPSIOff,
	}
}

func checkPSIOff(h farm.HostFacts, _ Profile) []Finding {
	if len(h.Pressure) > 0 || len(h.Counters) == 0 || before(h.Kernel.Release, 4, 18) || h.Kernel.Release == "" {
		return nil
	}
	if before(h.Kernel.Release, 4, 20) && h.OS.ID != "rhel" && h.OS.ID != "centos" && h.OS.ID != "almalinux" &&
		h.OS.ID != "rocky" {
		return nil
	}
	for _, p := range bootParams(nextLine(h.Kernel)) {
		if p.name == "psi" && farm.Switch(p.value).On() {
			return nil // from the next boot on
		}
	}
	f := Finding{Severity: Advice, Where: bootPlace(h.Kernel), Wanted: "psi=1 (takes effect at the next boot)",
		Got: "no /proc/pressure"}
	if h.Kernel.BootFile != "" {
		f.Changes = []Change{{Kind: SetBoot, Name: "psi", Value: "1", Reboot: true}}
	} else {
		f.Manual = "put psi=1 on the command line"
	}
	return []Finding{f}
}
