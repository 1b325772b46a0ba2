package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmQcow2Cache() Rule {
	return Rule{
		ID:       "vm-qcow2-cache",
		Title:    "a qcow2 image is larger than QEMU's cache of its tables",
		Severity: Warning,
		Holds: "qcow2 images with random access. The cache is 32 MiB since QEMU 3.1 and 1 MiB before, unless the " +
			"XML or the command line says otherwise.",
		Cost: "Around 500 against 16,000 random writes of 4 KiB a second, in the test by QEMU's developers of a " +
			"cache that was a little too small.",
		Sources: []Source{
			{"QEMU, docs/qcow2-cache.txt", "https://gitlab.com/qemu-project/qemu/-/blob/master/docs/qcow2-cache.txt",
				"one entry of 8 bytes maps a cluster, so 32 MiB of L2 cache cover 256 GiB with the default clusters " +
					"of 64 KiB; larger clusters need less"},
			{"QEMU, commit b70d08205b2e, \"qcow2: Fix the calculation of the maximum L2 cache size\"",
				"https://github.com/qemu/qemu/commit/b70d08205b2e4044c529eefc21df2c8ab61b473b",
				"4 KiB random writes on an image of 1280 MiB: around 500 IOPS with a cache one table too small, " +
					"16,000 with the right one"},
		},
		Why: "A qcow2 image finds each cluster through a table, the L2 table, kept in the image and cached in " +
			"memory. As long as the cache holds the tables of what the guest touches, a request is one request. " +
			"Beyond that, every random access may first have to write back one table and read another: one request " +
			"becomes three, and none of them in order. Clusters of 64 KiB were chosen when images were small; at 2 " +
			"MiB the same cache covers 32 times as much.",
		Fix: "Make the image with larger clusters, or give the driver a larger cache; use raw for scratch.",
		Danger: "Larger clusters make each first write larger, above all with a backing file, unless the image has " +
			"extended L2 entries (vm-qcow2-copies).",
		Undo:  "Convert the image back.",
		Check: checkVMQcow2Cache,
	}
}

func checkVMQcow2Cache(h farm.HostFacts, _ Profile) []Finding {
	cache := 32 * farm.MiB
	if before(h.Versions.QEMU, 3, 1) {
		cache = farm.MiB
	}
	var out []Finding
	for _, d := range foreign(h) {
		for _, k := range dataDisks(d) {
			entry := farm.Bytes(8)
			if k.ExtendedL2 {
				entry = 16
			}
			if covered := cache / entry * k.Cluster; k.Cluster > 0 && k.Size > covered {
				out = append(out, Finding{Severity: Warning, Where: vmName(d),
					Wanted: fmt.Sprintf("tables of disk %s within a cache of %s", k.Target, pageName(cache)),
					Got: fmt.Sprintf("%s in clusters of %s: the cache covers %s", roughly(k.Size), pageName(k.Cluster),
						roughly(covered)),
					Manual: fmt.Sprintf(
						"with the VM shut down: qemu-img convert -f qcow2 -O qcow2 -o cluster_size=2M %s NEW, and let "+
							"the disk's <source> name the new image; or put <metadata_cache><max_size "+
							"unit='bytes'>%d</max_size></metadata_cache> into its <driver> (libvirt 7.0)", k.Path,
						(k.Size/k.Cluster+1)*entry)})
			}
		}
	}
	return out
}
