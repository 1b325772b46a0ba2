package tuning

import (
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
		vmTypeQEMU(), vmCPUModel(), vmPassthroughOnService(), vmTopologySockets(), vmLargerThanHost(),
		eptOffCentOS7Guest(),
		vmPVSpinlocks(), vmKVMClockOff(), vmHPET(), vmMachineOld(),
		// Where its CPUs run and where its memory is.
		vmPinOverlap(), vmRoamsDedicated(), vmPinOffline(), vmFloatsOnIsolated(), vmNotPinned(), vmPinSplitsSiblings(),
		vmPinsCrossNode(), vmCrossesL3(), vmDeviceOtherNode(), vmEmulatorOnVCPUs(), vmNoGuestNUMA(),
		vmCellsGapsOldQEMU(), vmMemoryUnbound(), vmMemoryOtherNode(),
		vmNoHugePages(), vmPagesMissing(), vmPagesCells(), vmBalloonHugePages(),
		// Its disks and networks.
		vmNICModel(), vmDiskBus(), vmDiskCacheCompute(), vmDiskCacheService(), vmDiskIONative(),
		vmNoIOThread(), vmQueues(),
		vmQcow2Cache(), vmQcow2Copies(),
		// Seen from inside.
		guestOneCPU(), guestCPUGeneric(), guestTopologySockets(), guestOneNode(), guestClockSource(), guestSteal(),
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
