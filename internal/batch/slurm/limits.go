package slurm

import (
	"strings"

	"github.com/grange-project/grange/internal/batch/limits"
)

// Where the figures come from.
const (
	largeGuide = "Slurm: Large Cluster Administration Guide; High Throughput Computing Administration Guide"
	confManual = "slurm.conf(5)"
)

// masterLimits are what the master needs.
var masterLimits = limits.System{Daemons: []string{"slurmctld"},
	Conf: []string{"etc/slurm/slurm.conf", "etc/slurm-llnl/slurm.conf"}, Line: cloudLine,
	Rules: []limits.Rule{
		{ID: "open-files", What: "open files of slurmctld", Severity: limits.Fails,
			Found:   limits.Process("Max open files"),
			Needed:  func(f limits.Fleet) int64 { return int64(max(8192, 2*f.Nodes()+4096)) },
			Formula: "2 × nodes + 4096, at least 8192", Source: largeGuide,
			Fix: "LimitNOFILE=NEEDED in slurmctld's unit"},
		{ID: "MaxJobCount", What: "jobs that slurmctld keeps", Severity: limits.Fails,
			Found:   limits.Setting("MaxJobCount", 10000),
			Needed:  func(f limits.Fleet) int64 { return int64(f.Jobs + f.Jobs/5) },
			Formula: "1.2 × jobs: those that ended stay for MinJobAge", Source: confManual,
			Fix: "MaxJobCount=NEEDED, and restart slurmctld"},
		{ID: "MessageTimeout", What: "seconds for an answer", Severity: limits.Slow,
			Found: limits.Setting("MessageTimeout", 10), When: limits.Many,
			Needed:  func(f limits.Fleet) int64 { return int64(min(10+f.Nodes()/100, 100)) },
			Formula: "10 + nodes / 100, at most 100", Source: limits.Counted, Fix: "MessageTimeout=NEEDED"},
		{ID: "SlurmdTimeout", What: "seconds until a silent node is down", Severity: limits.Fails,
			Found:   limits.Setting("SlurmdTimeout", 300),
			Needed:  func(f limits.Fleet) int64 { return int64(max(120, f.Nodes()/20)) },
			Formula: "nodes / 20 (all are asked within a third of it), at least 120", Source: confManual,
			Fix: "SlurmdTimeout=NEEDED"},
		{ID: "TreeWidth", What: "nodes that slurmctld talks to directly", Severity: limits.Fails,
			Found:   limits.Setting("TreeWidth", 16),
			When:    func(f limits.Fleet, m limits.Master) bool { return f.VMs > 0 || m.Cloud },
			Needed:  limits.Always(65533),
			Formula: "all of them: nodes in VMs cannot pass on what is for others they do not know",
			Source:  confManual + ", TreeWidth and cloud nodes", Fix: "TreeWidth=NEEDED"},
		{ID: "SlurmctldPort", What: "ports on which slurmctld listens", Severity: limits.Slow,
			Found: portCount, When: limits.Many,
			Needed:  func(f limits.Fleet) int64 { return int64(min(2+f.Nodes()/1000, 8)) },
			Formula: "2 + nodes / 1000, at most 8", Source: largeGuide,
			Fix: "SlurmctldPort=6817-6824 (NEEDED or more)"},
		{ID: "max_rpc_cnt", What: "requests at which scheduling gives way", Severity: limits.Slow,
			Found: limits.Among("SchedulerParameters", "max_rpc_cnt", 0),
			When:  func(f limits.Fleet, _ limits.Master) bool { return f.Jobs > 5000 }, Needed: limits.Always(64),
			Formula: "some: 0 never gives way", Source: largeGuide, Fix: "SchedulerParameters=max_rpc_cnt=150"},
		{ID: "bf_max_job_test", What: "jobs that backfill looks at", Severity: limits.Slow,
			Found:   limits.Among("SchedulerParameters", "bf_max_job_test", 500),
			Needed:  func(f limits.Fleet) int64 { return int64(min(max(f.Jobs/20, 100), 5000)) },
			Formula: "jobs / 20, 100 to 5000",
			Source:  confManual, Fix: "SchedulerParameters=bf_max_job_test=NEEDED,bf_continue"},
		{ID: "sched_interval", What: "seconds between full looks at the queue", Severity: limits.Slow,
			Found: limits.Among("SchedulerParameters", "sched_interval", 60), Most: true,
			When: func(f limits.Fleet, _ limits.Master) bool { return f.VMs > 0 }, Needed: limits.Always(10),
			Formula: "a job that waits for a new VM is looked at then only", Source: confManual,
			Fix: "SchedulerParameters=sched_interval=NEEDED"},
	}}

// cloudLine notes that there are CLOUD nodes.
func cloudLine(m *limits.Master, line string) {
	if strings.Contains(strings.ToUpper(line), "STATE=CLOUD") {
		m.Cloud = true
	}
}

// portCount is of SlurmctldPort=6817-6820.
func portCount(m limits.Master) (int64, bool) {
	first, last, ok := strings.Cut(m.Settings["slurmctldport"], "-")
	if !ok {
		return 1, len(m.Settings) > 0
	}
	a, ok1 := limits.Seconds(first)
	b, ok2 := limits.Seconds(last)
	return b - a + 1, ok1 && ok2 && b >= a
}
