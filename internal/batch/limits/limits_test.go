package limits_test

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/batch/limits"
	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/farm"
)

// recorded is a master's host: what /proc/PID/limits and /proc/sys say.
func recorded(comm, files, processes string, sys map[string]string) fstest.MapFS {
	limits := "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             " + processes + "                " + processes + "                processes \n" +
		"Max open files            " + files + "                 524288               files     \n"
	tree := fstest.MapFS{
		"proc/7/comm":    {Data: []byte("sh\n")},
		"proc/88/comm":   {Data: []byte(comm + "\n")},
		"proc/88/limits": {Data: []byte(limits)},
	}
	for name, value := range sys {
		tree["proc/sys/"+name] = &fstest.MapFile{Data: []byte(value + "\n")}
	}
	return tree
}

var ample = map[string]string{"fs/file-max": "9223372036854775807", "net/core/somaxconn": "65535",
	"net/ipv4/tcp_max_syn_backlog": "65535", "net/ipv4/ip_local_port_range": "1024\t65535",
	"net/netfilter/nf_conntrack_max": "1048576", "kernel/pid_max": "4194304", "kernel/threads-max": "193000"}

// wrong are the checks that are not enough, worst first, by their IDs.
func wrong(t *testing.T, files fs.FS, system farm.BatchSystem, f limits.Fleet, conf ...string) (ids []string,
	all []limits.Result) {
	t.Helper()
	kind, _ := systems.Find(system)
	m, err := limits.Read(files, kind.Limits, conf)
	if err != nil {
		t.Fatal(err)
	}
	all = limits.Check(m, f)
	for _, r := range all {
		if !r.OK && !r.Unknown {
			ids = append(ids, r.ID)
		}
	}
	return ids, all
}

// TestTier1 is the LSF of a grid centre in 2010, as it was when VMs joined it, and as it was tuned.
func TestTier1(t *testing.T) {
	fleet := limits.Fleet{Hosts: 400, VMs: 3600, Jobs: 20000}
	before := "MBD_SLEEP_TIME = 60\nSBD_SLEEP_TIME = 30\nJOB_ACCEPT_INTERVAL = 1\n"
	after := "LSB_MAX_PROBE_SBD = 64\nLSB_MAX_JOB_DISPATCH_PER_SESSION=1024\nMBD_SLEEP_TIME = 30\nSBD_SLEEP_TIME = " +
		"15\nMAX_SBD_CONNS = 4400 # was 4200\nCONDENSE_PENDING_REASONS = Y\n"
	tree := recorded("mbatchd", "65536", "unlimited", ample)
	ids, _ := wrong(t, tree, farm.LSF, fleet, before)
	slices.Sort(ids)
	if want := []string{"CONDENSE_PENDING_REASONS", "LSB_MAX_JOB_DISPATCH_PER_SESSION", "LSB_MAX_PROBE_SBD",
		"MAX_SBD_CONNS", "MBD_SLEEP_TIME", "SBD_SLEEP_TIME"}; !slices.Equal(ids, want) {
		t.Errorf("before: %v, not %v", ids, want)
	}
	if ids, _ := wrong(t, tree, farm.LSF, fleet, after); len(ids) > 0 {
		t.Errorf("after: %v", ids)
	}
	if ids, _ := wrong(t, recorded("mbatchd", "1024", "unlimited", ample), farm.LSF, fleet, after); !slices.Equal(ids,
		[]string{"open-files"}) {
		t.Errorf("1024 open files: %v", ids)
	}
}

