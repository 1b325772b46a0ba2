package slurmlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/batch/slurm/setup"
	"github.com/grange-project/grange/slurm"
)

// KillWait is how long Slurm waits between TERM and KILL.
const KillWait = 5 * time.Second

func (l *Lab) cpus() int {
	if l.o.CPUs > 0 {
		return l.o.CPUs
	}
	return runtime.NumCPU()
}

// configure writes slurm.conf and those beside it. Everything is short and quick: a test waits for it.
func (l *Lab) configure() error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	accounting, storage := "JobAcctGatherType=jobacct_gather/linux\n", "AccountingStorageType=accounting_storage/none\n"
	processes := "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectTypeParameters=CR_CPU_Memory\n"
	if l.cgroups {
		processes = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\nSelectTypeParameters=CR_CPU_Memory\n"
		accounting = "JobAcctGatherType=jobacct_gather/cgroup\n"
	}
	if l.o.Accounting {
		storage = fmt.Sprintf(
			"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\nAccountingStoragePort=%d\nAccountingStoragePass=%s\n", l.ports.dbd(), l.path("munge/munge.socket"))
	}
	flags := "Alloc"
	if l.o.Contain {
		flags += ",Contain"
	}
	conf := strings.NewReplacer("$D", l.dir, "$HOST", host, "$NODES", strings.Join(l.nodes, ","), "$FLAGS", flags).Replace(`ClusterName=grange
SlurmctldHost=$HOST(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$D/munge/munge.socket
CredType=cred/munge
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=$D/run/slurmctld.pid
SlurmdPidFile=$D/run/slurmd.%n.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
PlugStackConfig=$D/etc/plugstack.conf
MailProg=/bin/true
SelectType=select/cons_tres
DefMemPerCPU=700
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
JobAcctGatherFrequency=1
PrologFlags=$FLAGS
RequeueExit=199
JobRequeue=1
UnkillableStepTimeout=60
EnforcePartLimits=ALL
PartitionName=main Nodes=$NODES Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
`) + fmt.Sprintf("SlurmctldPort=%d\nKillWait=%d\n", l.ports.ctld(), int(KillWait/time.Second)) + processes + accounting + storage
	for i, node := range l.nodes {
		conf += fmt.Sprintf("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=%d RealMemory=6000 "+
			"State=UNKNOWN\n", node, host, l.ports.slurmd(i), l.cpus())
	}
	switch {
	case l.o.NoPlugin:
	case l.o.Prolog == "":
		conf += "Prolog=" + l.path("bin/prolog") + "\n"
	default:
		conf += "Prolog=" + l.path("bin/site-prolog") + "\n"
	}
	// The key of a node or partition in Extra replaces nothing: what is said twice is an error of Slurm's, and a test
	// sees it.
	files := map[string]string{
		"etc/slurm.conf":     conf + l.o.Extra + "\n",
		"etc/cgroup.conf":    "CgroupPlugin=autodetect\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\nConstrainCores=yes\nConstrainRAMSpace=yes\n" + "ConstrainSwapSpace=no\nConstrainDevices=no\n",
		"etc/plugstack.conf": "include " + l.path("etc/plugstack.conf.d/*.conf") + "\n",
	}
	if l.release.Major > 22 { // 23.11 and later mount nothing, and refuse the word
		files["etc/cgroup.conf"] = strings.Replace(files["etc/cgroup.conf"], "CgroupAutomount=no\n", "", 1)
	}
	if !l.cgroups {
		files["etc/cgroup.conf"] = "CgroupPlugin=disabled\n"
		if l.release.Major < 23 {
			delete(files, "etc/cgroup.conf")
		}
	}
	if !l.o.NoPlugin {
		for name, text := range l.hooks() {
			files[name] = text
		}
		files["bin/site-prolog"] = l.o.Prolog + "exec " + l.path("bin/prolog") + "\n"
		// Where people submit there is another plugstack.conf, as on a site: what breaks on the host does not keep
		// sbatch from working.
		files["submit/slurm.conf"] = strings.Replace(files["etc/slurm.conf"], l.path("etc/plugstack.conf"),
			l.path("submit/plugstack.conf"), 1)
		if l.o.OCI { // where people submit nothing of grange is needed
			files["etc/slurm.conf"] += "Epilog=" + l.path("bin/epilog") + "\n"
			files["submit/slurm.conf"] += "Epilog=" + l.path("bin/epilog") + "\n" // slurmctld compares
			files["submit/plugstack.conf"] = ""
		} else {
			files["submit/plugstack.conf"] = fmt.Sprintf("optional %s catalogue=%s\n", l.path("submit/grange_spank.so"),
				l.path("etc/catalogue"))
			files["submit/slurm.conf"] += "CliFilterPlugins=lua\n"
			files["submit/cli_filter.lua"] = slurm.CLIFilter
		}
	}
	for name, text := range files {
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(name, "bin/") {
			mode = 0o755
		}
		// A job's epilog may be starting from the old file: the new one takes its place whole.
		part := l.path(name) + ".part"
		if err := errors.Join(os.WriteFile(part, []byte(text), mode), os.Rename(part, l.path(name))); err != nil {
			return err
		}
	}
	return nil
}

