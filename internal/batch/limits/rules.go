package limits

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Where the figures come from.
const (
	slurmLarge = "Slurm: Large Cluster Administration Guide; High Throughput Computing Administration Guide"
	slurmConf  = "slurm.conf(5)"
	lsfTuning  = "IBM Spectrum LSF 10.1: Managing LSF performance; lsf.conf and lsb.params reference"
	lsfTier1   = "LSF at a grid centre with 4000 nodes, reported at the WLCG workshop in July 2010"
	condor     = "HTCondor manual: configuration macros; HowToManageLargeCondorPools"
	gridEngine = "Grid Engine: sge_conf(5), sched_conf(5), bootstrap(5)"
	pbs        = "PBS Professional Administrator's Guide"
	own        = "counted from how the daemon talks to its nodes"
)

func always(n int64) func(Fleet) int64 { return func(Fleet) int64 { return n } }

func many(f Fleet, _ Master) bool { return f.nodes() > 1000 }

// rules are all checks.
var rules = []rule{
	// Of the process.
	{id: "open-files", what: "open files of slurmctld", system: farm.Slurm, severity: Fails,
		found: process("Max open files"), needed: func(f Fleet) int64 { return whole(max(8192, 2*f.nodes()+4096)) },
		formula: "2 × nodes + 4096, at least 8192", source: slurmLarge, fix: "LimitNOFILE=NEEDED in slurmctld's unit"},
	{id: "open-files", what: "open files of sge_qmaster", system: farm.GridEngine, severity: Fails,
		found: process("Max open files"), needed: func(f Fleet) int64 { return whole(f.nodes() + 1000 + 256) },
		formula: "nodes + MAX_DYN_EC (1000) + 256", source: gridEngine,
		fix: "ulimit -n NEEDED before sge_qmaster starts; it refuses clients beyond its limit"},
	{id: "open-files", what: "open files of condor_schedd", system: farm.HTCondor, severity: Fails,
		found: process("Max open files"), needed: func(f Fleet) int64 { return whole(3*f.Jobs + 1000) },
		formula: "3 × jobs + 1000", source: condor, fix: "SCHEDD_MAX_FILE_DESCRIPTORS = NEEDED"},
	{id: "open-files", what: "open files of pbs_server", system: farm.PBS, severity: Fails,
		found: process("Max open files"), needed: func(f Fleet) int64 { return whole(2*f.nodes() + 1024) },
		formula: "2 × nodes + 1024", source: own, fix: "ulimit -n NEEDED in pbs_init.d, or LimitNOFILE=NEEDED"},
	{id: "open-files", what: "open files of mbatchd", system: farm.LSF, severity: Fails,
		found: process("Max open files"), needed: func(f Fleet) int64 { return sbdConnections(f) + 1024 },
		formula: "MAX_SBD_CONNS + 1024", source: lsfTuning, fix: "ulimit -n NEEDED before lsf_daemons start"},
	{id: "processes", what: "processes of condor_schedd: a shadow for each running job", system: farm.HTCondor,
		severity: Fails, found: process("Max processes"), needed: func(f Fleet) int64 { return whole(f.Jobs + 1000) },
		formula: "jobs + 1000", source: condor, fix: "LimitNPROC=NEEDED in condor's unit"},
	{id: "processes", what: "threads of the master", severity: Fails, found: process("Max processes"),
		when: func(_ Fleet, m Master) bool { return m.System != farm.HTCondor }, needed: always(4096),
		formula: "256 server threads, agents and clients", source: own, fix: "LimitNPROC=NEEDED in its unit"},
	// Of the kernel.
	{id: "file-max", what: "open files of the whole machine", severity: Fails, found: kernel("fs/file-max"),
		needed:  func(f Fleet) int64 { return whole(max(32832, 4*f.nodes()+3*f.Jobs+8192)) },
		formula: "4 × nodes + 3 × jobs + 8192, at least 32832", source: slurmLarge, fix: "sysctl fs.file-max=NEEDED"},
	{id: "somaxconn", what: "connections that wait to be accepted", severity: Slow, found: kernel("net/core/somaxconn"),
		needed:  func(f Fleet) int64 { return whole(min(max(1024, f.nodes()), 65535)) },
		formula: "all nodes at once, 1024 to 65535", source: slurmLarge, fix: "sysctl net.core.somaxconn=NEEDED"},
	{id: "syn-backlog", what: "connections that are being made", severity: Slow,
		found:   kernel("net/ipv4/tcp_max_syn_backlog"),
		needed:  func(f Fleet) int64 { return whole(min(max(2048, f.nodes()), 65535)) },
		formula: "all nodes at once, 2048 to 65535", source: slurmLarge,
		fix: "sysctl net.ipv4.tcp_max_syn_backlog=NEEDED"},
	{id: "ports", what: "local ports for outgoing connections", severity: Fails,
		found:   kernel("net/ipv4/ip_local_port_range"),
		needed:  func(f Fleet) int64 { return whole(min(max(28000, 4*f.nodes()), 64000)) },
		formula: "4 × nodes (TIME_WAIT holds each for a minute), 28000 to 64000", source: slurmLarge,
		fix: "sysctl net.ipv4.ip_local_port_range='1024 65535', and net.ipv4.ip_local_reserved_ports for the " +
			"daemons' own"},
	{id: "conntrack", what: "connections that the firewall follows", severity: Fails,
		found:   kernel("net/netfilter/nf_conntrack_max"),
		when:    func(_ Fleet, m Master) bool { _, ok := m.Kernel["net/netfilter/nf_conntrack_max"]; return ok },
		needed:  func(f Fleet) int64 { return whole(max(65536, 16*f.nodes()+4*f.Jobs)) },
		formula: "16 × nodes + 4 × jobs, at least 65536", source: own,
		fix: "sysctl net.netfilter.nf_conntrack_max=NEEDED"},
	{id: "pid-max", what: "process numbers", severity: Fails, found: kernel("kernel/pid_max"),
		needed: func(f Fleet) int64 { return whole(max(32768, 2*f.Jobs)) }, system: farm.HTCondor,
		formula: "2 × jobs, at least 32768", source: condor, fix: "sysctl kernel.pid_max=NEEDED"},
	{id: "threads-max", what: "threads of the whole machine", severity: Fails, found: kernel("kernel/threads-max"),
		needed: func(f Fleet) int64 { return whole(16384 + f.Jobs/4) }, formula: "16384 + jobs / 4", source: own,
		fix: "sysctl kernel.threads-max=NEEDED"},

	// Slurm.
	{id: "MaxJobCount", what: "jobs that slurmctld keeps", system: farm.Slurm, severity: Fails,
		found: setting("MaxJobCount", 10000), needed: func(f Fleet) int64 { return whole(f.Jobs + f.Jobs/5) },
		formula: "1.2 × jobs: those that ended stay for MinJobAge", source: slurmConf,
		fix: "MaxJobCount=NEEDED, and restart slurmctld"},
	{id: "MessageTimeout", what: "seconds for an answer", system: farm.Slurm, severity: Slow,
		found: setting("MessageTimeout", 10), when: many,
		needed:  func(f Fleet) int64 { return whole(min(10+f.nodes()/100, 100)) },
		formula: "10 + nodes / 100, at most 100", source: own, fix: "MessageTimeout=NEEDED"},
	{id: "SlurmdTimeout", what: "seconds until a silent node is down", system: farm.Slurm, severity: Fails,
		found: setting("SlurmdTimeout", 300), needed: func(f Fleet) int64 { return whole(max(120, f.nodes()/20)) },
		formula: "nodes / 20 (all are asked within a third of it), at least 120", source: slurmConf,
		fix: "SlurmdTimeout=NEEDED"},
	{id: "TreeWidth", what: "nodes that slurmctld talks to directly", system: farm.Slurm, severity: Fails,
		found: setting("TreeWidth", 16), when: func(f Fleet, m Master) bool { return f.VMs > 0 || m.Cloud },
		needed: always(65533), formula: "all of them: nodes in VMs cannot pass on what is for others they do not know",
		source: slurmConf + ", TreeWidth and cloud nodes", fix: "TreeWidth=NEEDED"},
	{id: "SlurmctldPort", what: "ports on which slurmctld listens", system: farm.Slurm, severity: Slow,
		found: portCount, when: many, needed: func(f Fleet) int64 { return whole(min(2+f.nodes()/1000, 8)) },
		formula: "2 + nodes / 1000, at most 8", source: slurmLarge, fix: "SlurmctldPort=6817-6824 (NEEDED or more)"},
	{id: "max_rpc_cnt", what: "requests at which scheduling gives way", system: farm.Slurm, severity: Slow,
		found: among("SchedulerParameters", "max_rpc_cnt", 0),
		when:  func(f Fleet, _ Master) bool { return f.Jobs > 5000 }, needed: always(64),
		formula: "some: 0 never gives way", source: slurmLarge, fix: "SchedulerParameters=max_rpc_cnt=150"},
	{id: "bf_max_job_test", what: "jobs that backfill looks at", system: farm.Slurm, severity: Slow,
		found:  among("SchedulerParameters", "bf_max_job_test", 500),
		needed: func(f Fleet) int64 { return whole(min(max(f.Jobs/20, 100), 5000)) }, formula: "jobs / 20, 100 to 5000",
		source: slurmConf, fix: "SchedulerParameters=bf_max_job_test=NEEDED,bf_continue"},
	{id: "sched_interval", what: "seconds between full looks at the queue", system: farm.Slurm, severity: Slow,
		found: among("SchedulerParameters", "sched_interval", 60), most: true,
		when: func(f Fleet, _ Master) bool { return f.VMs > 0 }, needed: always(10),
		formula: "a job that waits for a new VM is looked at then only", source: slurmConf,
		fix: "SchedulerParameters=sched_interval=NEEDED"},

	// LSF.
	{id: "MBD_SLEEP_TIME", what: "seconds between dispatches", system: farm.LSF, severity: Slow,
		found: setting("MBD_SLEEP_TIME", 10), most: true, needed: always(30), formula: "30, which was 60",
		source: lsfTier1, fix: "MBD_SLEEP_TIME=NEEDED in lsb.params"},
	{id: "SBD_SLEEP_TIME", what: "seconds between looks at jobs", system: farm.LSF, severity: Slow,
		found: setting("SBD_SLEEP_TIME", 7), most: true, needed: always(15), formula: "15, which was 30",
		source: lsfTier1, fix: "SBD_SLEEP_TIME=NEEDED in lsb.params"},
	{id: "JOB_ACCEPT_INTERVAL", what: "dispatches that a host waits between two jobs", system: farm.LSF, severity: Slow,
		found: setting("JOB_ACCEPT_INTERVAL", 0), most: true, needed: always(1),
		formula: "1 × MBD_SLEEP_TIME: 30 s, which were 60", source: lsfTier1,
		fix: "JOB_ACCEPT_INTERVAL=NEEDED in lsb.params"},
	{id: "LSB_MAX_PROBE_SBD", what: "hosts that mbatchd probes at a time", system: farm.LSF, severity: Slow,
		found: setting("LSB_MAX_PROBE_SBD", 20), needed: maxProbe, formula: "nodes / 64, 20 to 64; 64 at 4000 nodes",
		source: lsfTier1 + "; " + lsfTuning, fix: "LSB_MAX_PROBE_SBD=NEEDED in lsf.conf"},
	{id: "LSB_MAX_JOB_DISPATCH_PER_SESSION", what: "jobs that are dispatched at a time", system: farm.LSF,
		severity: Slow, found: setting("LSB_MAX_JOB_DISPATCH_PER_SESSION", 300),
		needed:  func(f Fleet) int64 { return whole(min(max(f.nodes()/4, 300), 1024)) },
		formula: "nodes / 4, 300 to 1024; 1024 at 4000 nodes", source: lsfTier1,
		fix: "LSB_MAX_JOB_DISPATCH_PER_SESSION=NEEDED in lsf.conf"},
	{id: "MAX_SBD_CONNS", what: "connections between mbatchd and the hosts", system: farm.LSF, severity: Fails,
		found: setting("MAX_SBD_CONNS", 64), needed: sbdConnections,
		formula: "nodes + 2 × LSB_MAX_PROBE_SBD + 200; 4200 at 4000 nodes were too few by that",
		source:  lsfTuning + "; " + lsfTier1, fix: "MAX_SBD_CONNS=NEEDED in lsb.params"},
	{id: "CONDENSE_PENDING_REASONS", what: "one reason for all hosts on which a job cannot run", system: farm.LSF,
		severity: Slow, found: yes("CONDENSE_PENDING_REASONS"), when: many, needed: always(1),
		formula: "Y (1) with many hosts", source: lsfTier1, fix: "CONDENSE_PENDING_REASONS=Y in lsb.params"},

	// Grid Engine.
	{id: "schedule_interval", what: "seconds between looks at the queue", system: farm.GridEngine, severity: Slow,
		found: setting("schedule_interval", -1), most: true, needed: always(15),
		formula: "15: jobs of a minute waste a quarter otherwise", source: gridEngine,
		fix: "schedule_interval 0:0:NEEDED in qconf -msconf, with flush_submit_sec and flush_finish_sec 1"},
	{id: "load_report_time", what: "seconds between load reports of a host", system: farm.GridEngine, severity: Slow,
		found: setting("load_report_time", 40), needed: func(f Fleet) int64 { return whole(max(10, f.nodes()/50)) },
		formula: "nodes / 50: fifty reports a second", source: own,
		fix: "load_report_time NEEDED seconds in qconf -mconf"},
	{id: "listener_threads", what: "threads that take requests", system: farm.GridEngine, severity: Slow,
		found: setting("listener_threads", 2), when: many, needed: always(4), formula: "4 for more than 1000 nodes",
		source: gridEngine, fix: "listener_threads NEEDED in bootstrap"},
	{id: "max_unheard", what: "seconds until a silent host is unknown", system: farm.GridEngine, severity: Fails,
		found: setting("max_unheard", 300), needed: func(f Fleet) int64 { return whole(max(60, f.nodes()/20)) },
		formula: "nodes / 20, at least 60", source: own, fix: "max_unheard NEEDED seconds in qconf -mconf"},

	// HTCondor.
	{id: "MAX_JOBS_RUNNING", what: "jobs that a schedd runs", system: farm.HTCondor, severity: Fails,
		found: setting("MAX_JOBS_RUNNING", 10000), needed: func(f Fleet) int64 { return whole(f.Jobs) },
		formula: "jobs", source: condor, fix: "MAX_JOBS_RUNNING = NEEDED, or a second schedd"},
	{id: "SCHEDD_MAX_FILE_DESCRIPTORS", what: "open files that the schedd asks for", system: farm.HTCondor,
		severity: Fails, found: setting("SCHEDD_MAX_FILE_DESCRIPTORS", 4096),
		needed: func(f Fleet) int64 { return whole(3*f.Jobs + 1000) }, formula: "3 × jobs + 1000", source: condor,
		fix: "SCHEDD_MAX_FILE_DESCRIPTORS = NEEDED"},
	{id: "SHARED_PORT_MAX_FILE_DESCRIPTORS", what: "open files of the shared port", system: farm.HTCondor,
		severity: Fails, found: setting("SHARED_PORT_MAX_FILE_DESCRIPTORS", 20000),
		needed: func(f Fleet) int64 { return whole(f.nodes() + f.Jobs + 1000) }, formula: "nodes + jobs + 1000",
		source: condor, fix: "SHARED_PORT_MAX_FILE_DESCRIPTORS = NEEDED"},
	{id: "COLLECTOR_MAX_FILE_DESCRIPTORS", what: "sockets of the collector", system: farm.HTCondor, severity: Fails,
		found:   setting("COLLECTOR_MAX_FILE_DESCRIPTORS", 10240),
		needed:  func(f Fleet) int64 { return whole(2*f.nodes() + 1000) },
		formula: "2 × nodes + 1000: master and startd of each keep one", source: condor,
		fix: "COLLECTOR_MAX_FILE_DESCRIPTORS = NEEDED, or a tree of collectors"},
	{id: "NEGOTIATOR_INTERVAL", what: "seconds between matchings", system: farm.HTCondor, severity: Slow,
		found: setting("NEGOTIATOR_INTERVAL", 60), most: true, needed: always(60), formula: "60", source: condor,
		fix: "NEGOTIATOR_INTERVAL = NEEDED"},

	// PBS.
	{id: "scheduler_iteration", what: "seconds between looks at the queue", system: farm.PBS, severity: Slow,
		found: setting("scheduler_iteration", 600), most: true, needed: always(600),
		formula: "600, the default; events start one as well", source: pbs,
		fix: "qmgr -c 'set server scheduler_iteration = NEEDED'"},
	{id: "job_history_duration", what: "seconds for which ended jobs stay", system: farm.PBS, severity: Slow,
		found: setting("job_history_duration", 1209600), most: true, when: func(f Fleet, m Master) bool {
			return f.Jobs > 20000 && strings.EqualFold(m.Settings["job_history_enable"], "true")
		}, needed: always(86400), formula: "a day with many jobs: each stays in memory", source: pbs,
		fix: "qmgr -c 'set server job_history_duration = 24:00:00'"},
}

func maxProbe(f Fleet) int64 { return whole(min(max(f.nodes()/64, 20), 64)) }

func sbdConnections(f Fleet) int64 { return whole(f.nodes()) + 2*maxProbe(f) + 200 }

func yes(key string) func(Master) (int64, bool) {
	return func(m Master) (int64, bool) {
		if strings.EqualFold(m.Settings[strings.ToLower(key)], "y") {
			return 1, true
		}
		return 0, len(m.Settings) > 0
	}
}

// portCount is of SlurmctldPort=6817-6820.
func portCount(m Master) (int64, bool) {
	first, last, ok := strings.Cut(m.Settings["slurmctldport"], "-")
	if !ok {
		return 1, len(m.Settings) > 0
	}
	a, ok1 := seconds(first)
	b, ok2 := seconds(last)
	return b - a + 1, ok1 && ok2 && b >= a
}
