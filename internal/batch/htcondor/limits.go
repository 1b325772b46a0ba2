package htcondor

import (
	"github.com/grange-project/grange/internal/batch/limits"
)

const manual = "HTCondor manual: configuration macros; HowToManageLargeCondorPools"

// masterLimits are what the master needs.
var masterLimits = limits.System{Daemons: []string{"condor_schedd"}, Rules: []limits.Rule{
	{ID: "open-files", What: "open files of condor_schedd", Severity: limits.Fails,
		Found: limits.Process("Max open files"), Needed: func(f limits.Fleet) int64 { return int64(3*f.Jobs + 1000) },
		Formula: "3 × jobs + 1000", Source: manual, Fix: "SCHEDD_MAX_FILE_DESCRIPTORS = NEEDED"},
	{ID: "processes", What: "processes of condor_schedd: a shadow for each running job", Severity: limits.Fails,
		Found: limits.Process("Max processes"), Needed: func(f limits.Fleet) int64 { return int64(f.Jobs + 1000) },
		Formula: "jobs + 1000", Source: manual, Fix: "LimitNPROC=NEEDED in condor's unit"},
	{ID: "pid-max", What: "process numbers", Severity: limits.Fails, Found: limits.Kernel("kernel/pid_max"),
		Needed:  func(f limits.Fleet) int64 { return int64(max(32768, 2*f.Jobs)) },
		Formula: "2 × jobs, at least 32768", Source: manual, Fix: "sysctl kernel.pid_max=NEEDED"},
	{ID: "MAX_JOBS_RUNNING", What: "jobs that a schedd runs", Severity: limits.Fails,
		Found: limits.Setting("MAX_JOBS_RUNNING", 10000), Needed: func(f limits.Fleet) int64 { return int64(f.Jobs) },
		Formula: "jobs", Source: manual, Fix: "MAX_JOBS_RUNNING = NEEDED, or a second schedd"},
	{ID: "SCHEDD_MAX_FILE_DESCRIPTORS", What: "open files that the schedd asks for", Severity: limits.Fails,
		Found:  limits.Setting("SCHEDD_MAX_FILE_DESCRIPTORS", 4096),
		Needed: func(f limits.Fleet) int64 { return int64(3*f.Jobs + 1000) }, Formula: "3 × jobs + 1000",
		Source: manual,
		Fix:    "SCHEDD_MAX_FILE_DESCRIPTORS = NEEDED"},
	{ID: "SHARED_PORT_MAX_FILE_DESCRIPTORS", What: "open files of the shared port", Severity: limits.Fails,
		Found:   limits.Setting("SHARED_PORT_MAX_FILE_DESCRIPTORS", 20000),
		Needed:  func(f limits.Fleet) int64 { return int64(f.Nodes() + f.Jobs + 1000) },
		Formula: "nodes + jobs + 1000",
		Source:  manual, Fix: "SHARED_PORT_MAX_FILE_DESCRIPTORS = NEEDED"},
	{ID: "COLLECTOR_MAX_FILE_DESCRIPTORS", What: "sockets of the collector", Severity: limits.Fails,
		Found:   limits.Setting("COLLECTOR_MAX_FILE_DESCRIPTORS", 10240),
		Needed:  func(f limits.Fleet) int64 { return int64(2*f.Nodes() + 1000) },
		Formula: "2 × nodes + 1000: master and startd of each keep one", Source: manual,
		Fix: "COLLECTOR_MAX_FILE_DESCRIPTORS = NEEDED, or a tree of collectors"},
	{ID: "NEGOTIATOR_INTERVAL", What: "seconds between matchings", Severity: limits.Slow,
		Found: limits.Setting("NEGOTIATOR_INTERVAL", 60), Most: true, Needed: limits.Always(60), Formula: "60",
		Source: manual,
		Fix:    "NEGOTIATOR_INTERVAL = NEEDED"},
}}
