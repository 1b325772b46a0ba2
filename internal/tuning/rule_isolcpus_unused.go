package tuning

import "github.com/grange-project/grange/internal/farm"

func isolcpusUnused() Rule {
	return Rule{
		ID:       "isolcpus-unused",
		Title:    "CPUs are isolated from the scheduler, and no VM is pinned to them",
		Severity: Warning,
		Holds:    "Hosts with isolcpus= or isolated cpuset partitions and running VMs.",
		Cost:     "The throughput of these CPUs: nothing runs there.",
		Sources: []Source{
			kernelDoc("admin-guide/kernel-parameters",
				"isolcpus takes CPUs out of the general balancing of the scheduler; programs come there only by "+
					"setting their affinity"),
			kernelDoc("admin-guide/cgroup-v2",
				"an isolated partition's CPUs are not balanced; programs in it should be placed one by one"),
		},
		Why: "Isolated CPUs are given to nobody who does not ask for them by number. That is meant for pinned VMs. " +
			"When the VMs are not pinned, or to other CPUs, the isolated ones stay idle while the rest is " +
			"overloaded. " + "The host's load average and the batch system's slots look normal, and only a list of " +
			"busy CPUs shows it.",
		Fix:    "Pin VMs to the isolated CPUs, or take isolcpus= off the command line.",
		Danger: "VMs that are pinned share their CPUs with the host's programs once isolation is gone.",
		Undo:   "Put isolcpus= back.",
		Check:  checkIsolcpusUnused,
	}
}

func checkIsolcpusUnused(h farm.HostFacts, _ Profile) []Finding {
	idle := isolated(h)
	running := false
	for _, d := range h.Domains {
		if d.Running {
			running = true
			for _, pins := range d.VCPUPins {
				idle = idle.Minus(pins)
			}
			idle = idle.Minus(d.EmulatorPin)
			for _, pins := range d.IOThreadPins {
				idle = idle.Minus(pins)
			}
		}
	}
	if !running || idle.Empty() || idle.Len() < isolated(h).Len() {
		return nil // where a part is in use, the others wait for more VMs
	}
	return []Finding{{Severity: Warning, Where: cpusInWords(idle),
		Wanted: "VMs pinned to isolated CPUs, or no isolation",
		Got:    "isolated, and no running VM is pinned to any of them",
		Manual: "pin VMs to these CPUs, or take isolcpus= off the command line and reboot"}}
}

// isolated is every online CPU that the scheduler does not balance.
func isolated(h farm.HostFacts) farm.CPUSet {
	out := h.Isolated
	for _, p := range h.Partitions {
		if p.Kind == "isolated" {
			out = out.Or(p.CPUs)
		}
	}
	return out.And(h.Topology.Online)
}
