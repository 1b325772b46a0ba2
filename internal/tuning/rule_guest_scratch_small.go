package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func guestScratchSmall() Rule {
	return Rule{
		ID:       "guest-scratch-small",
		Title:    "this VM has too little space for the files of its jobs",
		Severity: Warning,
		Roles:    []Role{Guest},
		Holds: "VMs for jobs. Scratch is the largest of /pool, /scratch, /var/lib/condor, /var/spool/slurmd and " +
			"/tmp that is a file system of its own on disk, else what is free on /.",
		Cost: "Jobs are killed, or fail when they write, with all they had computed (CERN's Tier-0, 2015).",
		Sources: []Source{
			cernTier0("not enough space in /pool after swap had been taken from it: jobs killed frequently; a better " +
				"cleaner and no core files relieved it"),
		},
		Why: "A batch job brings its input, writes its output and keeps intermediate files, and a VM of 24 CPUs does " +
			"that 24 times at once on one disk. When the disk is full every job in the VM fails at its next write, " +
			"also those that had taken care. " +
			"What ended jobs leave behind counts as well, as do core files and swap on the same disk.",
		Fix:    "Give the VM a larger scratch disk, clean up after jobs, and keep core files off.",
		Danger: "",
		Undo:   "Nothing is changed here.",
		Check:  checkGuestScratchSmall,
	}
}

var scratchPaths = []string{"/pool", "/scratch", "/var/lib/condor", "/var/spool/slurmd", "/tmp"}

func checkGuestScratchSmall(h farm.HostFacts, p Profile) []Finding {
	cpus := farm.Bytes(h.Topology.Online.Len())
	where, have := scratch(h)
	want := p.ScratchPerCPU * cpus
	if want == 0 || where == "" || have >= want-want/20 { // a file system takes a part for itself
		return nil
	}
	return []Finding{{Severity: Warning, Where: "this VM",
		Wanted: fmt.Sprintf("%s for jobs on %d CPUs", roughly(want), cpus),
		Got:    fmt.Sprintf("%s on %s", roughly(have), where),
		Manual: fmt.Sprintf("give the VM a scratch disk of %s, or run fewer jobs at a time in it", roughly(want))}}
}

// scratch finds where jobs write, and how large that is; "" where no size is known.
func scratch(h farm.HostFacts) (path string, size farm.Bytes) {
	for _, m := range h.Mounts {
		if slices.Contains(scratchPaths, m.Path) && m.Type != "tmpfs" && m.Size > size {
			path, size = m.Path, m.Size
		}
	}
	if path != "" {
		return path, size
	}
	for _, m := range h.Mounts {
		if m.Path == "/" && m.Size > 0 {
			path, size = "/", m.Free
		}
	}
	return path, size
}
