package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func vmQueues() Rule {
	return Rule{
		ID:       "vm-queues",
		Title:    "a virtio device has one queue for many vCPUs",
		Severity: Advice,
		Holds: "VMs of four vCPUs and more; network cards with vhost (bridge, network, macvtap) and virtio-blk " +
			"disks. Machine types since 5.2 give disks a queue for each vCPU by themselves; network cards never.",
		Cost: "Not measured by the sources. CPU-bound jobs do not feel it; many queues cost some memory and " +
			"interrupts.",
		Sources: []Source{
			redHatTuning("multi-queue virtio-net",
				"sect-Virtualization_Tuning_Optimization_Guide-Networking-Techniques",
				"a single queue restricts a guest's network as vCPUs increase; queues in <driver> let them send and "+
					"receive in parallel"),
			libvirtXML("hard-drives-floppy-disks-cdroms",
				"queues of <driver> is the number of queues of a virtio-blk disk"),
			{"Linux, commit 6a27b656fc02, \"block: virtio-blk: support multi virt queues per virtio-blk device\", 2014",
				"https://git.zx2c4.com/linux-dev/commit/?id=6a27b656fc0210e976db362e1368c56db05c8f08",
				"a queue for each CPU improves scalability and performance"},
		},
		Why: "A queue is a ring of requests with one interrupt and one lock. With a single queue all vCPUs line up " +
			"for it, and the interrupt comes to one vCPU whichever asked. With a queue for each vCPU a request is " +
			"answered on the CPU that made it. " +
			"Eight cores that all read their input at the same time notice; a job that computes for hours does not.",
		Fix: "Set queues to the number of vCPUs, eight at most to begin with.",
		Danger: "Guests before kernel 3.8 (network) and 3.17 (disk) ignore it; some need ethtool -L to use more than " +
			"one queue of a network card.",
		Undo:  "Take queues out of <driver>.",
		Check: checkVMQueues,
	}
}

const fewVCPUs, manyQueues = 4, 8

func checkVMQueues(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		if d.VCPUs < fewVCPUs {
			continue
		}
		queues := min(d.VCPUs, manyQueues)
		for i, n := range d.NICs {
			if n.Model == "virtio" && n.Queues < 2 &&
				slices.Contains(vhostKinds, n.Kind) {
				out = append(out, Finding{Severity: Advice, Where: vmName(d),
					Wanted: fmt.Sprintf("%d queues for %d vCPUs", queues, d.VCPUs),
					Got:    fmt.Sprintf("network card %d has one queue", i+1),
					Manual: edit(d, fmt.Sprintf("in <interface> number %d put <driver name='vhost' queues='%d'/>",
						i+1, queues))})
			}
		}
		major, minor, known := machineVersion(d.Machine)
		automatic := !known || major > 5 || major == 5 && minor >= 2
		for _, k := range dataDisks(d) {
			if k.Bus == "virtio" && (k.Queues == 1 || k.Queues == 0 && !automatic) {
				out = append(out, Finding{Severity: Advice, Where: vmName(d),
					Wanted: fmt.Sprintf("%d queues for %d vCPUs", queues, d.VCPUs),
					Got:    fmt.Sprintf("disk %s has one queue", k.Target),
					Manual: edit(d, fmt.Sprintf("write queues='%d' in the <driver> of disk %s", queues, k.Target))})
			}
		}
	}
	return out
}
