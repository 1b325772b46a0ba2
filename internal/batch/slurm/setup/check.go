package setup

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Site is what there is to check.
type Site struct {
	Slurm, Cgroup, OCI Conf
	Gres, Container    Conf // gres.conf, job_container.conf
	Plugstack          []Entry
	PlugstackPath      string
	NoPlugstack        bool
	Slurmd             Release     // zero: not here
	Root               fs.FS       // of this host, for what is not Slurm's own
	ReservedCPUs       farm.CPUSet // of the agent
	Grants             farm.Bytes  // the most memory that the agent has for a VM; 0: not known
}

// ReadSite reads the configuration whose slurm.conf is at path, and asks slurmd for its release.
func ReadSite(ctx context.Context, run program.Run, path string) (Site, error) {
	s := Site{Root: os.DirFS("/")}
	var err error
	if s.Slurm, err = ReadConf(path); err != nil {
		return s, err
	}
	if s.Slurm.Missing {
		return s, badConf(path, 0, "no such file")
	}
	for name, conf := range map[string]*Conf{"cgroup.conf": &s.Cgroup, "oci.conf": &s.OCI, "gres.conf": &s.Gres,
		"job_container.conf": &s.Container} {
		if *conf, err = ReadConf(filepath.Join(filepath.Dir(path), name)); err != nil {
			return s, err
		}
	}
	if err := s.readPlugstack(path); err != nil {
		return s, err
	}
	if out, err := run(ctx, program.Call{Path: "slurmd", Args: []string{"-V"}}); err == nil {
		s.Slurmd, _ = ParseRelease(string(out))
	}
	return s, nil
}

// readPlugstack reads plugstack.conf, as slurm.conf at this path says where it is.
func (s *Site) readPlugstack(path string) (err error) {
	s.PlugstackPath = s.Slurm.Get("PlugStackConfig")
	if s.PlugstackPath == "" {
		s.PlugstackPath = filepath.Join(filepath.Dir(path), "plugstack.conf")
	}
	s.Plugstack, s.NoPlugstack, err = ReadPlugstack(s.PlugstackPath)
	return err
}

// check looks at one thing. It returns its findings; none when there is nothing to say.
type check struct {
	id   string
	look func(s Site) batch.Finding
}

