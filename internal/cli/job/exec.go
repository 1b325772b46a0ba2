package job

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/runner"
)

type execFlags struct {
	disks                                                  app.DiskFlags
	image, shape, memory, pageSize, network, workdir       string
	bandwidthIn, bandwidthOut                              string
	purpose, cpuModel, threadPolicy, emulator, numa, cache string
	cpus                                                   int
	binds, env                                             []string
	limit, waitTimeout                                     time.Duration
	wait, noWait, tty, keep, verbose, quiet, pull          bool
	noInput                                                bool
	batch                                                  string
	prologs, publish                                       []string
	pool                                                   string
}

// publishUsage is of a flag that two commands have.
const publishUsage = "let yourself, and those whom the site calls NAME, connect to a TCP `" + runner.PublishSyntax +
	"` of the VM at HERE of this host; without HERE at the same one, or another if that is taken (repeatable)"

// execCommands are the commands that run jobs.
type execCommands struct{ *app.App }

func (a execCommands) execCommand() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] -- [COMMAND [ARGUMENT...]]",
		Short: "Run a command in a fresh virtual machine",
		Long: `Run a command in a fresh virtual machine on this host, as if the command ran on the host
itself.

Standard input, output and error are separate streams. The command runs as the calling user,
with the caller's environment, and has access to the directories given with --bind. Its
working directory is the caller's if that directory is bound, and /tmp otherwise.

The root of the VM can be any container image: --image oci://REGISTRY/NAME[:TAG][@DIGEST],
oci-layout:/DIR[:TAG], dir:/DIR, or an Apptainer image, sif:/FILE. A command is run as it is,
without the image's entrypoint. Without a command, the image's entrypoint and command run.

The exit status is that of the command, or 128 plus the number of the signal that ended it.
INT, TERM, HUP, USR1, USR2 and WINCH are forwarded to the command. TSTP and CONT stop and
continue the whole VM. A second INT within three seconds makes grange exec give up.

Exit status 2: the request is invalid. 198: the VM ended while the command ran; the command
may have run in part. 199: no VM was started and the command did not run.

With --batch, grange exec runs in the place of a batch system's job. The VM gets the CPUs
and memory that the batch system allocated to the job, and the job's script and working
directory are available in it. grange exec ends as the job ends, including death by a
signal. Exit status 197: no VM was started, and a retry would not help.`,
		Example: `  grange exec -- uname -a
  echo data | grange exec -- cat
  grange exec --cpus 4 --memory 8G --scratch 20G --bind /data:/data:ro --bind . -- ./analyse /data/run7`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && (f.image == "" || f.batch != "") {
				return app.Usage("grange exec -- COMMAND", "no command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.batch != "" {
				a.SiteSocket(cmd)
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
	cmd.MarkFlagsMutuallyExclusive("no-input", "tty")
	cmd.RegisterFlagCompletionFunc("image", a.CompleteImages)
	app.Complete(cmd, "pool", (&poolCommands{a.App}).names)
	for flag, words := range map[string][]string{
		"network": farm.JobNetworks(), "purpose": {"compute", "service"},
		"cpu-model":     {"host-passthrough", "host-model", "maximum"},
		"thread-policy": {"prefer", "require", "isolate"}, "emulator": {"beside", "isolate"},
		"numa":      {"auto", "none", "2"},
		"cache":     {"writeback", "none", "writethrough", "directsync", "unsafe"},
		"page-size": {"any", "2M", "1G", "1G,2M", "0"},
		"batch":     app.BatchWords(),
	} {
		cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// ExecInPlace runs a command in the place of a job of the batch system, as `grange exec --batch` does.
func ExecInPlace(ctx context.Context, a *app.App, system farm.BatchSystem, image, shape string,
	command []string) error {
	return execCommands{a}.exec(ctx, &execFlags{batch: string(system), image: image, shape: shape, wait: true}, command)
}

// exec runs the job, tells how it ended, and returns that as an error. ctx ends on signals, which are the job's here.
func (a execCommands) exec(ctx context.Context, f *execFlags, args []string) error {
	inBatch, err := f.batchOptions()
	if err != nil {
		return err
	}
	job, err := f.job(a.App, inBatch, args)
	if err != nil {
		app.PrintError(a.Err, err)
		if inBatch != nil { // its batch system would take any other status for the job's own
			return app.ExitError{Status: batch.ExitNever}
		}
		return app.ExitError{Status: app.ExitUsage}
	}
	result := job.Run(context.WithoutCancel(ctx))
	a.printResult(result)
	if result.Signal != 0 {
		return app.DeathError{Signal: result.Signal}
	}
	return app.ExitError{Status: result.Status}
}

func (f *execFlags) job(a *app.App, inBatch *runner.Batch, args []string) (*runner.Job, error) {
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
func (a execCommands) printResult(r runner.Result) {
	switch {
	case a.JSON:
		message, hint, code := "", "", ""
		if r.Err != nil {
			message, hint = app.Explain(r.Err)
			code = app.CodeOf(r.Err)
		}
		output.NewJSON(a.Err).Encode(map[string]any{"event": "result", "status": r.Status, "exit": r.Exit,
			"error": message, "hint": hint, "code": code, "phases": r.Phases})
	case r.Err != nil:
		app.PrintError(a.Err, r.Err)
	}
	if r.Note != nil {
		app.PrintError(a.Err, r.Note)
	}
}

// flagGroup is some of a command's flags under a heading of their own in its help.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

func (f *execFlags) groups() []flagGroup {
	group := func(title string) flagGroup { return flagGroup{title, pflag.NewFlagSet(title, pflag.ContinueOnError)} }
	size, tuning, files, run, batch := group("Image and size"), group("Tuning"), group("Environment"), group(
		"Execution"), group("Batch jobs")
	flags := size.flags
	flags.StringVar(&f.image, "image", "",
		"`IMAGE` to boot: its name, or where a container image is, as oci://REGISTRY/NAME:TAG (default: from the "+
			"agent's configuration)")
	flags.BoolVar(&f.pull, "pull", false,
		"look up anew what --image refers to, instead of using what was fetched for it before")
	flags.StringVar(&f.shape, "shape", "", "`SHAPE` from the agent's configuration")
	flags.IntVar(&f.cpus, "cpus", 0, "number of CPUs")
	flags.StringVar(&f.memory, "memory", "", "`SIZE` of the VM's memory, for example 2G")
	flags.StringVar(&f.pool, "pool", "", "`POOL` of this host that the VM is of, as grange pool list shows them")
	f.disks.Register(flags)
	flags.StringVar(&f.network, "network", "",
		"none, user for outgoing connections only, or the `NAME` of a network of this host, as grange network list "+
			"--local shows them")
	flags.StringVar(&f.bandwidthIn, "bandwidth-in", "",
		"`RATE` that the VM receives at most, booked on this host, for example 500M; only on a network of this host")
	flags.StringVar(&f.bandwidthOut, "bandwidth-out", "", "`RATE` that the VM sends at most, likewise")
	flags = tuning.flags
	flags.StringVar(&f.pageSize, "page-size", "",
		"page size of the VM's memory: 2M, 1G, 0 for ordinary pages, a list in order of preference such as 1G,2M, or "+
			"any")
	flags.StringVar(&f.purpose, "purpose", "",
		"purpose that the VM is tuned for: compute (short-lived) or service (can be migrated)")
	flags.StringVar(&f.cpuModel, "cpu-model", "",
		"host-passthrough, host-model, maximum or the name of a CPU model (default: from the purpose)")
	flags.StringVar(&f.threadPolicy, "thread-policy", "",
		"use of SMT siblings: prefer whole cores, require whole cores, or isolate: one vCPU per core")
	flags.StringVar(&f.emulator, "emulator", "",
		"CPUs of QEMU's own threads: beside (reserved CPUs, or those of the vCPUs) or isolate (one additional CPU)")
	flags.StringVar(&f.numa, "numa", "", "guest NUMA nodes: auto, none or a number")
	flags.StringVar(&f.cache, "cache", "",
		"cache mode of disks: writeback, none, writethrough, directsync or unsafe (default: from the purpose)")
	flags = files.flags
	flags.StringArrayVar(&f.binds, "bind", nil,
		"bind mount a host directory in the VM: `"+farm.BindSyntax+"` (repeatable)")
	flags.StringArrayVar(&f.env, "env", nil, "set an environment variable: `K=V` (repeatable)")
	flags.StringVar(&f.workdir, "workdir", "", "working `DIR` in the VM")
	flags.StringArrayVar(&f.publish, "publish", nil, publishUsage)
	flags.BoolVarP(&f.noInput, "no-input", "n", false,
		"read standard input from /dev/null: for loops such as while read, whose input would be read otherwise")
	flags.BoolVar(&f.tty, "tty", false, "allocate a terminal for the command")
	flags = run.flags
	flags.DurationVar(&f.limit, "time", 0,
		"time limit, for example 1h30m: send TERM then, and end the VM 30 seconds later")
	flags.BoolVar(&f.wait, "wait", true, "wait until this host has room")
	flags.BoolVar(&f.noWait, "no-wait", false, "fail immediately if this host has no room")
	flags.BoolVar(&f.keep, "keep", false, "keep the VM after the command has ended, until it is stopped by hand")
	flags.BoolVarP(&f.quiet, "quiet", "q", false,
		"print no messages about waiting before the command starts or after it ends")
	flags.BoolVarP(&f.verbose, "verbose", "v", false,
		"print the duration of each phase in milliseconds, and what the site's policy set")
	flags = batch.flags
	flags.StringVar(&f.batch, "batch", "",
		"run in the place of a job of `SYSTEM` (slurm, gridengine, htcondor, pbs or lsf), with the job's allocation")
	flags.DurationVar(&f.waitTimeout, "wait-timeout", 0,
		"time to wait for an agent that does not answer before the batch system may requeue the job (default: 10s, "+
			"or the time announced by an agent that stopped)")
	app.OldFlag(flags, "patience", "wait-timeout") // a notice would be a line of each job's errors
	flags.StringArrayVar(&f.prologs, "task-prolog", nil,
		"run `SCRIPT` in the VM before the job, as Slurm runs a TaskProlog (repeatable)")
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
