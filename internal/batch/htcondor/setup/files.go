package setup

import (
	"fmt"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/htcondor"
)

// Site is what differs between sites in the configuration that grange writes.
type Site struct {
	Grange   string // the program
	Socket   string // of the agent
	Dir      string // where the hooks go
	Metal    htcondor.Metal
	Period   time.Duration // of the startd's look at the agent
	Requeues int           // how often the agent lets a job be queued again; see [batch] of its configuration
	Prepare  bool          // a prepare hook too; see prepareConf for what it costs
}

// Standard is a site as packages make it.
func Standard() Site {
	return Site{Grange: "/usr/bin/grange", Socket: "/run/grange/agent.sock", Dir: "/usr/libexec/grange",
		Metal: htcondor.MetalAsked, Period: 30 * time.Second, Requeues: 3}
}

// File is one that install writes. Hooks are programs.
type File struct {
	Path    string
	Text    string
	Program bool
}

// Names of the configuration's files.
const (
	ExecuteConf = "50-grange-execute.conf"
	AccessConf  = "50-grange-access.conf"
)

func (s Site) hook(name string) string { return s.Dir + "/condor-" + name }

// ExecuteFiles are those of a host that runs jobs. confDir is where HTCondor reads configuration.
func (s Site) ExecuteFiles(confDir string) []File {
	hook := func(name, why, words string) File {
		return File{s.hook(name), "#!" + s.Grange + " hook\n# " + why + "\n" + words + "\n", true}
	}
	files := []File{
		{confDir + "/" + ExecuteConf, s.execute(), false},
		hook("wrapper", "HTCondor's USER_JOB_WRAPPER: runs as the job's user, in the job's place.",
			"htcondor wrapper --socket "+s.Socket+" --metal "+string(s.Metal)+" --"),
		hook("cron", "A job of the startd's cron: says what this host has for virtual machines.",
			"htcondor cron --socket "+s.Socket+" --metal "+string(s.Metal)),
	}
	// HTCondor writes here as root, and must not be led elsewhere.
	files = append(files, File{"/var/lib/grange/condor-config/README",
		"HTCondor keeps here what grange sets of this host: GrangeClosed.\n", false})
	if s.Prepare {
		files = append(files, hook("prepare", "HTCondor's prepare hook: runs as the job's user, before the job.",
			fmt.Sprintf("htcondor prepare --socket %s --metal %s --requeues %d", s.Socket, s.Metal, s.Requeues)))
	}
	return files
}

// prepareConf: a starter chooses how it tracks processes when it starts the first one. That is the hook, for which it
// asks no control group, and so the job gets none either (HTCondor 23.9; ProcFamilyProxy::track_family_via_cgroup): no
// memory limit, no record of what the VM uses.
func (s Site) prepareConf() string {
	if !s.Prepare {
		return ""
	}
	return fmt.Sprintf(`
# Before a job, and before its files are sent, as its user: a host whose agent does not answer, or has not the
# image, gives the job back at once. With this hook HTCondor 23.9 puts jobs into no control groups: no memory
# limit, and its records have the wrapper's use instead of the VM's.
STARTER_JOB_HOOK_KEYWORD = GRANGE
GRANGE_HOOK_PREPARE_JOB = %s
`, s.hook("prepare"))
}

func (s Site) execute() string {
	// Jobs that match no host stay in the queue; condor_q -better-analyze says why.
	var may string
	inVM := "(MY.GrangeReady =?= True && $(GRANGE_WHOLE_JOB) && " +
		"(TARGET.VMImage =?= undefined || stringListMember(TARGET.VMImage, MY.GrangeImages)))"
	switch s.Metal {
	case htcondor.MetalNever:
		may = `(TARGET.WantVM =!= False && ` + inVM + `)`
	case htcondor.MetalAsked:
		may = `(TARGET.WantVM =?= False || ` + inVM + `)`
	case htcondor.MetalDefault:
		may = `(TARGET.WantVM =!= True || ` + inVM + `)`
	}
	return fmt.Sprintf(`# Jobs of this host run in virtual machines. Written by "grange htcondor install";
# docs/guide/htcondor.md explains it.
# %[1]s

# The wrapper takes the place of every job. It must not lie below a directory that jobs have their own of:
# /tmp, /var/tmp.
USER_JOB_WRAPPER = %[2]s
%[3]s
# What the host has for virtual machines is part of its ad: GrangeReady, GrangeImages, GrangeFreeSlots,
# GrangeMetal, GrangeProblem.
STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) GRANGE
STARTD_CRON_GRANGE_EXECUTABLE = %[4]s
STARTD_CRON_GRANGE_MODE = Periodic
STARTD_CRON_GRANGE_PERIOD = %[5]ds
STARTD_CRON_GRANGE_RECONFIG_RERUN = True

# grange closes and opens this host by this one word, which an administrator of the pool may set:
# condor_config_val -startd -set. It outlives a restart, and everybody sees it: condor_status -af Machine
# GrangeClosed.
GrangeClosed = ""
STARTD_ATTRS = $(STARTD_ATTRS) GrangeClosed
ENABLE_PERSISTENT_CONFIG = True
PERSISTENT_CONFIG_DIR = /var/lib/grange/condor-config
STARTD.SETTABLE_ATTRS_ADMINISTRATOR = $(STARTD.SETTABLE_ATTRS_ADMINISTRATOR) GrangeClosed

# The wrapper takes the place of a job, and of nothing else that HTCondor starts for it on the host: scripts
# before and after it, tools beside it, programs that transfer its files, containers. Jobs with such are none
# for virtual machines. What an attribute is worth does not count, only whether the job has it: an expression
# may be nothing here, and a program for the starter. The second half makes jobs with and without them two
# kinds for the negotiator.
GRANGE_WHOLE_JOB = (countMatches(%[8]s, {TARGET}) =?= 1 && \
    %[9]s)
%[7]s
# No job comes here for a virtual machine that can not be made now. A site's own START stays as it was, before
# this.
START = ($(START)) && MY.GrangeClosed =?= "" && %[6]s
`, s.metalWords(), s.hook("wrapper"), s.prepareConf(), s.hook("cron"), int(s.Period.Seconds()), may, s.besides(),
		whole(), absent())
}