// checks are all, in the order of the table.
var checks = []check{
	{"plugstack", checkPlugstack},
	{"plugin-file", checkPluginFile},
	{"plugin-release", checkPluginRelease},
	{"wrapper", checkWrapper},
	{"default-image", checkDefault},
	{"prolog", checkProlog},
	{"prolog-flags", checkPrologFlags},
	{"prolog-nohold", checkNoHold},
	{"prolog-timeout", checkPrologTimeout},
	{"requeue-exit", checkRequeueExit},
	{"requeue", func(s Site) batch.Finding {
		if s.Slurm.Get("JobRequeue") == "0" {
			return s.slurm("JobRequeue", batch.Warning,
				"jobs are not queued again unless they ask for it, so one whose VM does not start fails",
				"JobRequeue=1")
		}
		return s.slurm("JobRequeue", batch.Good, "", "")
	}},
	{"proctrack", func(s Site) batch.Finding {
		if s.Slurm.Get("ProctrackType") != "proctrack/cgroup" {
			return s.slurm("ProctrackType", batch.Warning,
				"without its freezer Slurm stops and kills the wrapper alone; QEMU is ended only when the wrapper is "+
					"gone, and a suspended job's VM is paused a moment later, by its missing heartbeats",
				"ProctrackType=proctrack/cgroup")
		}
		return s.slurm("ProctrackType", batch.Good, "", "")
	}},
	{"task-plugin", func(s Site) batch.Finding {
		if !slices.Contains(s.Slurm.List("TaskPlugin"), "task/cgroup") {
			return s.slurm("TaskPlugin", batch.Warning,
				"nothing on the host shows a job's CPUs and memory: the agent asks slurmctld for each job, also "+
					"where a script calls grange exec itself, and starts no VM while it does not answer; Slurm's "+
					"limits "+
					"do not hold QEMU", "TaskPlugin=task/cgroup,task/affinity")
		}
		return s.slurm("TaskPlugin", batch.Good, "", "")
	}},
	{"constrain-memory", func(s Site) batch.Finding {
		if !yes(s.Cgroup.Get("ConstrainRAMSpace")) {
			return s.cgroup("ConstrainRAMSpace", batch.Warning,
				"a job's memory is not limited on the host, and the agent has to ask slurmctld how much it was given",
				"ConstrainRAMSpace=yes")
		}
		return s.cgroup("ConstrainRAMSpace", batch.Good, "", "")
	}},
	{"constrain-cores", func(s Site) batch.Finding {
		if !yes(s.Cgroup.Get("ConstrainCores")) {
			return s.cgroup("ConstrainCores", batch.Warning,
				"Slurm counts CPUs and does not say which: VMs and jobs on the host can meet on the same ones",
				"ConstrainCores=yes")
		}
		return s.cgroup("ConstrainCores", batch.Good, "", "")
	}},
	{"cgroup-plugin", checkCgroupPlugin},
	{"devices", checkDevices},
	{"job-container", checkContainer},
	{"address-space", checkVSize},
	{"memory-counted", func(s Site) batch.Finding {
		if !strings.Contains(strings.ToUpper(s.Slurm.Get("SelectTypeParameters")), "MEMORY") {
			return s.slurm("SelectTypeParameters", batch.Warning,
				"Slurm does not count memory: more VMs start than the host has room for, and wait for each other there",
				"SelectTypeParameters=CR_Core_Memory, and DefMemPerCPU")
		}
		return s.slurm("SelectTypeParameters", batch.Good, "", "")
	}},
	{"real-memory", checkRealMemory},
	{"select", checkSelect},
	{"accounting-storage", checkStorage},
	{"sampling", checkSampling},
	{"accounting", func(s Site) batch.Finding {
		switch s.Slurm.Get("JobAcctGatherType") {
		case "jobacct_gather/cgroup":
			return s.slurm("JobAcctGatherType", batch.Good, "", "")
		case "", "jobacct_gather/none":
			return s.slurm("JobAcctGatherType", batch.Warning, "MaxRSS and CPU time are not recorded",
				"JobAcctGatherType=jobacct_gather/cgroup")
		}
		return s.slurm("JobAcctGatherType", batch.Warning,
			"MaxRSS and CPU time would be the wrapper's: QEMU is not a child of the job, only a member of its control "+
				"groups", "JobAcctGatherType=jobacct_gather/cgroup")
	}},
	{"over-memory-kill", func(s Site) batch.Finding {
		if slices.Contains(s.Slurm.List("JobAcctGatherParams"), "overmemorykill") {
			return s.slurm("JobAcctGatherParams", batch.Advice,
				"OverMemoryKill samples: the control group's own limit is exact and enough", "leave OverMemoryKill out")
		}
		return s.slurm("JobAcctGatherParams", batch.Good, "", "")
	}},
	{"kill-wait", func(s Site) batch.Finding {
		const least = 10
		if n := number(s.Slurm.Get("KillWait"), 30); n < least {
			return s.slurm("KillWait", batch.Warning,
				fmt.Sprintf("a job has %d s between TERM and KILL, in the VM as on the host; a slow VM needs some of "+
					"them for itself", n), "KillWait=30")
		}
		return s.slurm("KillWait", batch.Good, "", "")
	}},
	{"unkillable", func(s Site) batch.Finding {
		const least = 60
		if n := number(s.Slurm.Get("UnkillableStepTimeout"), 60); n < least {
			return s.slurm("UnkillableStepTimeout", batch.Warning,
				fmt.Sprintf("a host is drained when a job's processes are not gone after %d s; QEMU with much memory "+
					"needs some to end", n), "UnkillableStepTimeout=180")
		}
		return s.slurm("UnkillableStepTimeout", batch.Good, "", "")
	}},
	{"interactive-step", func(s Site) batch.Finding {
		if slices.Contains(s.Slurm.List("LaunchParameters"), "use_interactive_step") {
			return s.slurm("LaunchParameters", batch.Advice,
				"salloc --vm then opens its shell in the VM, where there is no srun",
				"tell users: salloc for steps on the host, srun --pty --vm for a shell in a VM")
		}
		return s.slurm("LaunchParameters", batch.Good, "", "")
	}},
	{"task-prolog", checkTaskProlog},
	{"task-epilog", func(s Site) batch.Finding {
		if s.Slurm.Get("TaskEpilog") != "" {
			return s.slurm("TaskEpilog", batch.Warning,
				"Slurm runs it on the host as the job's user; behind a task in a VM the plug-in keeps it from "+
					"running, and the end of the task takes a second longer",
				"do in Epilog, which is root's and runs once a job, what has to be done")
		}
		return s.slurm("TaskEpilog", batch.Good, "", "")
	}},
	{"user-env", checkUserEnv},
	{"login", func(s Site) batch.Finding { return batch.CheckLogin(s.Root) }},
	{"libvirt-cgroups", checkLibvirtCgroups},
	{"agent-conf", checkAgentConf},
	{"reserved-cpus", checkReservedCPUs},
	{"reserved-cpus-usage", checkSpecUsage},
	{"oci", checkOCI},
	{"oci-prolog", checkOCIProlog},
	{"oci-steps", checkOCISteps},
}

