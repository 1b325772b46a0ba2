package pbs

import (
	"strings"

	"github.com/grange-project/grange/internal/batch/limits"
)

const guide = "PBS Professional Administrator's Guide"

// masterLimits are what the master needs.
var masterLimits = limits.System{Daemons: []string{"pbs_server.bin", "pbs_server"}, Rules: []limits.Rule{
	{ID: "open-files", What: "open files of pbs_server", Severity: limits.Fails,
		Found:   limits.Process("Max open files"),
		Needed:  func(f limits.Fleet) int64 { return int64(2*f.Nodes() + 1024) },
		Formula: "2 × nodes + 1024", Source: limits.Counted,
		Fix: "ulimit -n NEEDED in pbs_init.d, or LimitNOFILE=NEEDED"},
	{ID: "scheduler_iteration", What: "seconds between looks at the queue", Severity: limits.Slow,
		Found: limits.Setting("scheduler_iteration", 600), Most: true, Needed: limits.Always(600),
		Formula: "600, the default; events start one as well", Source: guide,
		Fix: "qmgr -c 'set server scheduler_iteration = NEEDED'"},
	{ID: "job_history_duration", What: "seconds for which ended jobs stay", Severity: limits.Slow,
		Found: limits.Setting("job_history_duration", 1209600), Most: true,
		When: func(f limits.Fleet, m limits.Master) bool {
			return f.Jobs > 20000 && strings.EqualFold(m.Settings["job_history_enable"], "true")
		}, Needed: limits.Always(86400), Formula: "a day with many jobs: each stays in memory", Source: guide,
		Fix: "qmgr -c 'set server job_history_duration = 24:00:00'"},
}}
