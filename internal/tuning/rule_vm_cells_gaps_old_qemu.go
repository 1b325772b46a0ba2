package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmCellsGapsOldQEMU() Rule {
	return Rule{
		ID:       "vm-cells-gaps-old-qemu",
		Title:    "a guest cell has vCPUs with gaps, which this QEMU cannot take",
		Severity: Fault,
		Holds:    "QEMU before 2.1, such as 1.5.3 of CentOS 7; 2.1.2 takes them.",
		Cost:     "The VM does not start with such a cell.",
		Sources: []Source{
			cernPinning("two cells 0-7,16-23 and 8-15,24-31 were wanted; KVM on CentOS 7 could not take ranges that " +
				"are not contiguous, so four cells were used; QEMU 2.1.2 of RHEV and the CBS repository can"),
		},
		Why: "A guest cell often should hold vCPUs that are not in a row, such as 0-7 and 16-23, to follow the " +
			"host's numbering of threads. QEMU 1.5 knows only one range for each cell. " +
			"CERN went round that with four cells instead of two, each one range: the guest then shows four nodes, of " +
			"which pairs are on one processor, and still gained 9 %.",
		Fix: "Use a newer QEMU, number the vCPUs so that each cell is one range, or split the cells at the gaps.",
		Danger: "With split cells the guest sees more and smaller nodes: a program bound to one node has half the " +
			"CPUs and memory.",
		Undo:  "Put the old cells back once QEMU is newer.",
		Check: checkVMCellsGapsOldQEMU,
	}
}

func checkVMCellsGapsOldQEMU(h farm.HostFacts, _ Profile) []Finding {
	if !before(h.Versions.QEMU, 2, 1) {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		for id, cell := range d.Cells {
			runs := strings.Split(cell.VCPUs.String(), ",")
			if len(runs) < 2 {
				continue
			}
			out = append(out, Finding{Severity: Fault, Where: vmName(d),
				Wanted: "one range of vCPUs in each cell, for QEMU " + h.Versions.QEMU,
				Got:    fmt.Sprintf("guest cell %d has vCPUs %s", id, cell.VCPUs),
				Manual: edit(d, fmt.Sprintf("split cell %d into %d cells with cpus='%s' and a share of its memory each",
					id, len(runs), strings.Join(runs, "', cpus='")))})
		}
	}
	return out
}
