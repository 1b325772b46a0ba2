package tuning

import "github.com/grange-project/grange/internal/farm"

func powerDaemonsConflict() Rule {
	return Rule{
		ID:       "power-daemons-conflict",
		Title:    "tuned and power-profiles-daemon both set the processor's power policy",
		Severity: Advice,
		Holds:    "Hosts with both daemons running or started at boot.",
		Cost:     "Not measured. Which governor and energy preference are in force depends on which daemon wrote last.",
		Sources: []Source{
			{"tuned, tuned.service", "https://github.com/redhat-performance/tuned/blob/master/tuned.service",
				"the unit conflicts with cpupower, auto-cpufreq, tlp and power-profiles-daemon"},
		},
		Why: "Both daemons write the governor and the energy preference of all CPUs. systemd stops one when the " +
			"other starts, so what runs after a boot depends on the order of starting. power-profiles-daemon comes " +
			"with desktops and starts with a balanced profile, " +
			"which is not what a host for jobs wants; tuned has profiles for hypervisors.",
		Fix:    "Stop and disable power-profiles-daemon, and let tuned do it.",
		Undo:   "Enable and start power-profiles-daemon.",
		Danger: "A desktop on this host loses its power menu.",
		Check:  checkPowerDaemonsConflict,
	}
}

func checkPowerDaemonsConflict(h farm.HostFacts, _ Profile) []Finding {
	const other = "power-profiles-daemon"
	if !runsOrStarts(h, "tuned") || !runsOrStarts(h, other) {
		return nil
	}
	return []Finding{{Severity: Advice, Where: "service " + other, Wanted: "stopped and disabled beside tuned",
		Got: serviceState(h.Services[other]), Changes: []Change{{Kind: SetService, Unit: other, Value: "off"}}}}
}