func TestMasters(t *testing.T) {
	with := func(key, value string) map[string]string {
		sys := maps.Clone(ample)
		sys[key] = value
		return sys
	}
	without := func(key string) map[string]string {
		sys := maps.Clone(ample)
		delete(sys, key)
		return sys
	}
	for name, c := range map[string]struct {
		system farm.BatchSystem
		tree   fstest.MapFS
		conf   string
		fleet  limits.Fleet
		want   []string
	}{
		"slurm, small": {farm.Slurm, recorded("slurmctld", "65536", "unlimited", ample), "ClusterName=a\n",
			limits.Fleet{Hosts: 100, Jobs: 5000}, nil},
		"slurm, large": {farm.Slurm, recorded("slurmctld", "8192", "unlimited", ample), "ClusterName=a\n",
			limits.Fleet{Hosts: 5000, Jobs: 50000}, []string{"open-files", "MaxJobCount", "MessageTimeout", "SlurmctldPort",
				"max_rpc_cnt", "bf_max_job_test"}},
		"slurm, large and tuned": {farm.Slurm, recorded("slurmctld", "65536", "unlimited", ample),
			"MaxJobCount=100000\nMessageTimeout=60\nSlurmctldPort=6810-6817\nSchedulerParameters=bf_continue,max_rpc_cnt=150,bf_max_job_test=5000\n", limits.Fleet{Hosts: 5000, Jobs: 50000}, nil},
		"slurm, nodes in VMs": {farm.Slurm, recorded("slurmctld", "65536", "unlimited", ample),
			"NodeName=vm[1-9] State=CLOUD\n", limits.Fleet{Hosts: 10, VMs: 90, Jobs: 100},
			[]string{"TreeWidth", "sched_interval"}},
		"a low backlog": {farm.Slurm,
			recorded("slurmctld", "65536", "unlimited", with("net/core/somaxconn", "128")), "a=b",
			limits.Fleet{Hosts: 100, Jobs: 100}, []string{"somaxconn"}},
		"few ports": {farm.Slurm,
			recorded("slurmctld", "65536", "unlimited", with("net/ipv4/ip_local_port_range", "32768 40000")), "a=b",
			limits.Fleet{Hosts: 100, Jobs: 100}, []string{"ports"}},
		"a full firewall": {farm.Slurm,
			recorded("slurmctld", "65536", "unlimited", with("net/netfilter/nf_conntrack_max", "32768")), "a=b",
			limits.Fleet{Hosts: 100, Jobs: 100}, []string{"conntrack"}},
		"no firewall": {farm.Slurm,
			recorded("slurmctld", "65536", "unlimited", without("net/netfilter/nf_conntrack_max")), "a=b",
			limits.Fleet{Hosts: 100, Jobs: 100}, nil},
		"few threads": {farm.Slurm, recorded("slurmctld", "65536", "1024 ", ample), "a=b",
			limits.Fleet{Hosts: 100, Jobs: 100}, []string{"processes"}},
		"condor, shadows": {farm.HTCondor, recorded("condor_schedd", "4096", "8192 ", ample),
			"MAX_JOBS_RUNNING = 20000\n", limits.Fleet{Hosts: 100, Jobs: 15000},
			[]string{"open-files", "processes", "SCHEDD_MAX_FILE_DESCRIPTORS"}},
		"grid engine, descriptors": {farm.GridEngine, recorded("sge_qmaster", "1024", "unlimited", ample),
			"schedule_interval  0:2:0\nload_report_time  00:00:40\n", limits.Fleet{Hosts: 900, Jobs: 100},
			[]string{"open-files", "schedule_interval"}},
		"grid engine, many reports": {farm.GridEngine, recorded("sge_qmaster", "65536", "unlimited", ample),
			"schedule_interval  0:0:15\nload_report_time  00:00:02\n", limits.Fleet{Hosts: 900, Jobs: 100},
			[]string{"load_report_time"}},
		"pbs": {farm.PBS, recorded("pbs_server.bin", "1024", "unlimited", ample),
			"set server scheduler_iteration = 600\nset server job_history_enable = True\n",
			limits.Fleet{Hosts: 900, Jobs: 30000}, []string{"open-files", "job_history_duration"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, all := wrong(t, c.tree, c.system, c.fleet, c.conf)
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, not %v", got, c.want)
			}
			for _, r := range all {
				if strings.Contains(r.Fix, "NEEDED") || r.What == "" || r.Formula == "" || r.Source == "" ||
					r.Fix == "" {
					t.Errorf("%+v", r)
				}
				if r.Unknown && r.ID != "processes" {
					t.Errorf("%s is not to be seen in a whole tree", r.ID)
				}
			}
		})
	}
}

// TestDynamicClients: made after public problem reports. Each event client of sge_qmaster keeps a connection.
func TestDynamicClients(t *testing.T) {
	for conf, want := range map[string]struct{ needed, formula string }{
		"qmaster_params               MAX_DYN_EC=5000\n":                         {"at least 5456", "MAX_DYN_EC (5000)"},
		"qmaster_params               ENABLE_X=1,max_dyn_ec=50\n":                {"at least 506", "MAX_DYN_EC (50)"},
		"qmaster_params               none\nqmaster_params  A=1 MAX_DYN_EC=70\n": {"at least 526", "MAX_DYN_EC (70)"},
		"qmaster_params               A=1, \\\n       MAX_DYN_EC=80\n":           {"at least 536", "MAX_DYN_EC (80)"},
		"qmaster_params               none\n":                                    {"at least 1456", "MAX_DYN_EC (1000, not set"},
	} {
		_, all := wrong(t, recorded("sge_qmaster", "65536", "unlimited", ample), farm.GridEngine,
			limits.Fleet{Hosts: 200, Jobs: 20000}, "#global:\n"+conf)
		i := slices.IndexFunc(all, func(r limits.Result) bool { return r.ID == "open-files" })
		if r := all[i]; r.Needed != want.needed || !strings.Contains(r.Formula, want.formula) {
			t.Errorf("%q: %s by %s, want %+v", conf, r.Needed, r.Formula, want)
		}
	}
}

func TestRuns(t *testing.T) {
	for comm, want := range map[string]farm.BatchSystem{"slurmctld": farm.Slurm, "mbatchd": farm.LSF,
		"pbs_server": farm.PBS, "bash": ""} {
		for _, k := range systems.All {
			if runs := k.Limits.Runs(recorded(comm, "1", "1", nil)); runs != (k.Name == want) {
				t.Errorf("%s: a master of %s runs: %v", comm, k.Name, runs)
			}
		}
	}
}

func TestReadFails(t *testing.T) {
	broken := recorded("slurmctld", "1", "1", ample)
	delete(broken, "proc/88/limits")
	known := slurm.Kind.Limits
	for name, read := range map[string]func() error{
		"nothing there":      func() error { _, err := limits.Read(fstest.MapFS{}, known, nil); return err },
		"limits not visible": func() error { _, err := limits.Read(broken, known, nil); return err },
	} {
		if e := new(farm.Error); !errors.As(read(), &e) || e.Code != farm.CodeBatchLimits {
			t.Errorf("%s: %v", name, read())
		}
	}
}
