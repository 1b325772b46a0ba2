package tuning

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func tunedOverrides() Rule {
	return Rule{
		ID:       "tuned-overrides",
		Title:    "tuned's profile sets at each start what another rule finds wrong",
		Severity: Warning,
		Holds: "Hosts where tuned runs or starts at boot: transparent huge pages, governor and values of [sysfs] of " +
			"the active profile and all that it includes; " +
			"[sysctl] where reapply_sysctl is off, or no file of sysctl.d sets the same. What scripts and functions of a profile set is not seen.",
		Cost: "That of the rule which finds the value wrong, from the next boot on.",
		Sources: []Source{
			{"tuned 2.20, plug-in vm",
				"https://github.com/redhat-performance/tuned/blob/v2.20.0/tuned/plugins/plugin_vm.py",
				"transparent_hugepages is written when the daemon starts, unless transparent_hugepage= is on the " +
					"kernel's command line"},
			{"tuned 2.20, tuned-main.conf", "https://github.com/redhat-performance/tuned/blob/v2.20.0/tuned-main.conf",
				"with reapply_sysctl, the default, files of sysctl.d are applied again after the profile, and win"},
			{"tuned 2.20, profiles postgresql, hpc-compute and virtual-host",
				"https://github.com/redhat-performance/tuned/tree/v2.20.0/profiles",
				"postgresql and oracle set transparent huge pages to never, hpc-compute to always; virtual-host and " +
					"throughput-performance leave them alone"},
		},
		Why: "tuned starts after what is read at boot from sysctl.d and tmpfiles.d, and writes its profile's values " +
			"over it. A value that was set by hand or by another tool holds until then, " +
			"and after the next boot the host is as before, though everything in /etc still looks right. Most often that " +
			"is a profile for a database or for latency, chosen when the host did something else.",
		Fix: "Give tuned the wanted value, in a profile of the site's own: /etc/tuned/NAME/tuned.conf stands in " +
			"for the packaged profile NAME and may include it. Or choose another profile, such as virtual-host.",
		Danger: "Nothing changes before tuned's next start; then programs of the host that the old profile was " +
			"chosen for run with the new value, too.",
		Undo:  "Remove the file, or put the old line back, and restart tuned.",
		Check: checkTunedOverrides,
	}
}

// checkTunedOverrides asks the rules about the host as tuned leaves it when it starts next.
func checkTunedOverrides(h farm.HostFacts, p Profile) []Finding {
	if !runsOrStarts(h, "tuned") || len(h.Tuned) == 0 {
		return nil
	}
	left := asTunedLeaves(h)
	var out []Finding
	for _, check := range []func(farm.HostFacts, Profile) []Finding{checkTHPPolicy, checkTHPDefragOff,
		checkGovernorSlow, checkKSMOnCompute, checkSwappinessHigh, checkNUMABalancingWithPinning, checkZoneReclaim,
		checkOvercommitStrict} {
		for _, f := range check(left, p) {
			for _, c := range f.Changes {
				if s, ok := overriding(h.Tuned, &c); ok {
					out = append(out, overridden(h, s, c.Value, f.Severity))
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return strings.Compare(a.Wanted, b.Wanted) })
	// one line is for all processors
	return slices.CompactFunc(out, func(a, b Finding) bool { return a.Wanted == b.Wanted })
}

// overriding is the last setting of tuned's that writes something else to where a change writes.
func overriding(settings []farm.TunedSetting, c *Change) (farm.TunedSetting, bool) {
	if c.Kind == Unmerge {
		*c = Change{Kind: SetValue, Path: ksmRunPath, Value: "0"}
	}
	for _, s := range slices.Backward(settings) {
		if match, _ := path.Match(s.Path, c.Path); c.Kind == SetValue && match && !s.Overruled {
			return s, tunedWrites(s) != c.Value
		}
	}
	return farm.TunedSetting{}, false
}

func overridden(h farm.HostFacts, s farm.TunedSetting, wanted string, severity Severity) Finding {
	f := Finding{Severity: severity, Where: "tuned, profile " + orUnknown(h.TunedProfile),
		Wanted: fmt.Sprintf("[%s] %s=%s", s.Unit, s.Option, wanted),
		Got:    fmt.Sprintf("%s=%s, which tuned sets at each start", s.Option, s.Value)}
	if s.Plain {
		f.Changes = []Change{{Kind: SetTuned, Path: s.File, Unit: s.Unit, Name: s.Option, Value: wanted}}
	} else {
		f.Manual = fmt.Sprintf("set %s=%s in section %s of a profile of your own, /%s", s.Option, wanted,
			s.Unit, s.File)
	}
	return f
}

const ksmRunPath = "sys/kernel/mm/ksm/run"

// tunedWrites is what tuned writes of a setting: of alternatives, the first.
func tunedWrites(s farm.TunedSetting) string {
	first, _, _ := strings.Cut(s.Value, "|")
	return first
}

// asTunedLeaves is a host after a start of tuned.
func asTunedLeaves(h farm.HostFacts) farm.HostFacts {
	h.Sysctl, h.Clocks = maps.Clone(h.Sysctl), slices.Clone(h.Clocks)
	for _, s := range h.Tuned {
		if s.Overruled {
			continue
		}
		value := tunedWrites(s)
		set := func(where string, has bool, to func()) {
			if match, _ := path.Match(s.Path, where); match && has {
				to()
			}
		}
		set("sys/kernel/mm/transparent_hugepage/enabled", h.THP.Enabled != "", func() { h.THP.Enabled = value })
		set("sys/kernel/mm/transparent_hugepage/defrag", h.THP.Defrag != "", func() { h.THP.Defrag = value })
		set(ksmRunPath, h.KSM.Known && value == "1", func() { h.KSM.Run = 1 })
		for name := range h.Sysctl {
			set("proc/sys/"+strings.ReplaceAll(name, ".", "/"), true, func() { h.Sysctl[name] = value })
		}
		for i, g := range h.Clocks {
			if cpus := g.CPUs.List(); len(cpus) > 0 {
				set(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpus[0]), true,
					func() { h.Clocks[i].Name = value })
			}
		}
	}
	return h
}
