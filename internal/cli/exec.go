package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/runner"
)

type execFlags struct {
	image, shape, memory, scratch, pageSize, network, workdir string
	purpose, cpuModel, threadPolicy, emulator, numa, cache    string
	cpus                                                      int
	binds, env                                                []string
	limit, waitTimeout                                        time.Duration
	wait, noWait, tty, keep, verbose, quiet                   bool
	batch                                                     string
	prologs                                                   []string
}

func (a *app) execCommand() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a fresh virtual machine as if it ran here",
		Long: `Run a command in a fresh virtual machine, shaped for this host, as if it ran here.

Input, output and errors are three separate streams; the exit status comes back, or 128 and the number of the signal that
ended the command. INT, TERM, HUP, USR1, USR2 and WINCH reach the command; TSTP and CONT stop and continue the whole VM;
INT twice within three seconds gives up. The command runs as you, with your environment, and sees the directories that you
bind. Its working directory is yours if that is bound, and /tmp otherwise.

Exit status 199: no VM was started and the command did not run. 198: the VM ended under the command, which may have run in
part. 2: the request makes no sense.

With --batch it runs in the place of a batch system's job: the VM gets what the job was given, the job's script and working
directory are there, and the end is the job's own, death by signal included. 197: no VM was started, and trying again is of no use.`,
		Example: `  grange exec -- uname -a
  echo data | grange exec -- cat
  grange exec --cpus 4 --memory 8G --scratch 20G --bind /data:/data:ro --bind . -- ./analyse /data/run7`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("grange exec -- COMMAND", "no command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.batch != "" {
				a.siteSocket(cmd)
			}
			return a.exec(cmd.Context(), &f, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	groups := f.groups()
	for _, g := range groups {
		cmd.Flags().AddFlagSet(g.flags)
	}
	cmd.Flags().SetInterspersed(false)
	cmd.SetUsageFunc(func(c *cobra.Command) error { return printGroups(c, groups) })
	cmd.MarkFlagsMutuallyExclusive("wait", "no-wait")
	cmd.RegisterFlagCompletionFunc("image", a.completeImages)
	for flag, words := range map[string][]string{
		"network": {"none", "user"}, "purpose": {"compute", "service"},
		"cpu-model":     {"host-passthrough", "host-model", "maximum"},
		"thread-policy": {"prefer", "require", "isolate"}, "emulator": {"beside", "isolate"},
		"numa":      {"auto", "none", "2"},
		"cache":     {"writeback", "none", "writethrough", "directsync", "unsafe"},
		"page-size": {"any", "2M", "1G", "1G,2M", "0"},
		"batch":     batchWords(),
	} {
		cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// exec runs the job, tells how it ended, and returns that as an error. ctx ends on signals, which are the job's here.
func (a *app) exec(ctx context.Context, f *execFlags, args []string) error {
	inBatch, err := f.batchOptions()
	if err != nil {
		return err
	}
	job, err := f.job(a, inBatch, args)
	if err != nil {
		printError(a.err, err)
		if inBatch != nil { // its batch system would take any other status for the job's own
			return exitError{batch.ExitNever}
		}
		return exitError{exitUsage}
	}
	result := job.Run(context.WithoutCancel(ctx))
	a.printResult(result)
	if result.Signal != 0 {
		return deathError{result.Signal}
	}
	return exitError{result.Status}
}

func (f *execFlags) job(a *app, inBatch *runner.Batch, args []string) (*runner.Job, error) {
	request, err := f.request(args)
	if err != nil {
		return nil, err
	}
	o, err := f.options(a)
	if err != nil {
		return nil, err
	}
	o.Batch = inBatch
	return runner.New(request, o)
}

// printResult reports how a job ended.
func (a *app) printResult(r runner.Result) {
	switch {
	case a.json:
		message, hint, code := "", "", ""
		if r.Err != nil {
			message, hint = explain(r.Err)
			code = codeOf(r.Err)
		}
		newJSON(a.err).Encode(map[string]any{"event": "result", "status": r.Status, "exit": r.Exit,
			"error": message, "hint": hint, "code": code, "phases": r.Phases})
	case r.Err != nil:
		printError(a.err, r.Err)
	}
	if r.Note != nil {
		printError(a.err, r.Note)
	}
}

func batchWords() []string {
	var words []string
	for _, s := range systems.WithJobs() {
		words = append(words, string(s))
	}
	return words
}

// flagGroup is some of a command's flags under a heading of their own in its help.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

func (f *execFlags) groups() []flagGroup {
	group := func(title string) flagGroup { return flagGroup{title, pflag.NewFlagSet(title, pflag.ContinueOnError)} }
	size, tuning, files, run, batch := group("Image and size"), group("Tuning"), group("What the command sees"), group(
		"How it runs"), group("In the place of a batch job")
	flags := size.flags
	flags.StringVar(&f.image, "image", "", "image to start from (default: as the agent is configured)")
	flags.StringVar(&f.shape, "shape", "", "named shape of the agent's configuration")
	flags.IntVar(&f.cpus, "cpus", 0, "CPUs")
	flags.StringVar(&f.memory, "memory", "", "memory, as 2G")
	flags.StringVar(&f.scratch, "scratch", "", "disk for /tmp, as 20G (default: /tmp is in memory)")
	flags.StringVar(&f.network, "network", "", "none, or user: outgoing connections only")
	flags = tuning.flags
	flags.StringVar(&f.pageSize, "page-size", "",
		"pages for the VM's memory: 2M, 1G, 0 for ordinary ones, a list as 1G,2M with the best first, or any")
	flags.StringVar(&f.purpose, "purpose", "",
		"what the VM is tuned for: compute (thrown away) or service (fit to be migrated)")
	flags.StringVar(&f.cpuModel, "cpu-model", "",
		"host-passthrough, host-model, maximum, or the name of a model (default: as the purpose says)")
	flags.StringVar(&f.threadPolicy, "thread-policy", "",
		"SMT siblings: prefer whole cores, require them, or isolate one vCPU a core")
	flags.StringVar(&f.emulator, "emulator", "",
		"QEMU's own threads: beside the vCPUs or on reserved CPUs, or isolate on one more CPU")
	flags.StringVar(&f.numa, "numa", "", "guest NUMA: auto, none, or a number of cells")
	flags.StringVar(&f.cache, "cache", "",
		"cache mode of disks: writeback, none, writethrough, directsync or unsafe (default: as the purpose says)")
	flags = files.flags
	flags.StringArrayVar(&f.binds, "bind", nil, "show a directory in the VM: `"+farm.BindSyntax+"` (repeatable)")
	flags.StringArrayVar(&f.env, "env", nil, "set a variable: `K=V` (repeatable)")
	flags.StringVar(&f.workdir, "workdir", "", "working directory in the VM")
	flags.BoolVar(&f.tty, "tty", false, "give the command a terminal")
	flags = run.flags
	flags.DurationVar(&f.limit, "time", 0, "TERM after this time, as 1h30m, and the end 30 s later")
	flags.BoolVar(&f.wait, "wait", true, "wait for room on this host")
	flags.BoolVar(&f.noWait, "no-wait", false, "fail at once when there is no room")
	flags.BoolVar(&f.keep, "keep", false, "keep the VM when the command has ended, until it is stopped by hand")
	flags.BoolVarP(&f.quiet, "quiet", "q", false,
		"do not say what is waited for before the command starts, and behind its end")
	flags.BoolVarP(&f.verbose, "verbose", "v", false,
		"print the phases with their milliseconds, and what the site's policy set")
	flags = batch.flags
	flags.StringVar(&f.batch, "batch", "",
		"run in the place of a job of `SYSTEM`: slurm, gridengine, htcondor, pbs or lsf; what it gave the job is "+
			"what the VM gets")
	flags.DurationVar(&f.waitTimeout, "wait-timeout", 0,
		"wait so long for an agent that is away, then let the batch system try again (default: 10s, or as an agent "+
			"said that has gone)")
	renamedFlag(flags, "patience", "wait-timeout")
	flags.StringArrayVar(&f.prologs, "task-prolog", nil,
		"`SCRIPT` to run in the VM before the job, as Slurm runs a TaskProlog (repeatable)")
	return []flagGroup{size, tuning, files, run, batch}
}

// printGroups is cobra's usage with the command's own flags under headings.
func printGroups(c *cobra.Command, groups []flagGroup) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n\nExamples:\n%s\n", c.UseLine(), c.Example)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.flags.FlagUsages())
	}
	fmt.Fprintf(&b, "\nGlobal Flags:\n%s", c.InheritedFlags().FlagUsages())
	_, err := fmt.Fprint(c.OutOrStderr(), b.String())
	return err
}
