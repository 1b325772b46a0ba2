package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmTopologySockets() Rule {
	return Rule{
		ID:       "vm-topology-sockets",
		Title:    "each vCPU of a VM is a socket of its own",
		Severity: Advice,
		Holds: "VMs with more than four vCPUs, and more than the host has sockets. It matters for pinned VMs and " +
			"for programs that count sockets.",
		Cost: "No significant change of HS06 without pinning (CERN, one VM of 32 vCPUs). With pinning nothing " +
			"was published.",
		Sources: []Source{
			cernTopology("32 vCPUs are 32 sockets of one core and one thread by default; 2 sockets of 8 cores of 2 " +
				"threads made no significant difference to the benchmark, perhaps because nothing was pinned"),
			cernSummary("CPU topology: about 0 %"),
			libvirtXML("cpu-model-and-topology", "<topology> sets sockets, cores and threads of the guest"),
		},
		Why: "Where the XML says nothing, libvirt gives a guest as many sockets as vCPUs. A guest with 32 sockets " +
			"believes that no two CPUs share a core or a cache: its scheduler spreads and moves threads as if that " +
			"were so, and libraries that start one thread a core or bind by cache have nothing to go by. " +
			"Some systems also refuse to use, or are licensed for, more than a few sockets. As long as vCPUs float over " +
			"the host any topology is a fiction, so measure no gain from this alone; pinned, it lets the guest's " +
			"scheduler see the truth.",
		Fix:    "Give the VM the topology of the CPUs that it is pinned to, or one socket with cores.",
		Danger: "Guests with licences by core or socket may count anew.",
		Undo:   "Take the <topology> element out.",
		Check:  checkVMTopologySockets,
	}
}

func checkVMTopologySockets(h farm.HostFacts, _ Profile) []Finding {
	hostSockets := len(h.Topology.Sockets)
	if hostSockets == 0 {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		sockets := d.Guest.Sockets
		if d.Guest == (farm.GuestTopology{}) {
			sockets = d.VCPUs
		}
		if d.VCPUs <= 4 || sockets != d.VCPUs || sockets <= hostSockets {
			continue
		}
		g := likePins(h.Topology, d)
		out = append(out, Finding{Severity: Advice, Where: vmName(d),
			Wanted: fmt.Sprintf("at most %d sockets, as the host has", hostSockets),
			Got:    fmt.Sprintf("%d sockets of one core", sockets),
			Manual: edit(d, fmt.Sprintf("put <topology sockets='%d' cores='%d' threads='%d'/> into <cpu>", g.Sockets,
				g.Cores, g.Threads))})
	}
	return out
}

// likePins is a topology that says no more than is true: a socket for each guest cell, and threads where vCPUs are
// pinned to them.
func likePins(t farm.Topology, d farm.Domain) farm.GuestTopology {
	g := farm.GuestTopology{Sockets: 1, Threads: 1}
	if n := len(d.Cells); n > 1 && d.VCPUs%n == 0 {
		g.Sockets = n
	}
	if perSocket := d.VCPUs / g.Sockets; perSocket%2 == 0 && pinned(d) && len(splitCores(t, d, 2)) == 0 {
		g.Threads = 2
	}
	g.Cores = d.VCPUs / g.Sockets / g.Threads
	return g
}
