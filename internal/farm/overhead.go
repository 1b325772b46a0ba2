package farm

// TranslationCache is how much memory QEMU may fill with translated code when it emulates a processor. By itself QEMU
// takes an eighth of the host's memory, up to 1 GiB, which no batch job's limit has room for.
const TranslationCache = 64 * MiB

// What a VM costs its host beside its guest's memory, as far as its control group is charged for it.
//
// Measured, and held to by e2e/vm's TestBatchJob: QEMU 7.2, emulating, with all of the guest's memory touched. Under
// KVM the same as KubeVirt found and reserves (pkg/virt-controller/services, GetMemoryOverhead): 30 MiB for QEMU, 8 MiB
// for each vCPU and I/O thread, a 512th of the guest's memory for page tables. Doubled where ours have more to do: page
// tables are there twice, for the host and for the guest (EPT, NPT), and disks are written through the page cache,
// which needs room to be written back from.
const (
	needOfQEMU    = 64 * MiB
	needOfVCPU    = 8 * MiB
	needOfMemory  = 256 // the guest's memory divided by this
	needOfIOQueue = 8 * MiB
)

// NeedOfWrapper is what `grange exec`, in the job's place, costs a job whose batch system adds up the memory of its
// processes, program text and all, as Grid Engine does. A control group is charged for much less.
const NeedOfWrapper = 24 * MiB

// Need is what a VM costs its host beside its guest's memory.
func Need(guest Bytes, vcpus int, emulated bool) Bytes {
	need := needOfQEMU + needOfIOQueue + Bytes(max(vcpus, 1))*needOfVCPU + (guest+needOfMemory-1)/needOfMemory
	if emulated {
		need += TranslationCache
	}
	return need
}

// GuestWithin is the largest guest, in whole MiB, that costs its host no more than limit all in all; 0 where limit is
// less than any VM needs.
func GuestWithin(limit Bytes, vcpus int, emulated bool) Bytes {
	fixed := Need(0, vcpus, emulated)
	if limit <= fixed {
		return 0
	}
	guest := Bytes(uint64(limit-fixed)/(needOfMemory+1)*needOfMemory) / MiB * MiB
	for guest > 0 && guest+Need(guest, vcpus, emulated) > limit {
		guest -= MiB
	}
	for guest+MiB+Need(guest+MiB, vcpus, emulated) <= limit {
		guest += MiB
	}
	return guest
}

// Of a small host's memory 1G would be a third, and the default shape fit none of its nodes.
const (
	mostReserved  = GiB
	reservedShare = 8 // one in so many
)

// AutoReserved returns how much memory an agent keeps for a host that has so much, unless it is configured.
func AutoReserved(memory Bytes) Bytes { return min(mostReserved, memory/reservedShare) }
