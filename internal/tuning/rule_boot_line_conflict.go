package tuning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func bootLineConflict() Rule {
	return Rule{
		ID:       "boot-line-conflict",
		Title:    "parameters on the kernel's command line contradict each other",
		Severity: Warning,
		Holds:    "The command line of the next boot where it is known, else that of the running kernel.",
		Cost: "The kernel drops a part of what was asked for, with a line in its log at most: fewer huge pages " +
			"than VMs need, or none of a size.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/hugetlbpage",
				"hugepages belongs to the hugepagesz before it; a first hugepages without a size is for the default "+
					"size and cannot be overwritten by a later pair; each size, and default_hugepagesz, may be given "+
					"once; a number after an invalid size is ignored"),
			kernelDoc("admin-guide/mm/transhuge", "transparent_hugepage takes always, madvise or never"),
		},
		Why: "The parameters of huge pages are read from left to right, and the order is their meaning. hugepages=55 " +
			"hugepagesz=1G reserves 55 pages of the default size and none of 1 GiB. Command lines grow over years, " +
			"by installers, " + "configuration management and hands, until a pair is there twice and the kernel " +
			"ignores one. The pool that results is smaller than the file says, or of another size, and VMs do not " +
			"start.",
		Fix:   "Write each size once, directly before its number: default_hugepagesz=1G hugepagesz=1G hugepages=N.",
		Undo:  "Put the old line back.",
		Check: checkBootLineConflict,
	}
}

func checkBootLineConflict(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	add := func(wanted, got string) {
		out = append(out, Finding{Severity: Warning, Where: bootPlace(h.Kernel), Wanted: wanted, Got: got,
			Manual: "edit the command line: " + wanted})
	}
	seen := map[string]bool{}
	var words []string // of transparent_hugepage
	for _, p := range bootParams(nextLine(h.Kernel)) {
		switch p.name {
		case "hugepagesz", "default_hugepagesz":
			key := p.name
			if p.name == "hugepagesz" {
				key += "=" + p.value
			}
			if size, err := farm.ParseBytes(p.value); err != nil || !validPage(h, size) {
				add("a page size that this processor has", p.name+"="+p.value)
			} else if seen[key] {
				add(p.name+"="+p.value+" once", p.name+"="+p.value+" is there twice: the kernel drops the second one")
			}
			seen[key] = true
		case "transparent_hugepage":
			words = append(words, p.value)
		}
	}
	numbersWithoutSize(nextLine(h.Kernel), add)
	if len(slices.Compact(words)) > 1 {
		add("transparent_hugepage= once",
			"transparent_hugepage= is "+strings.Join(words, ", then ")+": the last one counts")
	}
	return out
}

// numbersWithoutSize finds what a number before any size does to the sizes behind it: it is for the default size.
func numbersWithoutSize(line string, add func(wanted, got string)) {
	first, size := "", ""        // the number; the size last read
	numbers := map[string]bool{} // for each size, whether a number follows it
	var sizes []string           // in their order
	for _, p := range bootParams(line) {
		switch p.name {
		case "hugepagesz", "default_hugepagesz":
			if size = p.value; !slices.Contains(sizes, size) && p.name == "hugepagesz" {
				sizes = append(sizes, size)
			}
		case "hugepages":
			if size == "" {
				first = p.value
			}
			numbers[size] = true
		}
	}
	base := bootPools("hugepages=1 " + line)[0].size // that of a number without a size
	for _, text := range sizes {
		got, err := farm.ParseBytes(text)
		switch {
		case first == "" || err != nil:
		case !numbers[text]:
			add("hugepagesz="+text+" before its number",
				fmt.Sprintf("hugepages=%s comes first, so it is for pages of %s, and none of %s are asked for", first,
					pageName(base), pageName(got)))
		case got == base:
			add("one number for pages of "+pageName(base),
				fmt.Sprintf("hugepages=%s without a size is for them too, and the kernel drops the later number",
					first))
		}
	}
}

func bootPlace(k farm.Kernel) string {
	if k.BootFile != "" {
		return "/" + k.BootFile
	}
	return "command line"
}

// validPage reports whether an x86 processor has pages of a size, as far as its flags tell; others are not judged.
func validPage(h farm.HostFacts, size farm.Bytes) bool {
	flags := h.Topology.CPU.Flags
	if len(flags) == 0 || poolKnown(h, size) {
		return true
	}
	return size == defaultHugePage || size == farm.GiB && slices.Contains(flags, "pdpe1gb") ||
		!slices.Contains(flags, "lm")
}
