package verify

import "github.com/grange-project/grange/internal/tuning"

// The evidence behind each kind of problem.
var (
	doublePinning = tuning.Source{
		Name: "CERN, \"Tier-0 Resources\", WLCG Management Board, 14 July 2015",
		Says: "two 16-core VMs on a 32-core host ran at 60 to 155 HS06 each: half of the pairs were pinned to one " +
			"and the same processor, and the other idled",
	}
	pinning = tuning.Source{
		Name: "CERN, \"NUMA and CPU Pinning in High Throughput Computing\", 3 August 2015",
		Says: "pinning vCPUs gave a 32-core VM 3 % more HS06 on top of guest NUMA",
	}
	locality = tuning.Source{
		Name: "CERN, \"NUMA and CPU Pinning in High Throughput Computing\", 3 August 2015",
		Says: "guest NUMA that matches the host's, without numad, gave a 32-core VM 9 % more HS06",
	}
	scheduling = tuning.Source{
		Name: "Linux, Documentation/admin-guide/kernel-parameters.txt, isolcpus",
		URL:  "https://docs.kernel.org/admin-guide/kernel-parameters.html",
		Says: "the scheduler neither puts tasks on isolated CPUs nor moves them between these: threads that may use " +
			"several stay on one",
	}
	affinity = tuning.Source{
		Name: "Linux, sched_setaffinity(2) and cpuset(7)",
		URL:  "https://man7.org/linux/man-pages/man7/cpuset.7.html",
		Says: "a thread runs only on CPUs that are online and that its cpuset allows, whatever its pin says",
	}
	naming = tuning.Source{
		Name: "QEMU, \"Invocation\", -name",
		URL:  "https://www.qemu.org/docs/master/system/invocation.html",
		Says: "debug-threads=on names the threads of QEMU on Linux; without it all have the program's name",
	}
	hiding = tuning.Source{
		Name: "Linux, proc(5), hidepid",
		URL:  "https://man7.org/linux/man-pages/man5/proc.5.html",
		Says: "where /proc is mounted with hidepid, only root sees the processes of others",
	}
	emulation = tuning.Source{
		Name: "OpenStack Nova, \"CPU topologies\", emulator thread policy",
		URL:  "https://docs.openstack.org/nova/latest/admin/cpu-topologies.html",
		Says: "QEMU's own threads that share a CPU with a vCPU interrupt the guest there; isolate or share keeps " +
			"them away",
	}
	realTimeScheduling = tuning.Source{
		Name: "Linux, sched(7), real-time scheduling",
		URL:  "https://man7.org/linux/man-pages/man7/sched.7.html",
		Says: "a thread of SCHED_FIFO or SCHED_RR runs until it waits; ordinary threads of that CPU wait as long",
	}
	siblings = tuning.Source{
		Name: "OpenStack Nova, \"CPU topologies\", CPU thread policy",
		URL:  "https://docs.openstack.org/nova/latest/admin/cpu-topologies.html",
		Says: "SMT siblings share the core's execution units and caches, so that each VM's speed depends on what the " +
			"other does",
	}
)