// beside are what HTCondor 23.9 starts on the host for a job of the vanilla universe, other than the job: its own
// scripts, tools and transfer programs; containers; hooks of the site's that it picks, one of which would take its
// memory limit away; another root; the shell of condor_submit -interactive.
var beside = []string{"PreCmd", "PostCmd", "ToolDaemonCmd", "TransferPlugins", "WantDocker", "WantContainer",
	"WantDockerImage", "WantSandboxImage", "WantSIF", "DockerImage", "ContainerImage", "HookKeyword", "RequestedChroot",
	"InteractiveJob"}

// whole is true of a vanilla job that has none of them, whatever it says in what words. unparse does not evaluate, and
// knows the attributes of the ad in which it is called.
func whole() string {
	words := []string{`unparse(JobUniverse) =?= "5"`}
	for _, name := range beside {
		words = append(words, "unparse("+name+`) =?= ""`)
	}
	return strings.Join(words, " && ")
}

func absent() string {
	words := []string{"TARGET.JobUniverse =?= 5"}
	for _, name := range beside {
		words = append(words, "TARGET."+name+" =?= undefined")
	}
	return strings.Join(words, " && ")
}

// besides closes ways to the host itself that are no matter of START.
func (s Site) besides() string {
	text := `
# condor_ssh_to_job opens a shell on the host itself: there is none for jobs that run elsewhere.
ENABLE_SSH_TO_JOB = ` + map[htcondor.Metal]string{htcondor.MetalNever: "False",
		htcondor.MetalAsked:   "TARGET.WantVM =?= False",
		htcondor.MetalDefault: "TARGET.WantVM =!= True"}[s.Metal] + "\n"
	if s.Metal == htcondor.MetalNever {
		text += `
# Where jobs are submitted on this host too, a schedd runs those of these two universes beside itself. DAGs
# need an access point of their own.
START_LOCAL_UNIVERSE = False
START_SCHEDULER_UNIVERSE = False
`
	}
	return text
}

func (s Site) metalWords() string {
	switch s.Metal {
	case htcondor.MetalAsked:
		return "Jobs with +WantVM = False run on the host itself."
	case htcondor.MetalDefault:
		return "Jobs run on the host itself, but for those with +WantVM = True."
	}
	return "No job runs on the host itself."
}

// AccessFile is that of a host where jobs are submitted: what a user would have to write into each submit file
// otherwise.
func (s Site) AccessFile(confDir string) File {
	return File{confDir + "/" + AccessConf, fmt.Sprintf(`# Jobs in virtual machines, on the access point. Written by "grange htcondor install";
# docs/guide/htcondor.md explains it.

# Two statuses of a job are the wrapper's. %[4]d: its VM was not started; the job goes back into the queue,
# and the wrapper counts how often. %[1]d: trying again is of no use, and the job is held with that reason.
# What the user wants of on_exit_remove and on_exit_hold stays beside it.
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) GRANGE
JOB_TRANSFORM_GRANGE @=end
   NAME grange: a job whose VM was not started
   COPY OnExitRemove GrangeUserOnExitRemove
   COPY OnExitHold GrangeUserOnExitHold
   COPY OnExitHoldReason GrangeUserOnExitHoldReason
   COPY OnExitHoldSubCode GrangeUserOnExitHoldSubCode
   SET OnExitRemove (GrangeUserOnExitRemove =!= False) && !(ExitBySignal =?= False && ExitCode =?= %[4]d)
   SET OnExitHold (GrangeUserOnExitHold =?= True) || (ExitBySignal =?= False && ExitCode =?= %[1]d)
   SET OnExitHoldReason ifThenElse(ExitBySignal =?= False && ExitCode =?= %[1]d, "%[2]s", GrangeUserOnExitHoldReason)
   SET OnExitHoldSubCode ifThenElse(ExitBySignal =?= False && ExitCode =?= %[1]d, %[1]d, GrangeUserOnExitHoldSubCode)
@end

# The wrapper counts how often a job went around in vain. Where it can not, because it is missing itself, the
# schedd does.
SYSTEM_PERIODIC_HOLD_NAMES = $(SYSTEM_PERIODIC_HOLD_NAMES) GRANGE
SYSTEM_PERIODIC_HOLD_GRANGE = (JobStatus == 1 && NumShadowStarts > %[3]d && NumJobStarts =?= 0)
SYSTEM_PERIODIC_HOLD_GRANGE_REASON = "grange: the job was sent to hosts " .. string(NumShadowStarts) .. " times, and started on none"
`, batch.ExitNever, holdReason, 10*max(s.Requeues, 1), batch.ExitNotStarted), false}
}

const holdReason = "grange: no virtual machine was started for the job; its standard error says why"

// Explain is what install tells: the next steps.
func Explain(files []File) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "wrote %s\n", f.Path)
	}
	b.WriteString("next: condor_reconfig, then grange htcondor check\n")
	return b.String()
}
