package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func vmDiskBus() Rule {
	return Rule{
		ID:       "vm-disk-bus",
		Title:    "a disk is emulated hardware (IDE, SATA, USB) instead of virtio",
		Severity: Warning,
		Holds: "Guests with virtio drivers: Linux since 2.6.25, Windows with the drivers added. CD-ROMs are left " +
			"out.",
		Cost: "Not measured by the sources: one queue, one request at a time on IDE, and exits to QEMU for each.",
		Sources: []Source{
			redHatTuning("improvements", "sect-virtualization_tuning_optimization_guide-introduction-7_improvements",
				"devices of the virtio models have not the overhead of emulating hardware with all its "+
					"particularities"),
			{"Alex Williamson, \"Virtualization Tuning & Optimization\", Red Hat, 2014",
				"http://awilliam.github.io/presentations/HP-Virt-Tuning-Opt-2014/",
				"emulated controllers such as piix4-ide and ich9-ahci: poor performance and high overhead; virtio " +
					"wherever possible"},
		},
		Why: "An IDE or SATA disk in a VM goes through an imitation of a controller from a time of one disk and one " +
			"processor: every request is many accesses to registers, each of which stops the vCPU until QEMU has " +
			"played the chip. virtio-blk and virtio-scsi put requests into a ring that both sides see, can run in an " +
			"I/O thread, and have a queue for each vCPU. " +
			"Tools choose IDE or SATA when they do not know the guest, and nobody changes it later.",
		Fix: "Use bus='virtio', or 'scsi' with a virtio-scsi controller.",
		Danger: "The disk gets another name in the guest (vda instead of sda): boot loader, fstab and initramfs must " +
			"know it before. Mount by UUID and make sure the initramfs has virtio_blk.",
		Undo:  "Put the old <target> back.",
		Check: checkVMDiskBus,
	}
}

func checkVMDiskBus(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		for _, k := range dataDisks(d) {
			if slices.Contains([]string{"ide", "sata", "usb"}, k.Bus) {
				out = append(out, Finding{Severity: Warning, Where: vmName(d), Wanted: "bus virtio",
					Got: fmt.Sprintf("disk %s is on bus %s", k.Target, k.Bus),
					Manual: edit(d, fmt.Sprintf(
						"for disk %s make it <target dev='vda' bus='virtio'/> with a name that is free, and take its "+
							"<address> out", k.Target))})
			}
		}
	}
	return out
}
