package tuning

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func vhostNetMissing() Rule {
	return Rule{
		ID:       "vhost-net-missing",
		Title:    "VMs with virtio network cards, and vhost_net is not loaded",
		Severity: Warning,
		Holds: "Hosts whose kernel has modules, with VMs on a bridge, a network of libvirt or macvtap. QEMU's user " +
			"network and passt have no use for it.",
		Cost: "On an emulated host a tap carried 1,373 Mbit/s into a VM without vhost_net and 2,016 with it, 542 and " +
			"816 out of it; more CPU time of QEMU for each packet.",
		Sources: []Source{
			redHatTuning("Virtio and vhost_net",
				"sect-virtualization_tuning_optimization_guide-networking-virtio_and_vhostnet",
				"it moves part of virtio from user space into the kernel: fewer copies, lower latency and CPU usage"),
			libvirtXML("setting-nic-driver-specific-options",
				"the driver of a card is vhost where the kernel has it, and silently qemu where not"),
		},
		Why: "With vhost_net a kernel thread of the host moves packets between a tap and the rings of the guest. " +
			"Without it each packet wakes QEMU, which copies it in user space, with its lock held. " +
			"libvirt takes vhost_net by itself where it is, and says nothing where it is not: a module that is " +
			"blocked in modprobe.d, or is missing in a small kernel package, only shows as a slow network.",
		Fix:    "Load vhost_net, and name it in /etc/modules-load.d; VMs have it from their next start.",
		Danger: "A kernel thread for each queue of a card works beside QEMU, on the CPUs of its other threads.",
		Undo:   "Unload the module when no VM uses it, and take it out of /etc/modules-load.d.",
		Check:  checkVhostNetMissing,
	}
}

func checkVhostNetMissing(h farm.HostFacts, _ Profile) []Finding {
	onTap := func(n farm.DomainNIC) bool {
		return n.Model == "virtio" && slices.Contains(vhostKinds, n.Kind)
	}
	if !h.VhostNet.Off() || !slices.ContainsFunc(h.Domains, func(d farm.Domain) bool {
		return d.Running && slices.ContainsFunc(d.NICs, onTap)
	}) {
		return nil
	}
	return []Finding{{Severity: Warning, Where: "host", Wanted: "vhost_net loaded", Got: "it is not loaded",
		Manual: "run modprobe vhost_net; when it fails, see modprobe.d and the kernel's packages. Write vhost_net " +
			"into /etc/modules-load.d/vhost_net.conf, and start the VMs again"}}
}

// vhostKinds are the kinds of cards whose packets vhost_net may move.
var vhostKinds = []string{"network", "bridge", "direct", "ethernet"}
