package tuning

import "slices"

// hostRules are about the host itself: kernel, KVM, memory, processors, daemons, network.
func hostRules() []Rule {
	return slices.Concat(kvmRules(), ksmRules(), pageRules(), memoryRules(), processorRules(), daemonRules(),
		networkRules())
}

func kvmRules() []Rule {
	return []Rule{eptOff(), eptOffNextLoad(), kvmNotLoaded(), kvmMissing(), nestedOn(), nxHugePages(), vmStartGrace(),
		haltPollLong(), hostIsVM(), qemuOld()}
}

func ksmRules() []Rule {
	return []Rule{ksmOnCompute(), ksmOffNoHeadroom(), ksmOffMergedRemnants(), ksmtunedRunning(), ksmAcrossNodes(),
		hostSwapWithKSM()}
}

func pageRules() []Rule {
	return []Rule{hugepagesNone(), hugepagesUneven(), hugepagesShort(), hugepagesLate(), hugepages1GMissing(),
		hugepagesTooMany(), hugepagesSurplus(), hugepagesUnused(), shapesMissPools(), hugetlbUnaccounted(),
		hugetlbfsUnmounted(), thpPolicy(), thpDefragOff(), bootLineConflict(), tuned1189868()}
}

func memoryRules() []Rule {
	return []Rule{hostSwapInUse(), swappinessHigh(), memoryOvercommit(), overcommitStrict(), memoryPressure(), psiOff(),
		iowaitHigh(), numadWithGuestNUMA(), numaBalancingWithPinning(), zoneReclaim(), unequalNodeMemory(),
		memorylessNode(), numaNodesOverlap()}
}

func processorRules() []Rule {
	return []Rule{cpuOvercommit(), governorSlow(), cstatesDeep(), smtOff(), smtSharedByVMs(), mitigationsOff(),
		microcodeOld(), cpusOffline(), isolcpusUnused(), clocksourceNotTSC()}
}

func daemonRules() []Rule {
	return []Rule{powerDaemonsConflict(), tunedOverrides(), hostOOMDaemon(), coreFilesOn(), ioScheduler()}
}

func networkRules() []Rule { return []Rule{vhostNetMissing(), bridgeMTUDiffers()} }
