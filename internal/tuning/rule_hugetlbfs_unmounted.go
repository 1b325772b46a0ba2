package tuning

import (
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func hugetlbfsUnmounted() Rule {
	return Rule{
		ID:       "hugetlbfs-unmounted",
		Title:    "huge pages of a size are reserved, but no hugetlbfs of that size is mounted",
		Severity: Fault,
		Holds: "Hosts with libvirt. systemd mounts /dev/hugepages for the default size only. A fault where a VM " +
			"asks for that size, else a warning.",
		Cost: "VMs that ask for pages of that size do not start.",
		Sources: []Source{
			{"libvirt, src/qemu/qemu_conf.c", "https://gitlab.com/libvirt/libvirt/-/blob/master/src/qemu/qemu_conf.c",
				"a domain's page size is looked up among the mounted hugetlbfs; where there is none: \"Unable to " +
					"find any usable hugetlbfs mount\""},
			kernelDoc("admin-guide/mm/hugetlbpage",
				"a hugetlbfs has one page size, given with the mount option pagesize; without it, the default size"),
		},
		Why: "libvirt gives QEMU its huge pages through a file system, hugetlbfs, and each mount serves one page " +
			"size. systemd makes one mount at boot, for the default size. Pages of the other size can be reserved " +
			"and counted, " + "but libvirt does not find them, and starting the VM fails with \"Unable to find any " +
			"usable hugetlbfs mount\". The pool then looks like memory that is lost.",
		Fix: "Make the size the default with default_hugepagesz, or mount a second hugetlbfs with pagesize=, for " +
			"example at /dev/hugepages1G, and restart libvirt.",
		Undo:   "Unmount it.",
		Danger: "default_hugepagesz changes the size for all who do not name one.",
		Check:  checkHugetlbfsUnmounted,
	}
}

func checkHugetlbfsUnmounted(h farm.HostFacts, _ Profile) []Finding {
	if len(h.Mounts) == 0 || !runsVMs(h) {
		return nil
	}
	var mounted []farm.Bytes
	for _, m := range h.Mounts {
		if m.Type == "hugetlbfs" {
			mounted = append(mounted, mountedPageSize(h, m))
		}
	}
	var out []Finding
	for _, size := range sizesInUse(h) {
		if slices.Contains(mounted, size) {
			continue
		}
		severity := Warning
		if slices.ContainsFunc(h.Domains, func(d farm.Domain) bool { return asksFor(h, d, size) }) {
			severity = Fault
		}
		out = append(out, Finding{Severity: severity, Where: "pages of " + pageName(size),
			Wanted: "a hugetlbfs with pagesize=" + bootSize(size), Got: "none is mounted",
			Manual: "mount -t hugetlbfs -o pagesize=" + bootSize(size) + " none /dev/hugepages" + bootSize(size) +
				", by a mount unit so that it is there after a reboot, and restart libvirt"})
	}
	return out
}

// asksFor reports whether a VM asks for huge pages of a size, by name or as the default one.
func asksFor(h farm.HostFacts, d farm.Domain, size farm.Bytes) bool {
	if len(d.Pages) == 0 {
		return d.HugePages && size == defaultPageSize(h)
	}
	return slices.ContainsFunc(d.Pages, func(p farm.DomainPages) bool { return p.Size == size })
}

// mountedPageSize is the page size of a hugetlbfs: as its options say, or on old kernels, which do not say, the default
// one.
func mountedPageSize(h farm.HostFacts, m farm.Mount) farm.Bytes {
	for _, o := range m.Options {
		if text, ok := strings.CutPrefix(o, "pagesize="); ok {
			size, _ := farm.ParseBytes(text)
			return size
		}
	}
	return defaultPageSize(h)
}
