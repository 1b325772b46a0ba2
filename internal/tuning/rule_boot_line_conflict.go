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
		Title:    "parameters on the kernel's command line contradict each other, or other places",
		Severity: Warning,
		Holds: "The command line of the next boot where it is known, else that of the running kernel; what tuned's profile " +
			"adds to it; vm.nr_hugepages of sysctl.d.",
		Cost: "The kernel drops a part of what was asked for, with a line in its log at most: fewer huge pages " +
			"than VMs need, or none of a size.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/hugetlbpage",
				"hugepages belongs to the hugepagesz before it; a first hugepages without a size is for the default "+
					"size and cannot be overwritten by a later pair; each size, and default_hugepagesz, may be given "+
					"once; a number after an invalid size is ignored"),
			{"sysctl.d(5)", "https://www.freedesktop.org/software/systemd/man/latest/sysctl.d.html",
				"files of all directories are applied at boot in the order of their names, the later value wins; a file in " +
					"/etc stands in for one of the same name in /usr/lib"},
			{"tuned 2.20, plug-in bootloader",
				"https://github.com/redhat-performance/tuned/blob/v2.20.0/tuned/plugins/plugin_bootloader.py",
				"options that begin with cmdline are joined, and stand behind the other parameters of each kernel"},
			kernelDoc("admin-guide/mm/transhuge", "transparent_hugepage takes always, madvise or never"),
		},
		Why: "The parameters of huge pages are read from left to right, and the order is their meaning. hugepages=55 " +
			"hugepagesz=1G reserves 55 pages of the default size and none of 1 GiB. Command lines grow over years, " +
			"by installers, " + "configuration management and hands, until a pair is there twice and the kernel " +
			"ignores one. The pool that results is smaller than the file says, or of another size, and VMs do not " +
			"start.",
		Fix: "Write each size once, directly before its number: default_hugepagesz=1G hugepagesz=1G hugepages=N. Set " +
			"the number of pages in one place.",
		Undo:  "Put the old line back.",
		Check: checkBootLineConflict,
	}
}

func checkBootLineConflict(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	at := func(where, wanted, got string) {
		out = append(out, Finding{Severity: Warning, Where: where, Wanted: wanted, Got: got,
			Manual: "edit " + where + ": " + wanted})
	}
	add := func(wanted, got string) { at(bootPlace(h.Kernel), wanted, got) }
	line := pagesLine(h.Kernel)
	_, dropped := readPages(h, line)
	for _, d := range dropped {
		add(d.wanted, d.got)
	}
	numbersWithoutSize(h, line, add)
	var words []string // of transparent_hugepage
	for _, p := range bootParams(nextLine(h.Kernel)) {
		if p.name == "transparent_hugepage" {
			words = append(words, p.value)
		}
	}
	if len(slices.Compact(words)) > 1 {
		add("transparent_hugepage= once",
			"transparent_hugepage= is "+strings.Join(words, ", then ")+": the last one counts")
	}
	tunedPages(h, at)
	pagesSetTwice(h, at)
	return out
}

// pagesLine is the command line that decides about huge pages at the next boot: that of the running kernel where the
// file for the next one says nothing of them.
func pagesLine(k farm.Kernel) string {
	if line := nextLine(k); pageParams(line) != "" {
		return line
	}
	return k.Command
}

// numbersWithoutSize finds what a number before any size does to the sizes behind it: it is for the default size.
func numbersWithoutSize(h farm.HostFacts, line string, add func(wanted, got string)) {
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
	base := kernelPage(h) // the size of a number without one
	if text, ok := bootValue(line, "default_hugepagesz"); ok && memparse(text) > 0 {
		base = memparse(text)
	}
	for _, text := range sizes {
		got := memparse(text)
		switch {
		case first == "" || !kernelHasPage(h, got):
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
