package batchsystem

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/limits"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// batchCommands are the commands for every batch system.
type batchCommands struct{ *app.App }

func (a batchCommands) batchCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "batch",
		Short: "Check a batch system's master; reserve resources for host jobs"}
	cmd.AddCommand(a.batchCheckCommand(), a.batchExplainCommand(), a.batchClaimCommand(), a.batchReleaseCommand())
	return cmd
}

type batchCheckFlags struct {
	system, root string
	conf         []string
	fleet        limits.Fleet
	all          bool
}

func (a batchCommands) batchCheckCommand() *cobra.Command {
	var f batchCheckFlags
	cmd := &cobra.Command{
		Use: "check", Short: "Check a batch system's master against the size of a fleet",
		Args: cobra.NoArgs,
		Long: `Check whether the master of a batch system is configured for a fleet of a given size: the
number of hosts, of VMs that join as nodes, and of jobs. The command reads the limits of the
master's process, the kernel's settings and the scheduler's configuration, and reports each
limit that is too low, with the formula and its source. It changes nothing.

Exit status 0: all limits found are sufficient. 1: the master will be slow. 3: the master
will refuse nodes or jobs.`,
		Example: `  grange batch check --hosts 400 --jobs 20000
  grange batch check --system lsf --conf lsf.conf --conf lsb.params --hosts 500 --vms 3500 --json
  qconf -ssconf >sched; qconf -sconf >conf; grange batch check --system gridengine --conf sched --conf conf --hosts 200`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.batchCheck(f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.system, "system", "",
		"slurm, gridengine, htcondor, pbs or lsf (default: the system whose master runs here)")
	flags.StringVar(&f.root, "root", "/", "read the host's files below this `DIR`: / or a recorded host")
	flags.StringArrayVar(&f.conf, "conf", nil,
		"`FILE` with the scheduler's configuration or the output of its command (repeatable; default: the usual "+
			"location)")
	flags.IntVar(&f.fleet.Hosts, "hosts", 100, "number of hosts that are nodes")
	flags.IntVar(&f.fleet.VMs, "vms", 0, "number of VMs that join as nodes at the same time")
	flags.IntVar(&f.fleet.Jobs, "jobs", 10000, "number of jobs, running and pending")
	flags.BoolVar(&f.all, "all", false, "print sufficient limits as well")
	cmd.RegisterFlagCompletionFunc("system", cobra.FixedCompletions(app.BatchWords(),
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a batchCommands) batchCheck(f batchCheckFlags) error {
	if f.fleet.Hosts < 0 || f.fleet.VMs < 0 || f.fleet.Jobs < 0 {
		return app.Usage("", "a fleet of %d hosts, %d VMs and %d jobs", f.fleet.Hosts, f.fleet.VMs, f.fleet.Jobs)
	}
	files := os.DirFS(f.root)
	system := farm.BatchSystem(f.system)
	if f.system == "" {
		if system = masterOn(files); system == "" {
			return app.Usage("--system "+strings.Join(app.BatchWords(), "|"), "no batch system's master runs here")
		}
	} else if !slices.Contains(systems.WithJobs(), system) {
		return app.Usage("--system "+strings.Join(app.BatchWords(), "|"), "no batch system %q", f.system)
	}
	var conf []string
	for _, name := range f.conf {
		text, err := os.ReadFile(name)
		if err != nil {
			return &farm.Error{Kind: farm.NotFound, Code: farm.CodeBatchLimits, Message: err.Error(),
				Hint: "--conf names a file of this machine, also with --root"}
		}
		conf = append(conf, string(text))
	}
	kind, _ := systems.Find(system)
	m, err := limits.Read(files.(fs.ReadDirFS), kind.Limits, conf)
	if err != nil {
		return err
	}
	results := limits.Check(m, f.fleet)
	if err := a.printLimits(system, m, f, results); err != nil {
		return err
	}
	switch limits.Worst(results) {
	case limits.Fails:
		return app.ExitError{Status: app.ExitFails}
	case limits.Slow:
		return app.ExitError{Status: app.ExitSlow}
	}
	return nil
}

// masterOn is the batch system whose master runs on a host; "" for none.
func masterOn(files fs.FS) farm.BatchSystem {
	i := slices.IndexFunc(systems.All, func(k batch.Kind) bool { return k.Limits.Runs(files) })
	if i < 0 {
		return ""
	}
	return systems.All[i].Name
}

// limitJSON is one check for programs.
type limitJSON struct {
	ID      string `json:"id"`
	What    string `json:"what"`
	Verdict string `json:"verdict"` // ok, unknown, slow, fails
	Found   string `json:"found,omitempty"`
	Needed  string `json:"needed"`
	Formula string `json:"formula"`
	Source  string `json:"source"`
	Fix     string `json:"fix,omitempty"`
}

func verdictOf(r limits.Result) string {
	switch {
	case r.OK:
		return "ok"
	case r.Unknown:
		return "unknown"
	}
	return string(r.Severity)
}

func (a batchCommands) printLimits(system farm.BatchSystem, m limits.Master, f batchCheckFlags,
	results []limits.Result) error {
	if a.JSON {
		checks := []limitJSON{}
		for _, r := range results {
			j := limitJSON{ID: r.ID, What: r.What, Verdict: verdictOf(r), Found: r.Found, Needed: r.Needed,
				Formula: r.Formula, Source: r.Source}
			if !r.OK {
				j.Fix = r.Fix
			}
			checks = append(checks, j)
		}
		return a.PrintJSON(map[string]any{"system": system, "process": m.Process, "hosts": f.fleet.Hosts,
			"vms": f.fleet.VMs, "jobs": f.fleet.Jobs, "checks": checks})
	}
	looked := m.Process
	if looked == "" {
		looked = "no process of it runs here"
	}
	fmt.Fprintf(a.Out, "%s for %d hosts, %d VMs as nodes, %d jobs: %s\n", system, f.fleet.Hosts, f.fleet.VMs,
		f.fleet.Jobs, looked)
	w := output.NewColumns(a.Out)
	enough, unknown := 0, 0
	fmt.Fprintln(w, "VERDICT\tCHECK\tFOUND\tNEEDED\tWHAT")
	for _, r := range results {
		if r.OK {
			enough++
		}
		if r.Unknown {
			unknown++
		}
		if !r.OK || f.all {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", verdictOf(r), r.ID, app.OrNone(r.Found), r.Needed, r.What+": "+r.Formula)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if !r.OK && !r.Unknown {
			fmt.Fprintf(a.Out, "\n%s: %s\n  because: %s (%s)\n", r.ID, r.Fix, r.Formula, r.Source)
		}
	}
	fmt.Fprintf(a.Out, "%d of %d are enough; %d are not to be seen\n", enough, len(results), unknown)
	return nil
}

func (a batchCommands) batchExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain", Short: "Print what the calling process would get as a batch job, and why", Args: cobra.NoArgs,
		Long: `Print what the agent would allot to the calling process as a batch job: image, shape, CPUs,
memory and binds. Run the command in a job's script on the host, or by hand. The agent
identifies the job by the ancestors and control groups of the process. The reasons printed
are the rules of the site's policy that apply to the job.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			g, err := a.Client().Grant(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(g)
			}
			job := "no batch job"
			if g.Batch != "" {
				job = g.Batch + " job " + g.BatchJob
			}
			fmt.Fprintf(a.Out, "caller   %s\nimage    %s\nshape    %s\nCPUs     %d of %s\nmemory   %v\nbinds    %s\n",
				job, app.OrNone(g.Image), app.OrNone(g.Shape), g.Slots, app.OrNone(g.CPUs),
				farm.Bytes(g.Memory).Rounded(), app.OrNone(strings.Join(g.Binds, " ")))
			for _, r := range g.Reasons {
				fmt.Fprintf(a.Out, "because  %s\n", r)
			}
			return nil
		},
	}
}
