package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func bootLineConflict() Rule {
	return Rule{
		ID:       "boot-line-conflict",
		Title:    "parameters on the kernel's command line contradict each other",
		Severity: Warning,
		Holds:    "The command line of the next boot where it is known, else that of the running kernel.",
		Cost:     "The kernel drops a part of what was asked for, with a line in its log at most: fewer huge pages than VMs need, or none of a size.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/hugetlbpage", "hugepages belongs to the hugepagesz before it; a first hugepages without a size is for the default size and cannot be overwritten by a later pair; each size, and default_hugepagesz, may be given once; a number after an invalid size is ignored"),
			kernelDoc("admin-guide/mm/transhuge", "transparent_hugepage takes always, madvise or never"),
		},
		Why: "The parameters of huge pages are read from left to right, and the order is their meaning. hugepages=55 hugepagesz=1G reserves 55 pages of the default size and none of 1 GiB. Command lines grow over years, by installers, " +
			"configuration management and hands, until a pair is there twice and the kernel ignores one. The pool that results is smaller than the file says, or of another size, and VMs do not start.",
		Fix:   "Write each size once, directly before its number: default_hugepagesz=1G hugepagesz=1G hugepages=N.",
		Undo:  "Put the old line back.",
		Check: checkBootLineConflict,
	}
}

func checkBootLineConflict(h farm.Host, _ Profile) []Finding {
	var out []Finding
	add := func(wanted, got string) {
		out = append(out, Finding{Severity: Warning, Where: bootPlace(h.Kernel), Wanted: wanted, Got: got, Manual: "edit the command line: " + wanted})
	}
	seen := map[string]string{}
	sized, numbers := false, 0 // a size was given; numbers without one
	for _, p := range bootParams(nextLine(h.Kernel)) {
		switch p.name {
		case "hugepagesz", "default_hugepagesz":
			size, err := farm.ParseBytes(p.value)
			key := p.name
			if p.name == "hugepagesz" {
				key += size.String()
			}
			_, twice := seen[key]
			seen[key] = p.value
			sized = true
			switch {
			case err != nil || !validPage(h, size):
				add("a page size that this processor has", p.name+"="+p.value)
			case twice:
				add(p.name+"="+p.value+" once", "it is there twice")
			case p.name == "hugepagesz" && numbers > 0:
				add("hugepagesz="+p.value+" before its hugepages=", "a number comes first, which is for the default size")
			}
		case "hugepages":
			if !sized {
				numbers++
			}
		case "transparent_hugepage":
			if old, twice := seen[p.name]; twice && old != p.value {
				add("transparent_hugepage= once", fmt.Sprintf("%s, then %s: the last one counts", old, p.value))
			}
			seen[p.name] = p.value
		}
	}
	return out
}

func bootPlace(k farm.Kernel) string {
	if k.BootFile != "" {
		return "/" + k.BootFile
	}
	return "command line"
}

// validPage tells whether an x86 processor has pages of a size, as far as its flags tell; others are not judged.
func validPage(h farm.Host, size farm.Bytes) bool {
	flags := h.Topology.CPU.Flags
	if len(flags) == 0 || poolKnown(h, size) {
		return true
	}
	return size == defaultHugePage || size == farm.GiB && slices.Contains(flags, "pdpe1gb") || !slices.Contains(flags, "lm")
}
