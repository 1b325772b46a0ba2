package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func coreFilesOn() Rule {
	return Rule{
		ID:       "core-files-on",
		Title:    "programs that crash write core files beside their data",
		Severity: Advice,
		Roles:    []Role{Compute, Service, Guest},
		Holds: "Machines whose core_pattern names a file and whose sessions may write one. A pattern that begins " +
			"with | hands cores to a program and is not reported.",
		Cost: "Disk space and I/O: a core is as large as the program's memory. ATLAS's Tier-0 workers at CERN " +
			"lost jobs because the scratch disk was full; turning core files off was part of the cure.",
		Sources: []Source{
			cernTier0("ATLAS's Tier-0: not enough space in the scratch area, jobs killed frequently; much better " +
				"with a better cleaner of the area and with core files disabled"),
			{"core(5)", "https://man7.org/linux/man-pages/man5/core.5.html",
				"core_pattern says where a core goes; with | it goes to a program, and RLIMIT_CORE bounds those that " +
					"go to files"},
		},
		Why: "A physics job of 2 GB that crashes leaves a core of 2 GB where it ran, in the scratch area that all " +
			"jobs of the machine share. A bug that hits a whole series of jobs fills the disk within the hour, and " +
			"then jobs fail that have no bug at all. " +
			"Nobody in production looks at these files; who debugs a job can turn them on for it. On a hypervisor a " +
			"crash of QEMU may write the guest's memory, with whatever secrets are in it.",
		Fix:    "Let the kernel hand cores to /bin/false, or set the limit on core files to 0 for all sessions.",
		Danger: "Crashes leave no core to debug with.",
		Undo:   "Write the old pattern back.",
		Check:  checkCoreFilesOn,
	}
}

func checkCoreFilesOn(h farm.HostFacts, p Profile) []Finding {
	pattern := h.Sysctl["kernel.core_pattern"]
	if p.CoreFiles != "off" || pattern == "" || strings.HasPrefix(pattern, "|") || h.CoreLimit == "" ||
		h.CoreLimit == "0" {
		return nil
	}
	limit := h.CoreLimit
	if limit != "unlimited" {
		limit += " bytes"
	}
	return []Finding{{Severity: Advice, Where: "host", Wanted: "no core files",
		Got:     fmt.Sprintf("core_pattern is %s, the limit is %s", pattern, limit),
		Changes: []Change{{Kind: SetValue, Path: "proc/sys/kernel/core_pattern", Value: "|/bin/false"}}}}
}