// hooks are what grange adds: the plug-in's line and the prolog.
func (l *Lab) hooks() map[string]string {
	// Not by the wrapper: a test takes that one away.
	i := setup.Install{ConfDir: l.path("etc"), PluginDir: l.path("plugin"), Wrapper: l.host.Binary,
		Checked: l.path("checked"), MinUID: 1000}
	if l.o.OCI {
		// a prolog that has lost its wrapper refuses too
		i.Wrapper, i.Socket, i.Words = l.wrapper(), l.host.Socket, l.path("words")
		return map[string]string{"etc/oci.conf": i.OCIConf(), "bin/prolog": i.OCIProlog(), "bin/epilog": i.OCIEpilog()}
	}
	return map[string]string{
		"etc/plugstack.conf.d/grange.conf": l.plugstack(),
		"bin/prolog":                       i.Prolog(),
	}
}

func (l *Lab) plugstack() string {
	return fmt.Sprintf("required %s wrapper=%s socket=%s default=micro allow_metal=yes catalogue=%s %s\n",
		l.path("plugin/grange_spank.so"), l.wrapper(), l.host.Socket, l.path("etc/catalogue"), l.o.Plugstack)
}

// wrapper is a copy of grange that can be taken away without taking the agent's.
func (l *Lab) wrapper() string { return l.path("bin/grange") }

// usableCgroups reports whether Slurm can use control groups here: those that it needs are mounted and can be written.
func usableCgroups() bool {
	for _, controller := range []string{"memory", "freezer", "cpuacct", "cpuset"} {
		dir := filepath.Join("/sys/fs/cgroup", controller, "grange-slurmlab-probe")
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return false
		}
		os.Remove(dir)
	}
	return true
}

// removeCgroups ends what is in our nodes' control groups, and removes them: Slurm leaves the outer ones.
func (l *Lab) removeCgroups() {
	var roots []string
	for _, node := range l.nodes {
		found, _ := filepath.Glob("/sys/fs/cgroup/*/slurm_" + node)
		roots = append(roots, found...)
	}
	for _, root := range roots {
		for deadline := time.Now().Add(5 * time.Second); exists(root) &&
			time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			var dirs []string
			filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for i := len(dirs) - 1; i >= 0; i-- { // the innermost first
				text, _ := os.ReadFile(filepath.Join(dirs[i], "cgroup.procs"))
				for _, field := range strings.Fields(string(text)) {
					if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
						syscall.Kill(pid, syscall.SIGKILL)
					}
				}
				os.WriteFile(filepath.Join(dirs[i], "freezer.state"), []byte("THAWED"), 0)
				os.Remove(dirs[i])
			}
		}
	}
}
