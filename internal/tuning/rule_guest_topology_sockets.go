package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func guestTopologySockets() Rule {
	return Rule{
		ID:       "guest-topology-sockets",
		Title:    "each CPU of this VM is a socket of its own",
		Severity: Advice,
		Roles:    []Role{Guest},
		Holds: "VMs with more than four CPUs. It matters for pinned VMs and for programs that count or bind to " +
			"sockets.",
		Cost: "No significant change of HS06 without pinning (CERN, one VM of 32 vCPUs). With pinning nothing " +
			"was published.",
		Sources: []Source{
			cernTopology("32 vCPUs are 32 sockets by default; a topology of 2 sockets, 8 cores and 2 threads made no " +
				"significant difference to the benchmark without pinning"),
			cernSummary("CPU topology: about 0 %"),
		},
		Why: "A machine of 32 sockets with one core each does not exist; it is what a hypervisor shows when nobody " +
			"says otherwise. The scheduler here then believes that no two CPUs share a core or a cache, and programs " +
			"that start one thread a core, or bind threads that share data to one socket, have nothing to go by. " +
			"Do not expect a gain in throughput from changing it alone: CERN found none.",
		Fix: "Ask for a topology that follows the host's: hw:cpu_sockets, hw:cpu_cores and hw:cpu_threads in " +
			"Nova, <topology> in libvirt.",
		Danger: "Licences by core or socket may count anew.",
		Undo:   "Take the topology out again where the VM is defined.",
		Check:  checkGuestTopologySockets,
	}
}

func checkGuestTopologySockets(h farm.HostFacts, _ Profile) []Finding {
	cpus, sockets := h.Topology.Online.Len(), len(h.Topology.Sockets)
	if cpus <= 4 || sockets != cpus {
		return nil
	}
	return []Finding{{Severity: Advice, Where: "this VM", Wanted: "cores and threads within a few sockets",
		Got: fmt.Sprintf("%d CPUs in %d sockets", cpus, sockets),
		Manual: fmt.Sprintf("ask for <topology sockets='1' cores='%d' threads='1'/>, or for that of the CPUs that "+
			"the VM is pinned to", cpus)}}
}
