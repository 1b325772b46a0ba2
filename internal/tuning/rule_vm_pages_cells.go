package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmPagesCells() Rule {
	return Rule{
		ID:       "vm-pages-cells",
		Title:    "huge pages are for guest cells that are not there, or leave some out",
		Severity: Fault,
		Holds:    "VMs whose <page> elements have a nodeset. Its numbers are guest cells, not nodes of the host.",
		Cost: "A VM that names a cell which it has not does not start; a cell that is left out is in ordinary " +
			"pages.",
		Sources: []Source{
			libvirtXML("memory-backing",
				"nodeset of <page> names the guest's NUMA nodes to which this page size applies"),
			cernHugePages("an example that is copied: XML written by hand with one <page> of 1 GiB and nodeset 0-1"),
		},
		Why: "The nodeset of <numatune> means nodes of the host, the nodeset of <page> means cells of the guest: the " +
			"same word, two meanings, a few lines apart. Copied from an example with two cells, nodeset='0-1' makes " +
			"a VM without cells fail at its start. " +
			"A nodeset that leaves a cell out works, and puts that cell's memory into small pages: half of the VM is " +
			"then slower than the other, by cell.",
		Fix:    "Let the nodesets of <page> name each guest cell once, or leave nodeset out: then the size is for all.",
		Danger: "",
		Undo:   "Put the old <memoryBacking> back.",
		Check:  checkVMPagesCells,
	}
}

func checkVMPagesCells(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		var named farm.CPUSet
		all := len(d.Pages) == 0
		for _, p := range d.Pages {
			named = named.Or(p.Cells)
			all = all || p.Cells.Empty()
		}
		cells := farm.CPURange(0, max(len(d.Cells), 1))
		f := Finding{Where: vmName(d), Wanted: fmt.Sprintf("page sizes for guest cells %s, each once", cells),
			Manual: edit(d, "take nodeset out of <page>, or name the guest cells that <cpu><numa> has")}
		if wrong := named.Minus(cells); !wrong.Empty() {
			f.Severity, f.Got = Fault, fmt.Sprintf("pages for guest cell %s, and the guest has %d", wrong, len(d.Cells))
			out = append(out, f)
		} else if left := cells.Minus(named); !all && !left.Empty() {
			f.Severity, f.Got = Warning, fmt.Sprintf("guest cell %s is in ordinary pages", left)
			out = append(out, f)
		}
	}
	return out
}