// Check looks at everything.
func Check(s Site) []batch.Finding {
	var all []batch.Finding
	for _, c := range checks {
		f := c.look(s)
		f.ID = c.id
		all = append(all, f)
	}
	for _, f := range checkForeign(s) {
		f.ID = otherPlugins
		all = append(all, f)
	}
	return all
}

// otherPlugins is the ID of findings about plug-ins of others, of which there may be several.
const otherPlugins = "other-plugins"

// SubmitOnly are the findings that matter where no job runs. An optional plug-in is right there: a required one that is
// missing would keep people from submitting anything.
func SubmitOnly(findings []batch.Finding) []batch.Finding {
	var some []batch.Finding
	for _, f := range findings {
		switch f.ID {
		case "plugstack":
			if f.Level == batch.Broken && strings.HasPrefix(f.Found, "optional ") {
				f.Level, f.Why, f.Do = batch.Good, "", ""
			}
			some = append(some, f)
		case "plugin-file", "plugin-release", otherPlugins:
			some = append(some, f)
		}
	}
	return some
}

func yes(text string) bool { return strings.EqualFold(text, "yes") }

func number(text string, otherwise int) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return otherwise
}

func (c Conf) finding(key string, level batch.Level, why, do string) batch.Finding {
	found := key + "=" + c.Get(key)
	if c.Get(key) == "" {
		found = key + " is not set"
	}
	return batch.Finding{Level: level, Found: found, Where: c.Where(key), Why: why, Do: do}
}

func (s Site) slurm(key string, level batch.Level, why, do string) batch.Finding {
	return s.Slurm.finding(key, level, why, do)
}

func (s Site) cgroup(key string, level batch.Level, why, do string) batch.Finding {
	return s.Cgroup.finding(key, level, why, do)
}

func checkPlugstack(s Site) batch.Finding {
	ours, ok := Ours(s.Plugstack)
	switch {
	case !ok && s.byBundle():
		return batch.Finding{Level: batch.Good, Found: "not used: bundles are", Where: s.PlugstackPath}
	case s.NoPlugstack:
		return batch.Finding{Level: batch.Broken, Found: "no such file", Where: s.PlugstackPath,
			Why: "Slurm takes that for an empty one: --vm does not exist, and nothing keeps jobs off the host itself",
			Do:  "grange slurm install"}
	case !ok:
		return batch.Finding{Level: batch.Broken, Found: "no line names " + PluginName, Where: s.PlugstackPath,
			Why: "--vm does not exist here, and nothing keeps jobs off the host itself", Do: "grange slurm install"}
	case !ours.Required:
		return batch.Finding{Level: batch.Broken, Found: "optional " + ours.Path, Where: ours.Where,
			Why: "a plug-in that does not load, or fails, is passed over, and the job runs on the host itself",
			Do: "on hosts: required instead of optional (where people only submit, optional is right: grange slurm " +
				"check --submit)"}
	}
	return batch.Finding{Level: batch.Good, Found: "required " + ours.Path, Where: ours.Where}
}

