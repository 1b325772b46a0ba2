package tuning

import "github.com/grange-project/grange/internal/farm"

func guestTHP() Rule {
	return Rule{
		ID:       "guest-thp",
		Title:    "transparent huge pages are not as wanted inside this VM",
		Severity: Advice,
		Roles:    []Role{Guest},
		Holds:    "Linux guests with transparent huge pages; programs that use much memory.",
		Cost: "Not measured by the sources for guests alone. On the host, CERN found large pages to be what " +
			"makes EPT cheap (2015).",
		Sources: []Source{
			kernelDoc("admin-guide/mm/transhuge",
				"TLB misses run faster, in virtual machines most of all where both host and guest use huge pages"),
			cernHugePages("transparent huge pages do a useful job in normal circumstances, but are opportunistic and " +
				"at most 2 MiB"),
		},
		Why: "The processor's TLB holds an entry of 2 MiB only if both levels agree: the guest maps 2 MiB, and the " +
			"host does. Huge pages on the host help the walk alone; with huge pages in the guest too, the TLB itself " +
			"reaches 512 times as far. " +
			"Never was once set against pauses while the kernel looked for free pieces; the setting of defrag decides " +
			"about those, not that of enabled.",
		Fix: "Set the mode that the profile names.",
		Danger: "Programs that touch little of much memory use more of it. With madvise only those that ask get huge " +
			"pages.",
		Undo:  "Write the old word into enabled.",
		Check: checkGuestTHP,
	}
}

func checkGuestTHP(h farm.HostFacts, p Profile) []Finding {
	if p.THP == "" || h.THP.Enabled == "" || h.THP.Enabled == p.THP || p.THP == "madvise" && h.THP.Enabled == "always" {
		return nil
	}
	return []Finding{{Severity: Advice, Where: "this VM", Wanted: p.THP, Got: h.THP.Enabled,
		Changes: []Change{{Kind: SetValue, Path: "sys/kernel/mm/transparent_hugepage/enabled", Value: p.THP}}}}
}
