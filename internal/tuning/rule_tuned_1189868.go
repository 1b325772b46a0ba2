package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func tuned1189868() Rule {
	return Rule{
		ID:       "tuned-1189868",
		Title:    "tuned has overruled transparent_hugepage= of the command line (Red Hat bug 1189868)",
		Severity: Warning,
		Holds: "RHEL 7 and its rebuilds with tuned before 2.5.0. The finding rests on the effect: tuned runs, and " +
			"the kernel's setting is not that of its command line.",
		Cost: "Not measured. The setting of transparent huge pages that was chosen and tested is not the one in " +
			"force.",
		Sources: []Source{
			{"tuned 2.5.0, changelog in tuned.spec",
				"https://github.com/redhat-performance/tuned/blob/master/tuned.spec",
				"\"do not change settings of transparent hugepages if set in kernel cmdline\", resolves rhbz#1189868"},
			cernHugePages("advises to disable tuned until bug 1189868 is resolved, beside a command line with " +
				"transparent_hugepage=never"),
		},
		Why: "Profiles of tuned, among them virtual-host and throughput-performance, set transparent huge pages to " +
			"always. Before version 2.5.0 tuned did so even where the command line said something else, a moment " +
			"after boot. " + "A host that was booted with transparent_hugepage=never, because VMs have static pages, " +
			"then has them on again, and khugepaged at work. Whether that matters there or not, it is not what was " +
			"chosen and measured.",
		Fix: "Update tuned to 2.5.0 or later, which leaves the setting alone; until then stop and disable it, and " +
			"write the word of the command line to the kernel.",
		Danger: "Without tuned its other settings (governor, sysctl) are no longer made.",
		Undo:   "Enable and start tuned again.",
		Check:  checkTuned1189868,
	}
}

func checkTuned1189868(h farm.HostFacts, p Profile) []Finding {
	major, _, ok := versionOf(h.OS.Version + ".0")
	line, given := bootValue(nextLine(h.Kernel), "transparent_hugepage")
	family := map[string]bool{"rhel": true, "centos": true, "scientific": true, "ol": true}
	if !ok || major != 7 || !family[h.OS.ID] || !h.Services["tuned"].Running || !given || h.THP.Enabled == "" ||
		h.THP.Enabled == line {
		return nil
	}
	wanted := wantedTHP(h, p)
	f := Finding{Severity: Warning, Where: "host", Wanted: wanted + ", on the command line and in force",
		Got: fmt.Sprintf("the command line says %s, %s is in force; tuned runs with profile %s", line, h.THP.Enabled,
			orUnknown(h.TunedProfile)), Manual: "update tuned to 2.5.0 or later"}
	if h.THP.Enabled != wanted {
		f.Changes = []Change{{Kind: SetService, Unit: "tuned", Value: "off"},
			{Kind: SetValue, Path: "sys/kernel/mm/transparent_hugepage/enabled", Value: wanted}}
		f.Manual = "or " + f.Manual + ", and keep it"
	}
	if line != wanted && h.Kernel.BootFile != "" {
		f.Changes = append(f.Changes, Change{Kind: SetBoot, Name: "transparent_hugepage", Value: wanted, Reboot: true})
	}
	return []Finding{f}
}
