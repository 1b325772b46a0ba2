package gridengine

import (
	"fmt"

	"github.com/grange-project/grange/internal/batch/limits"
)

const manuals = "Grid Engine: sge_conf(5), sched_conf(5), bootstrap(5)"

// masterLimits are what the master needs.
var masterLimits = limits.System{Daemons: []string{"sge_qmaster"}, Rules: []limits.Rule{
	{ID: "open-files", What: "open files of sge_qmaster", Severity: limits.Fails,
		Found: limits.Process("Max open files"),
		OfMaster: func(f limits.Fleet, m limits.Master) (int64, string) {
			clients, said := dynamicClients(m)
			return int64(f.Nodes()) + clients + 256, fmt.Sprintf("nodes + MAX_DYN_EC (%d%s) + 256", clients, said)
		},
		Source: manuals,
		Fix:    "ulimit -n NEEDED before sge_qmaster starts; it refuses clients beyond its limit"},
	{ID: "schedule_interval", What: "seconds between looks at the queue", Severity: limits.Slow,
		Found: limits.Setting("schedule_interval", -1), Most: true, Needed: limits.Always(15),
		Formula: "15: jobs of a minute waste a quarter otherwise", Source: manuals,
		Fix: "schedule_interval 0:0:NEEDED in qconf -msconf, with flush_submit_sec and flush_finish_sec 1"},
	{ID: "load_report_time", What: "seconds between load reports of a host", Severity: limits.Slow,
		Found:   limits.Setting("load_report_time", 40),
		Needed:  func(f limits.Fleet) int64 { return int64(max(10, f.Nodes()/50)) },
		Formula: "nodes / 50: fifty reports a second", Source: limits.Counted,
		Fix: "load_report_time NEEDED seconds in qconf -mconf"},
	{ID: "listener_threads", What: "threads that take requests", Severity: limits.Slow,
		Found: limits.Setting("listener_threads", 2), When: limits.Many, Needed: limits.Always(4),
		Formula: "4 for more than 1000 nodes",
		Source:  manuals, Fix: "listener_threads NEEDED in bootstrap"},
	{ID: "max_unheard", What: "seconds until a silent host is unknown", Severity: limits.Fails,
		Found:   limits.Setting("max_unheard", 300),
		Needed:  func(f limits.Fleet) int64 { return int64(max(60, f.Nodes()/20)) },
		Formula: "nodes / 20, at least 60", Source: limits.Counted,
		Fix: "max_unheard NEEDED seconds in qconf -mconf"},
}}

// defaultClients is MAX_DYN_EC of sge_conf(5) where qmaster_params does not set it.
const defaultClients = 1000

// dynamicClients returns how many event clients the master serves at a time, and what to say of a number that is not
// set. Each keeps a connection.
func dynamicClients(m limits.Master) (n int64, said string) {
	if n, ok := limits.Among("qmaster_params", "MAX_DYN_EC", 0)(m); ok && n > 0 {
		return n, ""
	}
	return defaultClients, fmt.Sprintf(", not set: %d `qsub -sync y` and DRMAA sessions at a time are the end",
		defaultClients)
}