func checkPluginFile(s Site) batch.Finding {
	ours, ok := Ours(s.Plugstack)
	if !ok {
		return batch.Finding{Level: batch.Good, Found: "none to look at"}
	}
	switch err := batch.Safe(s.Root, ours.Path); {
	case errors.Is(err, fs.ErrNotExist):
		return batch.Finding{Level: batch.Broken, Found: "missing", Where: ours.Path, Why: "no job starts here",
			Do: "grange slurm install"}
	case err != nil:
		return batch.Finding{Level: batch.Broken, Found: err.Error(), Where: ours.Path, Why: "slurmd runs this file's code as root",
			Do: "chown root, chmod go-w"}
	}
	return batch.Finding{Level: batch.Good, Found: "root's own", Where: ours.Path}
}

// pluginRelease reads for which Slurm a plug-in was compiled: the variable that Slurm itself looks at.
func pluginRelease(path string) (Release, error) {
	f, err := elf.Open(path)
	if err != nil {
		return Release{}, err
	}
	defer f.Close()
	return releaseOfELF(f)
}

// releaseIn is pluginRelease for a file that has been read.
func releaseIn(text []byte) (Release, error) {
	f, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return Release{}, err
	}
	return releaseOfELF(f)
}

func releaseOfELF(f *elf.File) (Release, error) {
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return Release{}, err
	}
	for _, symbol := range symbols {
		if symbol.Name != "plugin_version" || int(symbol.Section) >= len(f.Sections) {
			continue
		}
		section := f.Sections[symbol.Section]
		var word [4]byte
		if _, err := section.ReadAt(word[:], int64(symbol.Value-section.Addr)); err != nil {
			return Release{}, err
		}
		n := binary.LittleEndian.Uint32(word[:])
		return Release{int(n >> 16), int(n >> 8 & 0xff), int(n & 0xff)}, nil
	}
	return Release{}, errors.New("not a Slurm plug-in")
}

func checkPluginRelease(s Site) batch.Finding {
	ours, ok := Ours(s.Plugstack)
	if !ok {
		return batch.Finding{Level: batch.Good, Found: "none to look at"}
	}
	r, err := pluginRelease(ours.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return batch.Finding{Level: batch.Good, Found: "none to look at"}
	case err != nil:
		return batch.Finding{Level: batch.Broken, Found: err.Error(), Where: ours.Path,
			Why: "Slurm can not load it, and no job starts here", Do: "grange slurm install"}
	case s.Slurmd == (Release{}):
		return batch.Finding{Level: batch.Advice, Found: "for Slurm " + r.String(), Where: ours.Path,
			Why: "slurmd is not here to compare with", Do: "run this on a host"}
	case !r.Same(s.Slurmd):
		return batch.Finding{Level: batch.Broken, Found: fmt.Sprintf("for Slurm %v, and slurmd is %v", r, s.Slurmd),
			Where: ours.Path, Why: "Slurm refuses plug-ins of another release, and no job starts here",
			Do: "grange slurm install, after each upgrade of Slurm"}
	}
	return batch.Finding{Level: batch.Good, Found: "for Slurm " + r.String(), Where: ours.Path}
}

