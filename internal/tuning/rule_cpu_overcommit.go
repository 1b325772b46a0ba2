package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func cpuOvercommit() Rule {
	return Rule{
		ID:       "cpu-overcommit",
		Title:    "running VMs have more vCPUs than the profile allows for the host's threads",
		Severity: Warning,
		Holds:    "Hosts whose profile sets a limit.",
		Cost: "Jobs share CPUs: with n vCPUs on m threads each busy vCPU gets m/n of one. What waiting for a " +
			"vCPU that holds a lock adds was not measured.",
		Sources: []Source{
			cernPinning("pinning vCPUs to CPUs of their own gained about 3 % of HS06 for one VM of 32 vCPUs, on top " +
				"of guest NUMA; letting them float is for hosts that overcommit"),
			cernTier0("when a fault pinned both VMs of a host to one processor and left the other idle, VMs ranged " +
				"from 60 to 155 HS06"),
		},
		Why: "Jobs are busy all the time, so a thread that two vCPUs share gives each half. The batch system counts " +
			"slots and does not know; wall-clock limits are exceeded and accounting is wrong. " +
			"In a guest it is worse than on bare metal: a vCPU that is taken off its CPU while it holds a lock of the guest's " +
			"kernel makes the other vCPUs wait as well.",
		Fix:    "Run fewer or smaller VMs, or accept it in the profile (overcommit) for VMs that are mostly idle.",
		Danger: "VMs have to end or move.",
		Undo:   "Nothing is changed.",
		Check:  checkCPUOvercommit,
	}
}

func checkCPUOvercommit(h farm.HostFacts, p Profile) []Finding {
	threads := h.Topology.Online.Len()
	vcpus, running := 0, 0
	for _, d := range h.Domains {
		if d.Running {
			vcpus += max(d.VCPUs, 0)
			running++
		}
	}
	if p.Overcommit <= 0 || threads == 0 || float64(vcpus) <= float64(threads)*p.Overcommit {
		return nil
	}
	return []Finding{{Severity: Warning, Where: "host",
		Wanted: fmt.Sprintf("at most %g vCPUs on %d threads", float64(threads)*p.Overcommit, threads),
		Got:    fmt.Sprintf("%d vCPUs in %s", vcpus, farm.Count(running, "running VM")),
		Manual: "end or move VMs, or set overcommit in the profile"}}
}
