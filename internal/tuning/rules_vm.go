package tuning

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// vmRules are about VMs: as libvirt describes them, and seen from inside.
func vmRules() []Rule {
	return []Rule{
		// What the guest's processor looks like.
		vmTypeQEMU(), vmCPUModel(), vmPassthroughOnService(), vmTopologySockets(), vmThreadsHidden(),
		vmLargerThanHost(), eptOffCentOS7Guest(),
		vmPVSpinlocks(), vmKVMClockOff(), vmHPET(), vmMachineOld(),
		// Where its CPUs run and where its memory is.
		vmPinOverlap(), vmRoamsDedicated(), vmPinOffline(), vmFloatsOnIsolated(), vmNotPinned(), vmPinSplitsSiblings(),
		vmPinsCrossNode(), vmCellsCutTopology(), vmCrossesL3(), vmOverCoreKinds(), vmDeviceOtherNode(),
		vmEmulatorOnVCPUs(), vmEmulatorOtherNode(),
		vmNoGuestNUMA(), vmCellsGapsOldQEMU(), vmMemoryUnbound(), vmMemoryOtherNode(), vmFloatsOffMemory(),
		vmMemoryInterleaved(), vmNodeAbsent(),
		vmNoHugePages(), vmSharedSmallPages(), vmPagesMissing(), vmsPagesTogether(),
		vmPagesCells(), vmBalloonHugePages(),
		// Its disks and networks.
		vmNICModel(), vmDiskBus(), vmDiskCacheCompute(), vmDiskCacheService(), vmDiskIONative(), vmDiskIORefused(),
		vmNoIOThread(), vmQueues(),
		vmQcow2Cache(), vmQcow2Copies(),
		// Seen from inside.
		guestOneCPU(), guestCPUGeneric(), guestTopologySockets(), guestCacheOverSockets(),
		guestOneNode(), guestClockSource(), guestSteal(),
		guestBootParameters(),
		guestSwapSmall(), guestSwapping(), guestScratchSmall(), guestTHP(), guestIOScheduler(),
	}
}

// foreign are the VMs that people define. The agent's own are left out where only their XML could be changed: it is
// written anew for each VM, from its shape and its plan.
func foreign(h farm.HostFacts) []farm.Domain {
	return slices.DeleteFunc(slices.Clone(h.Domains), func(d farm.Domain) bool { return d.Ours })
}

func vmName(d farm.Domain) string { return "VM " + d.Name }

// edit returns how a person changes a VM. A reboot inside the guest is not a new start of QEMU.
func edit(d farm.Domain, what string) string {
	return fmt.Sprintf("virsh edit %s: %s. It takes effect when the VM is shut down and started again, not at a "+
		"reboot inside it.", ShellWord(d.Name), what)
}

// replan is for findings that the agent's own VMs may have, too.
func replan(d farm.Domain, what string) string {
	if d.Ours {
		return fmt.Sprintf("%s is one of grange's: its CPUs and memory are planned when it starts. Let its job end, "+
			"or end the VM; grange tune verify shows what the kernel has of it.", d.Name)
	}
	return edit(d, what)
}

// pinned reports whether each vCPU has one host CPU of its own.
func pinned(d farm.Domain) bool {
	for vcpu := range d.VCPUs {
		if d.VCPUPins[vcpu].Len() != 1 {
			return false
		}
	}
	return d.VCPUs > 0
}

// allowedCPUs are the host CPUs that vCPUs of a set may use; ok is false where one of them may use all.
func allowedCPUs(h farm.HostFacts, d farm.Domain, vcpus []int) (cpus farm.CPUSet, ok bool) {
	if len(vcpus) == 0 || h.Topology.Online.Empty() {
		return farm.CPUSet{}, false
	}
	for _, vcpu := range vcpus {
		pin := d.VCPUPins[vcpu]
		if pin.Empty() || h.Topology.Online.Minus(pin).Empty() {
			return farm.CPUSet{}, false
		}
		cpus = cpus.Or(pin)
	}
	return cpus, true
}

// confinedCPUs are the host CPUs of all vCPUs of a VM; ok is false where one of them may use all.
func confinedCPUs(h farm.HostFacts, d farm.Domain) (farm.CPUSet, bool) {
	return allowedCPUs(h, d, upTo(d.VCPUs))
}

func upTo(n int) []int {
	out := make([]int, max(n, 0))
	for i := range out {
		out[i] = i
	}
	return out
}

// unpinnedCPUs are the CPUs that no vCPU of any VM is pinned to.
func unpinnedCPUs(h farm.HostFacts) farm.CPUSet {
	free := h.Topology.Online
	for _, d := range h.Domains {
		free = free.Minus(pinsOf(d, farm.CPURange(0, d.VCPUs)))
	}
	return free
}

