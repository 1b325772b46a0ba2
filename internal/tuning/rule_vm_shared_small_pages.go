package tuning

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func vmSharedSmallPages() Rule {
	return Rule{
		ID:       "vm-shared-small-pages",
		Title:    "a VM's shared memory gets no transparent huge pages",
		Severity: Advice,
		Holds: "VMs without static huge pages whose memory is shared (memfd, or access mode shared, as virtiofs needs), " +
			"on hosts where transparent huge pages are on.",
		Cost: "That of small pages: with EPT 6 % of HS06 at CERN in 2015. Not measured for shared memory.",
		Sources: []Source{
			kernelDoc("admin-guide/mm/transhuge",
				"huge pages of tmpfs and of memfd go by shmem_enabled and not by enabled; advise gives them to who "+
					"asks with madvise, deny and never to nobody; each size has a shmem_enabled of its own"),
			libvirtXML("memory-backing", "source memfd and access shared keep the guest's memory in files without a name"),
		},
		Why: "The kernel keeps memory that several processes share as a file in memory. For these files it looks at " +
			"shmem_enabled, which is never by default, also where transparent_hugepage/enabled is always. A VM whose " +
			"memory is shared for virtiofs or vhost-user thus has small pages only, beside VMs with private memory " +
			"that have huge ones.",
		Fix:    "Write advise to /sys/kernel/mm/transparent_hugepage/shmem_enabled. QEMU asks for huge pages of its memory.",
		Danger: "Other programs that ask for them get huge pages of shared memory too.",
		Undo:   "Write the old word back.",
		Check:  checkVMSharedSmallPages,
	}
}

func checkVMSharedSmallPages(h farm.HostFacts, _ Profile) []Finding {
	own, word := h.THP.SizeShmem, h.THP.Shmem
	if own == inherit {
		own = ""
	}
	effective := cmp.Or(own, word)
	off := cmp.Or(h.THP.SizeEnabled, h.THP.Enabled)
	if !slices.Contains([]string{"never", "deny"}, effective) || off == "never" || h.THP.Enabled == "" {
		return nil
	}
	change := []Change{{Kind: SetValue, Path: thpPath + "shmem_enabled", Value: "advise"}}
	got := "shmem_enabled is " + word
	if own != "" {
		got = "hugepages-2048kB/shmem_enabled is " + own
		change = []Change{{Kind: SetValue, Path: thpSizePath + "shmem_enabled", Value: "advise"}}
	}
	var out []Finding
	for _, d := range foreign(h) {
		if d.HugePages || d.MemorySource != "memfd" && !d.MemoryShared {
			continue
		}
		if d.MemorySource == "file" {
			continue // its directory's file system decides
		}
		out = append(out, Finding{Severity: Advice, Where: vmName(d), Wanted: "huge pages for its shared memory",
			Got: fmt.Sprintf("its memory is shared, and %s: it is in small pages", got), Changes: change})
	}
	return out
}
