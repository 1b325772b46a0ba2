package host

import (
	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// hostJSON is what `grange host show --json` prints, of any source. CPU sets are lists of numbers.
type hostJSON struct {
	Source       string              `json:"source"` // "this host", or what --from named
	Name         string              `json:"name"`
	Virtual      bool                `json:"virtual"`
	OS           string              `json:"os"`
	Kernel       kernelJSON          `json:"kernel"`
	QEMU         string              `json:"qemu"`
	Libvirt      string              `json:"libvirt"`
	CPU          api.CPU             `json:"cpu"`
	Online       []int               `json:"online"`
	Packages     [][]int             `json:"packages,omitempty"`   // missing where the kernel does not tell
	Cores        [][]int             `json:"cores,omitempty"`      // missing where the kernel does not tell
	CoreKinds    []string            `json:"core_kinds,omitempty"` // by index into cores, of hybrid processors only
	NUMA         []nodeJSON          `json:"numa"`
	L3           [][]int             `json:"l3"`
	Distance     [][]int             `json:"distance,omitempty"` // by index into numa
	Isolated     []int               `json:"isolated"`
	NoHzFull     []int               `json:"nohz_full"`
	Partitions   []partitionJSON     `json:"partitions"`
	SMT          string              `json:"smt"`
	Mitigations  map[string]string   `json:"vulnerabilities"`
	Governors    []governorJSON      `json:"governors"`
	Idle         []idleJSON          `json:"idle_states"`
	KVM          map[string]string   `json:"kvm"`
	KSM          *ksmJSON            `json:"ksm"` // null where the kernel has none
	THP          thpJSON             `json:"thp"`
	Memory       memoryJSON          `json:"memory"`
	HugePages    []poolJSON          `json:"huge_pages"`
	Swaps        []swapJSON          `json:"swaps"`
	Pressure     map[string]psiJSON  `json:"pressure"`
	Sysctl       map[string]string   `json:"sysctl"`
	Services     map[string]unitJSON `json:"services"`
	TunedProfile string              `json:"tuned_profile"`
	VMs          []vmJSON            `json:"vms"`    // that libvirt knows
	Unread       []string            `json:"unread"` // what could not be read, with the reason
	Agent        *agentJSON          `json:"agent"`  // null where none was asked
}

type kernelJSON struct {
	Release  string `json:"release"`
	Command  string `json:"command_line"`
	NextBoot string `json:"next_command_line"`
	BootFile string `json:"boot_file"`
	Clock    string `json:"clocksource"`
}

type nodeJSON struct {
	ID     int            `json:"id"`
	CPUs   []int          `json:"cpus"`
	Memory uint64         `json:"mem_kib"`
	Free   uint64         `json:"free_kib"`
	Pages  []nodePoolJSON `json:"huge_pages"`
}

type nodePoolJSON struct {
	Size    uint64 `json:"size_kib"`
	Total   int    `json:"total"`
	Free    int    `json:"free"`
	Surplus int    `json:"surplus"`
}

type poolJSON struct {
	nodePoolJSON
	Reserved   int `json:"reserved"`
	Overcommit int `json:"overcommit"`
}

type partitionJSON struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
	CPUs []int  `json:"cpus"`
}

type governorJSON struct {
	CPUs       []int  `json:"cpus"`
	Name       string `json:"name"`
	Driver     string `json:"driver"`
	Preference string `json:"preference,omitempty"`
}

type idleJSON struct {
	Name    string `json:"name"`
	Latency int    `json:"latency_us"`
	Enabled []int  `json:"enabled"`
}

type ksmJSON struct {
	Run              int    `json:"run"`
	Shared           int64  `json:"pages_shared"`
	Sharing          int64  `json:"pages_sharing"`
	Unshared         int64  `json:"pages_unshared"`
	MergeAcrossNodes string `json:"merge_across_nodes"`
}

type thpJSON struct {
	Enabled string `json:"enabled"`
	Defrag  string `json:"defrag"`
	Shmem   string `json:"shmem_enabled"`
	// of pages of 2 MiB, from Linux 6.8 on
	SizeEnabled string `json:"enabled_2m,omitempty"`
	SizeShmem   string `json:"shmem_enabled_2m,omitempty"`
}

type memoryJSON struct {
	Total     uint64 `json:"total_kib"`
	Available uint64 `json:"available_kib"`
	Committed uint64 `json:"committed_kib"`
	SwapTotal uint64 `json:"swap_total_kib"`
	SwapFree  uint64 `json:"swap_free_kib"`
}

type swapJSON struct {
	Path string `json:"path"`
	Size uint64 `json:"size_kib"`
	Used uint64 `json:"used_kib"`
}

type psiJSON struct {
	Some10 float64 `json:"some_avg10"`
	Some60 float64 `json:"some_avg60"`
	Full10 float64 `json:"full_avg10"`
	Full60 float64 `json:"full_avg60"`
}

type unitJSON struct {
	Running bool `json:"running"`
	Enabled bool `json:"enabled"`
}