// serviceCPUs are the CPUs without pinned vCPUs for QEMU's own threads of a VM: those of a node of the VM where it has
// some.
func serviceCPUs(h farm.HostFacts, d farm.Domain) farm.CPUSet {
	free := unpinnedCPUs(h)
	own := pinsOf(d, farm.CPURange(0, d.VCPUs))
	for _, n := range h.Topology.Nodes {
		if here := free.And(n.CPUs); !here.Empty() && !own.And(n.CPUs).Empty() {
			return here
		}
	}
	return free
}

// nodesOf are the IDs of the nodes of some CPUs.
func nodesOf(t farm.Topology, cpus farm.CPUSet) farm.CPUSet {
	var ids []int
	for _, n := range t.Nodes {
		if !n.CPUs.And(cpus).Empty() {
			ids = append(ids, n.ID)
		}
	}
	return farm.NewCPUSet(ids...)
}

// cellBinding is how a guest cell's memory is bound: by itself, or with the whole VM.
func cellBinding(d farm.Domain, cell farm.DomainCell) (mode string, nodes farm.CPUSet) {
	if !cell.Nodes.Empty() {
		return cell.Mode, cell.Nodes
	}
	if slices.ContainsFunc(d.Cells, func(c farm.DomainCell) bool { return !c.Nodes.Empty() }) && !d.WholeBound {
		return "", farm.CPUSet{} // only other cells are bound
	}
	return d.MemoryMode, d.MemoryNodes
}

// boundPart is a VM, or one guest cell of it, whose memory is bound to nodes.
type boundPart struct {
	what, mode string // "guest cell 0"; "strict"
	element    string // that binds it
	vcpus      []int
	memory     farm.Bytes
	nodes      farm.CPUSet
}

// boundParts returns the guest cells of a VM where any of them is bound by itself, and else the whole VM.
func boundParts(d farm.Domain) []boundPart {
	if !slices.ContainsFunc(d.Cells, func(c farm.DomainCell) bool { return !c.Nodes.Empty() }) {
		if d.MemoryNodes.Empty() {
			return nil
		}
		return []boundPart{{"the VM", d.MemoryMode, "numatune/memory", upTo(d.VCPUs), d.Memory, d.MemoryNodes}}
	}
	var out []boundPart
	for id, cell := range d.Cells {
		mode, nodes := cellBinding(d, cell)
		if !nodes.Empty() && !cell.VCPUs.Empty() { // a cell may have memory only
			out = append(out, boundPart{fmt.Sprintf("guest cell %d", id), mode,
				fmt.Sprintf("numatune/memnode[cellid=%d]", id), cell.VCPUs.List(), cell.Memory, nodes})
		}
	}
	return out
}

// bindTo is the edit that binds the part to nodes, in the mode that it has.
func (p boundPart) bindTo(d farm.Domain, nodes farm.CPUSet) Edit {
	e := set(d, p.element, "mode", p.mode, "nodeset", nodes.String())
	if d.MemoryAuto {
		e.Set["placement"] = "static" // libvirt ignores the nodeset otherwise
	}
	return e
}

// lostNodes are the nodes of a set that memory cannot be bound to: those that the host does not have, and those
// without memory. Both are empty where the host does not tell.
func lostNodes(h farm.HostFacts, nodes farm.CPUSet) (absent, empty farm.CPUSet) {
	if len(h.Topology.Nodes) == 0 {
		return absent, empty
	}
	for id := range nodes.All() {
		i := slices.IndexFunc(h.Topology.Nodes, func(n farm.Node) bool { return n.ID == id })
		switch {
		case i < 0 && !hasNode(h, id):
			absent = absent.Or(farm.NewCPUSet(id))
		case i >= 0 && h.Topology.Nodes[i].Memory == 0 && memoryNodes(h.Topology) > 0:
			empty = empty.Or(farm.NewCPUSet(id))
		}
	}
	return absent, empty
}

// memoryNodes counts the nodes that have memory.
func memoryNodes(t farm.Topology) int {
	n := 0
	for _, node := range t.Nodes {
		if node.Memory > 0 {
			n++
		}
	}
	return n
}

// cpuNodes are the nodes that have CPUs.
func cpuNodes(t farm.Topology) []farm.Node {
	return slices.DeleteFunc(slices.Clone(t.Nodes), func(n farm.Node) bool { return n.CPUs.Empty() })
}

// largestNode is the most CPUs and the most memory that one node has.
func largestNode(t farm.Topology) (cpus int, memory farm.Bytes) {
	for _, n := range t.Nodes {
		cpus, memory = max(cpus, n.CPUs.Len()), max(memory, n.Memory)
	}
	return cpus, memory
}

// fitsNode reports whether a VM is no larger than a node of the host, as far as the host tells.
func fitsNode(t farm.Topology, d farm.Domain) bool {
	cpus, memory := largestNode(t)
	return d.VCPUs <= cpus && (memory == 0 || d.Memory <= memory)
}

// dataDisks are the disks that a guest writes to.
func dataDisks(d farm.Domain) []farm.DomainDisk {
	return slices.DeleteFunc(slices.Clone(d.Disks), func(k farm.DomainDisk) bool {
		return k.Device != "disk" ||
			k.ReadOnly
	})
}

