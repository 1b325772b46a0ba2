package tuning

import "github.com/grange-project/grange/internal/farm"

func vmNoIOThread() Rule {
	return Rule{
		ID:       "vm-no-iothread",
		Title:    "a VM's disks are served by QEMU's main loop",
		Severity: Advice,
		Holds:    "virtio-blk disks with QEMU 2.0 and libvirt 1.2.8 or newer. It matters to VMs that do much I/O.",
		Cost:     "Not measured by the sources. CPU-bound jobs do not feel it.",
		Sources: []Source{
			libvirtXML("iothreads-allocation",
				"I/O threads are event loops that disks can be given to, to scale better than with one main loop; "+
					"one or two for each CPU of the host are enough"),
			{"Red Hat Enterprise Linux 7.0 Release Notes, Virtualization",
				"https://access.redhat.com/documentation/en-us/red_hat_enterprise_linux/7/html/7.0_release_notes/chap-red_hat_enterprise_linux-7.0_release_notes-virtualization", "virtio-blk data plane does a disk's I/O in a thread of its own"},
		},
		Why: "Without I/O threads one thread of QEMU does everything that is not guest code: disks, monitor, " +
			"console, timers, and holds one lock while doing it. A request of the disk waits until that thread comes " +
			"round, and the thread's CPU is the limit for all disks together. " +
			"An I/O thread serves its disks alone, can be pinned beside the vCPUs instead of among them, and leaves the " +
			"main loop to the rest.",
		Fix:    "Give the VM an I/O thread and its disks to it.",
		Danger: "The thread needs a CPU: without an iothreadpin it runs among the vCPUs.",
		Undo:   "Take <iothreads> and the iothread attributes out.",
		Check:  checkVMNoIOThread,
	}
}

func checkVMNoIOThread(h farm.HostFacts, _ Profile) []Finding {
	if before(h.Versions.QEMU, 2, 0) {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		var slow []string
		for _, k := range dataDisks(d) {
			if k.Bus == "virtio" && k.IOThread == 0 {
				slow = append(slow, k.Target)
			}
		}
		if d.Type != "kvm" || len(slow) == 0 {
			continue
		}
		out = append(out, Finding{Severity: Advice, Where: vmName(d), Wanted: "an I/O thread for virtio disks",
			Got: "no I/O thread for disk " + few(slow),
			Manual: edit(d, "put <iothreads>1</iothreads> behind <vcpu>, iothread='1' into the <driver> of each "+
				"disk, and with pinned vCPUs <iothreadpin iothread='1' cpuset='…'/> to a CPU without vCPUs into "+
				"<cputune>")})
	}
	return out
}
