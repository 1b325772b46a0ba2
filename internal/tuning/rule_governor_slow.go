package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func governorSlow() Rule {
	return Rule{
		ID:       "governor-slow",
		Title:    "the frequency governor is not the one that the profile wants",
		Severity: Fault,
		Holds: "Hosts on bare metal whose kernel chooses the frequency. A fault where the governor keeps the lowest " +
			"frequency: powersave of all drivers but intel_pstate and amd-pstate-epp, whose powersave follows the " +
			"load. Those with the energy preference performance are not reported.",
		Cost: "With powersave of acpi-cpufreq or intel_cpufreq the processor stays at its lowest frequency " +
			"(cpuinfo_min_freq), and jobs that compute take longer in proportion. Governors that follow the " +
			"load cost little on a host that is full; not measured with HS06.",
		Sources: []Source{
			kernelDoc("admin-guide/pm/cpufreq",
				"performance asks for the highest frequency within the policy's limits, powersave for the lowest; "+
					"others estimate the load"),
			kernelDoc("admin-guide/pm/intel_pstate",
				"in active mode powersave means the driver's own scaling by load, and the energy preference says how "+
					"eagerly"),
		},
		Why: "A governor that follows the load must first see some. vCPU threads sleep and wake with their guests, " +
			"and the estimate of a thread that has just moved or slept begins low. Jobs that wait for files now and " +
			"then start each burst at a low frequency. " +
			"On a host that is full of jobs the processor should run as fast as power and heat allow all the time.",
		Fix:    "Set the governor of all CPUs.",
		Danger: "More power and heat while the host is not full.",
		Undo:   "Set the old governor.",
		Check:  checkGovernorSlow,
	}
}

func checkGovernorSlow(h farm.HostFacts, p Profile) []Finding {
	if p.Governor == "" || h.Virtual {
		return nil
	}
	var out []Finding
	for _, g := range h.Clocks {
		if g.Name == p.Governor || p.Governor == "performance" && g.Name == "powersave" &&
			g.Preference == "performance" {
			continue
		}
		f := Finding{Severity: Advice, Where: cpusInWords(g.CPUs), Wanted: "governor " + p.Governor,
			Got: fmt.Sprintf("governor %s (driver %s)", g.Name, orUnknown(g.Driver))}
		if keepsLowest(g) {
			f.Severity = Fault
		}
		for _, cpu := range g.CPUs.List() {
			f.Changes = append(f.Changes,
				Change{Kind: SetValue, Path: fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu),
					Value: p.Governor})
		}
		out = append(out, f)
	}
	return out
}

// keepsLowest reports whether a policy never leaves the lowest frequency. Drivers in active mode have a powersave of
// their own, which follows the load; they are the ones with an energy preference.
func keepsLowest(g farm.Governor) bool {
	return g.Name == "powersave" && g.Driver != "" && g.Driver != "intel_pstate" && g.Driver != "amd-pstate-epp" &&
		g.Driver != "amd_pstate_epp" && g.Preference == ""
}
