package tuning

import "github.com/grange-project/grange/internal/farm"

func vmBalloonHugePages() Rule {
	return Rule{
		ID:       "vm-balloon-hugepages",
		Title:    "a VM in huge pages has a memory balloon, which can give nothing back",
		Severity: Advice,
		Holds: "VMs in huge pages of the host's pool. libvirt adds a balloon to every VM unless the XML says " +
			"model='none'.",
		Cost: "Not measured. An inflated balloon takes memory from the guest that the host does not get; its " +
			"statistics wake the guest at each poll.",
		Sources: []Source{
			libvirtXML("memory-balloon-device",
				"a virtio memory balloon is added to all KVM guests; model='none' leaves it out"),
			{"QEMU, hw/virtio/virtio-balloon.c, balloon_inflate_page",
				"https://gitlab.com/qemu-project/qemu/-/blob/master/hw/virtio/virtio-balloon.c",
				"the guest gives back 4 KiB at a time; where the backing page is larger, only a whole page of which " +
					"all parts were given back can be discarded"},
		},
		Why: "A balloon takes pages of 4 KiB from a guest and gives them to the host. A huge page can be given back " +
			"only whole, so the balloon of such a VM inflates, the guest has less memory, and the host gains nothing " +
			"until 2 MiB or 1 GiB in a row happen to be in the balloon. " +
			"The pool's pages belong to the VM from its start to its end anyway. Tools that balance memory by balloons " +
			"do harm here and no good.",
		Fix: "Leave the balloon out.",
		Danger: "virsh dommemstat, and tools that show the memory in use inside a VM, get their numbers from the " +
			"balloon.",
		Undo:  "Put <memballoon model='virtio'/> back.",
		Check: checkVMBalloonHugePages,
	}
}

func checkVMBalloonHugePages(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		if d.HugePages && d.Balloon != "" && d.Balloon != "none" {
			out = append(out, Finding{Severity: Advice, Where: vmName(d), Wanted: "no balloon for a VM in huge pages",
				Got: "memballoon of model " + d.Balloon, Manual: edit(d, "make it <memballoon model='none'/>")})
		}
	}
	return out
}
