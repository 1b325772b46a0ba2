package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func guestCacheOverSockets() Rule {
	return Rule{
		ID:       "guest-cache-over-sockets",
		Title:    "the guest sees one cache shared by CPUs of different sockets or nodes",
		Severity: Advice,
		Roles:    []Role{Guest},
		Holds:    "Guests with two sockets or nodes, or more.",
		Cost: "Not measured by the sources. Linux builds its scheduling domains from caches; where they cross sockets or " +
			"nodes it logs that the topology is not sane, and programs such as hwloc and MPI place threads wrongly.",
		Sources: []Source{
			libvirtXML("cpu-model-and-topology", "<cache> passthrough shows the host's caches, emulate those of QEMU, "+
				"which follow the guest's topology"),
			{"Linux 6.1, arch/x86/kernel/smpboot.c, topology_sane",
				"https://git.kernel.org/pub/scm/linux/kernel/git/stable/linux.git/tree/arch/x86/kernel/smpboot.c?h=v6.1",
				"where CPUs that share a cache are on different nodes the kernel warns that the topology is not sane"},
		},
		Why: "With the host's caches passed through, the guest reads how many threads share one on the host, and not how " +
			"many of them are the guest's. A cache of 16 threads then covers both sockets of a guest of 8 vCPUs. The " +
			"guest's scheduler takes threads of both sockets for neighbours that can exchange data cheaply, which is false.",
		Fix: "Write <cache level='3' mode='emulate'/> into <cpu> of the VM, or give its sockets as many vCPUs as the " +
			"host's cache has threads.",
		Danger: "The guest sees another size of the cache.",
		Undo:   "Put the old <cache> back.",
		Check:  checkGuestCacheOverSockets,
	}
}

func checkGuestCacheOverSockets(h farm.HostFacts, _ Profile) []Finding {
	for _, cache := range h.Topology.L3 {
		sockets, nodes := 0, 0
		for _, s := range h.Topology.Sockets {
			sockets += min(s.CPUs.Common(cache), 1)
		}
		for _, n := range h.Topology.Nodes {
			nodes += min(n.CPUs.Common(cache), 1)
		}
		if sockets < 2 && nodes < 2 {
			continue
		}
		return []Finding{{Severity: Advice, Where: "CPUs " + cache.String(),
			Wanted: "a cache for each socket",
			Got: fmt.Sprintf("one L3 cache is shared by CPUs of %s and %s",
				farm.Count(sockets, "socket"), farm.Count(nodes, "node")),
			Manual: "write <cache level='3' mode='emulate'/> into <cpu> of this VM's definition"}}
	}
	return nil
}
