package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func governorSlow() Rule {
	return Rule{
		ID:       "governor-slow",
		Title:    "the frequency governor is not the one that the profile wants",
		Severity: Warning,
		Holds:    "Hosts on metal whose kernel chooses the frequency. With intel_pstate or amd_pstate and the energy preference performance, powersave is as good and not reported.",
		Cost:     "Not measured with HS06. With powersave of acpi-cpufreq the processor stays at its lowest frequency; with intel_pstate it follows the load, late.",
		Sources: []Source{
			kernelDoc("admin-guide/pm/cpufreq", "performance asks for the highest frequency within the policy's limits, powersave for the lowest; others estimate the load"),
			kernelDoc("admin-guide/pm/intel_pstate", "in active mode powersave means the driver's own scaling by load, and the energy preference says how eagerly"),
		},
		Why: "A governor that follows the load must first see some. vCPU threads sleep and wake with their guests, and the estimate of a thread that has just moved or slept begins low. Jobs that wait for files now and then start each burst at a low frequency. " +
			"On a host that is full of jobs the processor should run as fast as power and heat allow all the time.",
		Fix:    "Set the governor of all CPUs.",
		Danger: "More power and heat while the host is not full.",
		Undo:   "Set the old governor.",
		Check:  checkGovernorSlow,
	}
}

func checkGovernorSlow(h farm.Host, p Profile) []Finding {
	if p.Governor == "" || h.Virtual {
		return nil
	}
	var out []Finding
	for _, g := range h.Clocks {
		if g.Name == p.Governor || p.Governor == "performance" && g.Name == "powersave" && g.Preference == "performance" {
			continue
		}
		f := Finding{Severity: Warning, Where: cpusInWords(g.CPUs), Wanted: "governor " + p.Governor, Got: fmt.Sprintf("governor %s (driver %s)", g.Name, orUnknown(g.Driver))}
		for _, cpu := range g.CPUs.List() {
			f.Changes = append(f.Changes, Change{Kind: SetValue, Path: fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu), Value: p.Governor})
		}
		out = append(out, f)
	}
	return out
}