func checkWrapper(s Site) batch.Finding {
	ours, ok := Ours(s.Plugstack)
	wrapper, from := ours.Args["wrapper"], "wrapper= in "+ours.Where
	switch words := strings.Fields(s.OCI.Get("RunTimeRun")); {
	case !ok && s.byBundle() && len(words) > 1 && words[0] == "exec":
		wrapper, from = words[1], s.OCI.Where("RunTimeRun")
	case !ok:
		return batch.Finding{Level: batch.Good, Found: "none to look at"}
	case wrapper == "":
		wrapper = "/usr/local/bin/grange"
	}
	switch err := batch.Safe(s.Root, wrapper); {
	case errors.Is(err, fs.ErrNotExist):
		return batch.Finding{Level: batch.Broken, Found: "missing", Where: wrapper,
			Why: "every job in a VM ends with status 199 and goes around", Do: "install grange there, or mend " + from}
	case err != nil:
		return batch.Finding{Level: batch.Broken, Found: err.Error(), Where: wrapper, Why: "it runs as every user",
			Do: "chown root, chmod go-w"}
	}
	f, err := elf.Open(wrapper)
	if err != nil {
		return batch.Finding{Level: batch.Broken, Found: err.Error(), Where: wrapper,
			Why: "a script is started by an interpreter, which reads the job's environment on the host",
			Do:  "wrapper= names the program grange itself"}
	}
	defer f.Close()
	if batch.LoadsLibraries(f) {
		return batch.Finding{Level: batch.Broken, Found: "dynamically linked", Where: wrapper,
			Why: "the job's LD_PRELOAD would run its owner's code on the host", Do: "build it with CGO_ENABLED=0"}
	}
	return batch.Finding{Level: batch.Good, Found: "static", Where: wrapper}
}

func checkDefault(s Site) batch.Finding {
	ours, ok := Ours(s.Plugstack)
	switch {
	case !ok:
		return batch.Finding{Level: batch.Good, Found: "none to look at"}
	case ours.Args["default"] == "":
		return batch.Finding{Level: batch.Advice, Found: "default= is not set", Where: ours.Where,
			Why: "jobs without --vm run on the host itself: right where both are wanted, and a user decides",
			Do:  "default=IMAGE, where no job may run on the host"}
	case ours.Args["allow_metal"] == "yes":
		return batch.Finding{Level: batch.Advice, Found: "default=" + ours.Args["default"] + " allow_metal=yes",
			Where: ours.Where, Why: "--no-vm runs a job on the host itself",
			Do: "leave allow_metal out where no job may"}
	}
	return batch.Finding{Level: batch.Good, Found: "default=" + ours.Args["default"], Where: ours.Where}
}

// hooked reports whether a Prolog setting, which may be a pattern, starts grange.
func hooked(value string) bool {
	for _, pattern := range strings.Split(value, ",") {
		files, _ := filepath.Glob(strings.TrimSpace(pattern))
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "slurm prolog") &&
				strings.Contains(string(text), "grange") {
				return true
			}
		}
	}
	return false
}

func checkProlog(s Site) batch.Finding {
	if _, ok := Ours(s.Plugstack); !ok && s.byBundle() {
		return batch.Finding{Level: batch.Good, Found: "not used: see oci-prolog"}
	}
	if !hooked(s.Slurm.Get("Prolog")) {
		return s.slurm("Prolog", batch.Broken,
			"on a host where Slurm does not find or load the plug-in it ignores --vm, and runs the job on the host "+
				"itself; the prolog refuses it", "grange slurm install, and Prolog=CONF_DIR/prolog.d/*")
	}
	return s.slurm("Prolog", batch.Good, "", "")
}

func checkRequeueExit(s Site) batch.Finding {
	if !slices.Contains(s.Slurm.List("RequeueExit"), "199") {
		return s.slurm("RequeueExit", batch.Warning,
			"a job whose VM can not be started on one host fails instead of going to another", "RequeueExit=199")
	}
	return s.slurm("RequeueExit", batch.Good, "", "")
}

func checkTaskProlog(s Site) batch.Finding {
	prolog := s.Slurm.Get("TaskProlog")
	ours, ok := Ours(s.Plugstack)
	if prolog == "" || !ok || ours.Args["task_prolog"] == prolog {
		return s.slurm("TaskProlog", batch.Good, "", "")
	}
	return s.slurm("TaskProlog", batch.Warning,
		"Slurm runs it after the plug-in has put the wrapper in the job's place, so never for a job in a VM",
		"task_prolog="+prolog+" in "+ours.Where+": then it runs in the VM")
}
