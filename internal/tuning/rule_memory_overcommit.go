package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func memoryOvercommit() Rule {
	return Rule{
		ID:       "memory-overcommit",
		Title:    "running VMs have been promised more memory than the host has for them",
		Severity: Warning,
		Holds: "Hosts whose profile sets a limit. Ordinary memory is what remains beside the pool of huge pages " +
			"and what the host needs itself.",
		Cost: "None until guests use what they were promised; then the host swaps, and its VMs wait for I/O. How " +
			"much was not measured by itself.",
		Sources: []Source{
			{"INFN-CNAF, \"Performance Improvements in a Large-Scale Virtualization System\", ISGC 2011", "",
				"because of the nature of their applications, memory is normally not overcommitted"},
			cernTier0("hypervisors swapped for lack of memory, which caused I/O wait"),
		},
		Why: "Desktop VMs leave most of their memory untouched, and promising it twice works. Jobs of high-energy " +
			"physics use what they ask for, all at the same time. Then KSM and swap must make up the difference, " +
			"both at the cost of every VM on the host. A batch host earns more with one VM less than with all of them in " +
			"swap.",
		Fix:    "Run fewer or smaller VMs, or make the pool of huge pages smaller where the VMs do not use it.",
		Danger: "VMs have to end or move.",
		Undo:   "Nothing is changed.",
		Check:  checkMemoryOvercommit,
	}
}

func checkMemoryOvercommit(h farm.HostFacts, p Profile) []Finding {
	if p.Overcommit <= 0 || h.Memory.Total == 0 {
		return nil
	}
	var ordinary farm.Bytes
	running := 0
	for _, d := range h.Domains {
		if d.Running && !d.HugePages && len(d.Pages) == 0 {
			ordinary += d.Memory
			running++
		}
	}
	kept := p.Reserved
	for _, pool := range h.Pages {
		kept += farm.Bytes(max(staticPages(h, pool.Size), 0)) * pool.Size
	}
	var room farm.Bytes
	if kept < h.Memory.Total {
		room = h.Memory.Total - kept
	}
	if float64(ordinary) <= float64(room)*p.Overcommit {
		return nil
	}
	return []Finding{{Severity: Warning, Where: "host",
		Wanted: fmt.Sprintf("at most %s of ordinary memory for VMs (overcommit %g)",
			roughly(farm.Bytes(float64(room)*p.Overcommit)), p.Overcommit),
		Got:    fmt.Sprintf("%s promised to %s", roughly(ordinary), farm.Count(running, "running VM")),
		Manual: "end or move VMs, or give VMs huge pages from the pool"}}
}
