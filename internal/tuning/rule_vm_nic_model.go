package tuning

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmNICModel() Rule {
	return Rule{
		ID:       "vm-nic-model",
		Title:    "a VM has an emulated network card instead of virtio",
		Severity: Warning,
		Holds:    "Guests with virtio drivers: Linux since 2.6.25, Windows with the drivers added.",
		Cost: "Not measured by the sources: the emulation runs in QEMU's main loop, and leaves the guest for it " +
			"at each access to the card.",
		Sources: []Source{
			redHatTuning("improvements", "sect-virtualization_tuning_optimization_guide-introduction-7_improvements",
				"devices of the virtio models have not the overhead of emulating hardware with all its "+
					"particularities"),
			{"Alex Williamson, \"Virtualization Tuning & Optimization\", Red Hat, 2014",
				"http://awilliam.github.io/presentations/HP-Virt-Tuning-Opt-2014/",
				"emulated devices such as rtl8139 and e1000: poor performance and high overhead, for bootstrap only; " +
					"paravirtual ones wherever possible"},
		},
		Why: "An e1000 or RTL8139 in a VM is a program that behaves like that card, register by register. Each " +
			"access to a register stops the vCPU, goes out to QEMU and comes back; a packet takes several of them. " +
			"virtio was made for VMs: guest and host share rings in memory, the vhost threads of the host's kernel " +
			"move the packets, and several queues serve several vCPUs. " +
			"Jobs that read their data over the network feel it twice, in throughput and in CPU time taken from the job.",
		Fix: "Use <model type='virtio'/>.",
		Danger: "The guest sees another card: its interface may get a new name, and its configuration must follow. " +
			"Check that the guest has the driver first.",
		Undo:  "Put the old <model> back.",
		Check: checkVMNICModel,
	}
}

// emulatedNICs begin the names of libvirt's models of real cards.
var emulatedNICs = [...]string{"e1000", "rtl8139", "ne2k", "pcnet", "i82", "vmxnet", "tulip", "lan9118",
	"smc91c111", "usb-net"}

func checkVMNICModel(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		for i, n := range d.NICs {
			for _, prefix := range emulatedNICs {
				if strings.HasPrefix(n.Model, prefix) {
					out = append(out, Finding{Severity: Warning, Where: vmName(d), Wanted: "model virtio",
						Got: fmt.Sprintf("network card %d is an emulated %s", i+1, n.Model),
						Manual: edit(d,
							fmt.Sprintf("in <interface> number %d make it <model type='virtio'/>; keep the <mac>", i+1))})
				}
			}
		}
	}
	return out
}
