package tuning

import (
	"cmp"

	"github.com/grange-project/grange/internal/farm"
)

func thpPolicy() Rule {
	return Rule{
		ID:       "thp-policy",
		Title:    "transparent huge pages are not set as the profile wants",
		Severity: Warning,
		Holds: "Kernels with transparent huge pages (Linux 2.6.38 and later, RHEL 6). QEMU asks for them, so " +
			"madvise and always are the same to VMs in ordinary memory, and a profile need not choose; never takes " +
			"them away.",
		Cost: "Between madvise and always nothing for VMs, because QEMU asks; with madvise other programs of the " +
			"host get small pages. never on a host without static pages leaves VMs with small pages; with EPT those " +
			"cost 6 % of HS06 at CERN in 2015.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/transhuge",
				"a guest gains from huge pages even where only one of guest and host uses them; always, madvise and "+
					"never are the choices; a change holds for memory that is allocated afterwards"),
			kernelDoc("admin-guide/mm/transhuge",
				"each size has an enabled of its own: always, madvise, never, or inherit, which is what the file above "+
					"says; the largest size inherits by default"),
			cernHugePages("transparent huge pages do a useful job under normal circumstances, but are opportunistic " +
				"and end at 2 MiB; with static pages CERN booted with transparent_hugepage=never"),
		},
		Why: "Transparent huge pages are what a VM gets that has no static ones: the kernel hands out 2 MiB at a " +
			"time where it can, and collapses small pages later. With static pages for all VMs they matter to the " +
			"host's own programs only, " +
			"where some sites prefer them off; what the command line says then counts as the site's choice. Off without " +
			"static pages is the worst choice: every TLB miss of every guest then walks both page tables down to 4 " +
			"KiB.",
		Fix: "Write the profile's word to /sys/kernel/mm/transparent_hugepage/enabled. Where the word is never " +
			"and static pages come with the next boot, put transparent_hugepage=never on that command line instead.",
		Danger: "With never, VMs in ordinary memory get small pages from their next start on.",
		Undo:   "Write the old word back.",
		Check:  checkTHPPolicy,
	}
}

const (
	thpPath     = "sys/kernel/mm/transparent_hugepage/"
	thpSizePath = thpPath + "hugepages-2048kB/"
	inherit     = "inherit"
)

func checkTHPPolicy(h farm.HostFacts, p Profile) []Finding {
	own := h.THP.SizeEnabled // what counts for VMs, where it is said
	if own == inherit {
		own = ""
	}
	all := h.THP.Enabled
	h.THP.Enabled = cmp.Or(own, all)
	wanted, got := wantedTHP(h, p), h.THP.Enabled
	if wanted == "" || got == "" || got == wanted {
		return nil
	}
	f := Finding{Severity: Advice, Where: "host", Wanted: "transparent_hugepage/enabled is " + wanted,
		Got: "it is " + got, Changes: []Change{{Kind: SetValue, Path: thpPath + "enabled", Value: wanted}}}
	if own != "" {
		f.Wanted += ", and holds for pages of 2 MiB"
		f.Got = "it is " + all + ", and hugepages-2048kB/enabled, which counts for them, is " + own
		f.Changes = append(f.Changes, Change{Kind: SetValue, Path: thpSizePath + "enabled", Value: inherit})
	}
	static := len(sizesInUse(h)) > 0
	if got == "never" && !static {
		f.Severity = Warning
	}
	if wanted == "never" && !static && h.Kernel.BootFile != "" {
		if v, _ := bootValue(h.Kernel.NextBoot, "transparent_hugepage"); v == "never" {
			return nil
		}
		f.Wanted = "never, once VMs have static pages (takes effect at the next boot)"
		f.Changes = []Change{{Kind: SetBoot, Name: "transparent_hugepage", Value: "never", Reboot: true}}
	}
	return []Finding{f}
}

// wantedTHP is the profile's word, or, beside static pages for VMs, that of the command line: there it is the site's
// choice. Without static pages a profile that has no word still wants them for programs that ask.
func wantedTHP(h farm.HostFacts, p Profile) string {
	static := len(sizesInUse(h)) > 0
	if p.THP == "" && !static && h.THP.Enabled == "never" {
		return "madvise"
	}
	if word, ok := bootValue(nextLine(h.Kernel), "transparent_hugepage"); ok && (p.THP == "" || static) {
		return word
	}
	return p.THP
}