// machineVersion reads the version of QEMU that a machine type is of: "pc-q35-7.2". Those of distributions count on
// their own.
func machineVersion(machine string) (major, minor int, ok bool) {
	for _, prefix := range []string{"pc-q35-", "pc-i440fx-", "pc-"} {
		if rest, found := strings.CutPrefix(machine, prefix); found {
			return versionOf(rest)
		}
	}
	return 0, 0, false
}

// cellsXML are n guest cells of equal size, as far as that goes: contiguous vCPUs, and memory that 2 MiB pages can
// hold.
func cellsXML(vcpus int, memory farm.Bytes, n int) string {
	var b strings.Builder
	b.WriteString("<numa>")
	cpu, kib := 0, uint64(memory/farm.KiB)
	const page = uint64(2 * farm.MiB / farm.KiB)
	for i := range n {
		end, size := vcpus*(i+1)/n, kib/uint64(n-i)
		if i < n-1 {
			size -= size % page
		}
		fmt.Fprintf(&b, "<cell id='%d' cpus='%s' memory='%d' unit='KiB'/>", i, farm.CPURange(cpu, end), size)
		cpu, kib = end, kib-size
	}
	b.WriteString("</numa>")
	return b.String()
}

// number names one CPU or several: "vCPU 3", "CPUs 0-7".
func number(what string, set farm.CPUSet) string {
	if set.Len() != 1 {
		what += "s"
	}
	return what + " " + set.String()
}

// few lists names, at most five of them.
func few(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(len(names)-most) + " more"
	}
	return strings.Join(names, ", ")
}

// splitCores are the guest cores, as sets of vCPUs, whose threads are pinned to more than one host core.
func splitCores(t farm.Topology, d farm.Domain, threads int) []farm.CPUSet {
	core := coreOf(t)
	var out []farm.CPUSet
	for first := 0; first+threads <= d.VCPUs; first += threads {
		vcpus := farm.CPURange(first, first+threads)
		seen := map[int]bool{}
		for vcpu := range vcpus.All() {
			for cpu := range d.VCPUPins[vcpu].All() {
				if c, ok := core[cpu]; ok {
					seen[c] = true
				}
			}
		}
		if len(seen) > 1 {
			out = append(out, vcpus)
		}
	}
	return out
}

// sharedCore finds two vCPUs that are pinned to different threads of one core.
func sharedCore(t farm.Topology, d farm.Domain) (farm.CPUSet, bool) {
	core := coreOf(t)
	first := map[int]int{}
	for vcpu := range d.VCPUs {
		for cpu := range d.VCPUPins[vcpu].All() {
			c, known := core[cpu]
			if other, taken := first[c]; known && taken && !d.VCPUPins[other].Has(cpu) {
				return farm.NewCPUSet(other, vcpu), true
			}
			if known {
				first[c] = vcpu
			}
		}
	}
	return farm.CPUSet{}, false
}

// coreOf gives each CPU the index of its core.
func coreOf(t farm.Topology) map[int]int {
	out := map[int]int{}
	for i, c := range t.Cores {
		for cpu := range c.Threads.All() {
			out[cpu] = i
		}
	}
	return out
}

// pinsOf are the host CPUs of some vCPUs.
func pinsOf(d farm.Domain, vcpus farm.CPUSet) farm.CPUSet {
	var out farm.CPUSet
	for vcpu := range vcpus.All() {
		out = out.Or(d.VCPUPins[vcpu])
	}
	return out
}

// byCore sorts vCPUs so that those which are pinned to one host core stand together.
func byCore(t farm.Topology, d farm.Domain, vcpus []int) []int {
	core := coreOf(t)
	place := func(vcpu int) (of, cpu int) {
		for cpu := range d.VCPUPins[vcpu].All() {
			return core[cpu], cpu
		}
		return 0, 0
	}
	out := slices.Clone(vcpus)
	slices.SortStableFunc(out, func(a, b int) int {
		coreA, cpuA := place(a)
		coreB, cpuB := place(b)
		return cmp.Or(coreA-coreB, cpuA-cpuB)
	})
	return out
}

// pinEdits are the edits from a VM's pins to others.
func pinEdits(d, next farm.Domain) []Edit {
	var out []Edit
	for vcpu := range next.VCPUs {
		if cpus := next.VCPUPins[vcpu]; !cpus.Equal(d.VCPUPins[vcpu]) && !cpus.Empty() {
			out = append(out, pin(d, vcpu, cpus))
		}
	}
	return out
}

// pinsText lists pins that differ from a VM's: "vCPU 1 to CPU 4".
func pinsText(d, next farm.Domain) string {
	var parts []string
	for vcpu := range next.VCPUs {
		if cpus := next.VCPUPins[vcpu]; !cpus.Equal(d.VCPUPins[vcpu]) && !cpus.Empty() {
			parts = append(parts, fmt.Sprintf("vCPU %d to %s", vcpu, number("CPU", cpus)))
		}
	}
	return strings.Join(parts, ", ")
}
