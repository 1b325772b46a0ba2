package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmQcow2Copies() Rule {
	return Rule{
		ID:       "vm-qcow2-copies",
		Title:    "an overlay copies a whole cluster at each first write",
		Severity: Advice,
		Holds:    "qcow2 images with a backing file, without extended L2 entries, with QEMU 5.2 or newer.",
		Cost: "A first write of 4 KiB into a cluster of 64 KiB reads and writes the other 60 KiB as well. It " +
			"lasts until the clusters in use are copied: for a short job, all of its life.",
		Sources: []Source{
			{"Alberto Garcia, \"Subcluster allocation for qcow2 images\", 3 December 2020",
				"https://blogs.igalia.com/berto/2020/12/03/subcluster-allocation-for-qcow2-images/",
				"QEMU writes complete clusters, so it often copies more than the VM asked for, from the backing file " +
					"where there is one; subclusters, 32 to a cluster, avoid most of it"},
			{"QEMU, docs/qcow2-cache.txt", "https://gitlab.com/qemu-project/qemu/-/blob/master/docs/qcow2-cache.txt",
				"extended L2 entries divide each cluster into 32 subclusters and take 16 bytes instead of 8"},
		},
		Why: "An overlay is a qcow2 image that holds what has changed since the image behind it. The unit is a " +
			"cluster: when the guest writes 4 KiB, QEMU fetches the rest of the 64 KiB from the backing image and " +
			"writes the whole. A VM that was made for one job does little else than first writes: logs, temporary " +
			"files, package caches. " +
			"With extended L2 entries a cluster has 32 parts, and a write touches the parts that it needs; larger " +
			"clusters then cost no more copying, and smaller tables.",
		Fix: "Make overlays with extended_l2=on and clusters of 128 KiB or more, so that a subcluster is a block " +
			"of the guest's file system.",
		Danger: "QEMU before 5.2 cannot open such an image.",
		Undo:   "Make the overlay without extended_l2.",
		Check:  checkVMQcow2Copies,
	}
}

func checkVMQcow2Copies(h farm.HostFacts, _ Profile) []Finding {
	if !since(h.Versions.QEMU, 5, 2) {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		for _, k := range dataDisks(d) {
			if k.Backing && k.Cluster > 4*farm.KiB && !k.ExtendedL2 {
				out = append(out, Finding{Severity: Advice, Where: vmName(d),
					Wanted: "extended L2 entries in an overlay",
					Got:    fmt.Sprintf("disk %s copies clusters of %s", k.Target, pageName(k.Cluster)),
					Manual: "make the next overlay with qemu-img create -f qcow2 -o extended_l2=on,cluster_size=128K " +
						"-b BASE -F FORMAT " + k.Path + "; this one keeps what it has"})
			}
		}
	}
	return out
}