type vmJSON struct {
	Name    string `json:"name"`
	UUID    string `json:"uuid"`
	Running bool   `json:"running"`
	Ours    bool   `json:"ours"`
	VCPUs   int    `json:"vcpus"`
	Memory  uint64 `json:"memory_kib"`
}

func hostToJSON(h farm.HostFacts, source string, agent *agentJSON) hostJSON {
	cpu, t := h.Topology.CPU, h.Topology
	out := hostJSON{Source: source, Name: h.Name, Virtual: h.Virtual, OS: h.OS.Name, QEMU: h.Versions.QEMU,
		Libvirt: h.Versions.Libvirt, Kernel: kernelJSON{h.Kernel.Release, h.Kernel.Command, h.Kernel.NextBoot,
			h.Kernel.BootFile, h.Kernel.Clock}, CPU: api.CPU{Vendor: cpu.Vendor, Model: cpu.Name, MaxMHz: cpu.MaxMHz,
			Flags: cpu.Flags}, Online: numbers(t.Online), Packages: [][]int{}, Cores: [][]int{}, NUMA: []nodeJSON{},
		L3: [][]int{}, Distance: t.Distance, Isolated: numbers(h.Isolated), NoHzFull: numbers(h.NoHzFull),
		Partitions: []partitionJSON{}, SMT: h.SMT, Mitigations: h.Vulnerabilities, Governors: []governorJSON{},
		Idle: []idleJSON{}, KVM: h.KVM.Params, THP: thpJSON(h.THP), HugePages: []poolJSON{}, Swaps: []swapJSON{},
		Memory: memoryJSON{kib(h.Memory.Total), kib(h.Memory.Available), kib(h.Memory.Committed),
			kib(h.Memory.SwapTotal), kib(h.Memory.SwapFree)}, Sysctl: h.Sysctl, Pressure: map[string]psiJSON{},
		Services: map[string]unitJSON{}, TunedProfile: h.TunedProfile, VMs: []vmJSON{}, Unread: orEmpty(h.Unread),
		Agent: agent}
	topologyToJSON(t, &out)
	for _, p := range h.Partitions {
		out.Partitions = append(out.Partitions, partitionJSON{p.Path, p.Kind, numbers(p.CPUs)})
	}
	for _, g := range h.Clocks {
		out.Governors = append(out.Governors, governorJSON{numbers(g.CPUs), g.Name, g.Driver, g.Preference})
	}
	for _, s := range h.Idle {
		out.Idle = append(out.Idle, idleJSON{s.Name, s.LatencyMicros, numbers(s.Enabled)})
	}
	if k := h.KSM; k.Known {
		out.KSM = &ksmJSON{k.Run, k.Shared, k.Sharing, k.Unshared, string(k.MergeAcrossNodes)}
	}
	for _, p := range h.Pages {
		out.HugePages = append(out.HugePages,
			poolJSON{nodePoolJSON{kib(p.Size), p.Total, p.Free, p.Surplus}, p.Reserved, p.Overcommit})
	}
	for _, s := range h.Swaps {
		out.Swaps = append(out.Swaps, swapJSON{s.Path, kib(s.Size), kib(s.Used)})
	}
	for what, p := range h.Pressure {
		out.Pressure[what] = psiJSON{p.Some10, p.Some60, p.Full10, p.Full60}
	}
	for name, s := range h.Services {
		out.Services[name] = unitJSON(s)
	}
	for _, d := range h.Domains {
		out.VMs = append(out.VMs, vmJSON{d.Name, d.UUID, d.Running, d.Ours, d.VCPUs, kib(d.Memory)})
	}
	return out
}

func topologyToJSON(t farm.Topology, out *hostJSON) {
	for _, s := range t.Sockets {
		if t.SocketsUntold {
			break
		}
		out.Packages = append(out.Packages, numbers(s.CPUs))
	}
	hybrid := false
	for _, c := range t.Cores {
		if t.CoresUntold {
			break
		}
		out.Cores = append(out.Cores, numbers(c.Threads))
		hybrid = hybrid || c.Kind != ""
	}
	for _, c := range t.Cores {
		if hybrid {
			out.CoreKinds = append(out.CoreKinds, string(c.Kind))
		}
	}
	for _, n := range t.Nodes {
		node := nodeJSON{ID: n.ID, CPUs: numbers(n.CPUs), Memory: kib(n.Memory), Free: kib(n.Free),
			Pages: []nodePoolJSON{}}
		for _, p := range n.Pages {
			node.Pages = append(node.Pages, nodePoolJSON{kib(p.Size), p.Total, p.Free, p.Surplus})
		}
		out.NUMA = append(out.NUMA, node)
	}
	for _, s := range t.L3 {
		out.L3 = append(out.L3, numbers(s))
	}
}

// numbers makes an empty set [] in JSON and not null.
func numbers(s farm.CPUSet) []int { return append([]int{}, s.List()...) }

func kib(b farm.Bytes) uint64 { return uint64(b / farm.KiB) }
