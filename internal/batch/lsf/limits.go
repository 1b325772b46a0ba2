package lsf

import (
	"strings"

	"github.com/grange-project/grange/internal/batch/limits"
)

// Where the figures come from.
const (
	tuningGuide = "IBM Spectrum LSF 10.1: Managing LSF performance; lsf.conf and lsb.params reference"
	tier1       = "LSF at a grid centre with 4000 nodes, reported at the WLCG workshop in July 2010"
)

// masterLimits are what the master needs.
var masterLimits = limits.System{Daemons: []string{"mbatchd"}, Rules: []limits.Rule{
	{ID: "open-files", What: "open files of mbatchd", Severity: limits.Fails,
		Found:   limits.Process("Max open files"),
		Needed:  func(f limits.Fleet) int64 { return sbdConnections(f) + 1024 },
		Formula: "MAX_SBD_CONNS + 1024", Source: tuningGuide, Fix: "ulimit -n NEEDED before lsf_daemons start"},
	{ID: "MBD_SLEEP_TIME", What: "seconds between dispatches", Severity: limits.Slow,
		Found: limits.Setting("MBD_SLEEP_TIME", 10), Most: true, Needed: limits.Always(30),
		Formula: "30, which was 60",
		Source:  tier1, Fix: "MBD_SLEEP_TIME=NEEDED in lsb.params"},
	{ID: "SBD_SLEEP_TIME", What: "seconds between looks at jobs", Severity: limits.Slow,
		Found: limits.Setting("SBD_SLEEP_TIME", 7), Most: true, Needed: limits.Always(15),
		Formula: "15, which was 30",
		Source:  tier1, Fix: "SBD_SLEEP_TIME=NEEDED in lsb.params"},
	{ID: "JOB_ACCEPT_INTERVAL", What: "dispatches that a host waits between two jobs", Severity: limits.Slow,
		Found: limits.Setting("JOB_ACCEPT_INTERVAL", 0), Most: true, Needed: limits.Always(1),
		Formula: "1 × MBD_SLEEP_TIME: 30 s, which were 60", Source: tier1,
		Fix: "JOB_ACCEPT_INTERVAL=NEEDED in lsb.params"},
	{ID: "LSB_MAX_PROBE_SBD", What: "hosts that mbatchd probes at a time", Severity: limits.Slow,
		Found: limits.Setting("LSB_MAX_PROBE_SBD", 20), Needed: maxProbe,
		Formula: "nodes / 64, 20 to 64; 64 at 4000 nodes",
		Source:  tier1 + "; " + tuningGuide, Fix: "LSB_MAX_PROBE_SBD=NEEDED in lsf.conf"},
	{ID: "LSB_MAX_JOB_DISPATCH_PER_SESSION", What: "jobs that are dispatched at a time", Severity: limits.Slow,
		Found:   limits.Setting("LSB_MAX_JOB_DISPATCH_PER_SESSION", 300),
		Needed:  func(f limits.Fleet) int64 { return int64(min(max(f.Nodes()/4, 300), 1024)) },
		Formula: "nodes / 4, 300 to 1024; 1024 at 4000 nodes", Source: tier1,
		Fix: "LSB_MAX_JOB_DISPATCH_PER_SESSION=NEEDED in lsf.conf"},
	{ID: "MAX_SBD_CONNS", What: "connections between mbatchd and the hosts", Severity: limits.Fails,
		Found: limits.Setting("MAX_SBD_CONNS", 64), Needed: sbdConnections,
		Formula: "nodes + 2 × LSB_MAX_PROBE_SBD + 200; 4200 at 4000 nodes were too few by that",
		Source:  tuningGuide + "; " + tier1, Fix: "MAX_SBD_CONNS=NEEDED in lsb.params"},
	{ID: "CONDENSE_PENDING_REASONS", What: "one reason for all hosts on which a job cannot run",
		Severity: limits.Slow, Found: yes("CONDENSE_PENDING_REASONS"), When: limits.Many, Needed: limits.Always(1),
		Formula: "Y (1) with many hosts", Source: tier1, Fix: "CONDENSE_PENDING_REASONS=Y in lsb.params"},
}}

func maxProbe(f limits.Fleet) int64 { return int64(min(max(f.Nodes()/64, 20), 64)) }

func sbdConnections(f limits.Fleet) int64 { return int64(f.Nodes()) + 2*maxProbe(f) + 200 }

func yes(key string) func(limits.Master) (int64, bool) {
	return func(m limits.Master) (int64, bool) {
		if strings.EqualFold(m.Settings[strings.ToLower(key)], "y") {
			return 1, true
		}
		return 0, len(m.Settings) > 0
	}
}
