package main

import "strings"

// The keys that APEL's messages may have, and must have, by its message formats: individual job records 0.3, cloud
// records 0.4.

func gridKeys() (mandatory []string, known map[string]bool) {
	return strings.Fields("Site LocalJobId WallDuration CpuDuration StartTime EndTime"), words("Site SubmitHost " +
		"MachineName Queue LocalJobId LocalUserId GlobalUserName FQAN VO VOGroup VORole WallDuration CpuDuration " +
		"Processors NodeCount StartTime EndTime InfrastructureDescription InfrastructureType MemoryReal " +
		"MemoryVirtual ServiceLevelType ServiceLevel")
}

func cloudKeys() (mandatory []string, known map[string]bool) {
	return strings.Fields("VMUUID SiteName"), words("RecordCreateTime VMUUID SiteName CloudComputeService MachineName " +
		"LocalUserId LocalGroupId GlobalUserName FQAN Status StartTime EndTime SuspendDuration WallDuration " +
		"CpuDuration CpuCount NetworkType NetworkInbound NetworkOutbound PublicIPCount Memory Disk BenchmarkType " +
		"Benchmark StorageRecordId ImageId CloudType")
}

func words(text string) map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(text) {
		set[word] = true
	}
	return set
}
