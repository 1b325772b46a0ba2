package batchsystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/batch/gridengine/setup"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/inherited"
)

// gridEngineCommands are the commands for Grid Engine.
type gridEngineCommands struct{ *app.App }

func (a gridEngineCommands) gridEngineCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "gridengine", Short: "Set up and check Grid Engine for jobs in virtual machines"}
	host := &cobra.Command{Use: "host", Short: "Add execution hosts to a cell, and remove them"}
	host.AddCommand(a.gridEngineHost("add", "Add an execution host to a queue", setup.AddHost),
		a.gridEngineHost("remove", "Remove a host from a queue and from the cell", setup.RemoveHost))
	cmd.AddCommand(a.gridEngineInstall(), a.gridEngineCheck(), a.gridEngineSensor(), a.gridEngineTerminate(),
		a.gridEngineShepherd(), a.gridEngineSignal("suspend", "Pause a job's VM", setup.Suspend),
		a.gridEngineSignal("resume", "Continue a job's VM", setup.Resume), host)
	return cmd
}

func gridEngineCell() *gridengine.Cell { return gridengine.FromEnvironment(os.Environ()) }

// setupFlags are what install and check ask for both.
func setupFlags(cmd *cobra.Command) *setup.Setup {
	s := &setup.Setup{}
	self, err := app.OwnPath()
	if err != nil {
		self = "/usr/local/bin/grange"
	}
	cmd.Flags().StringVar(&s.Queue, "queue", "", "cluster `QUEUE` whose jobs run in VMs")
	cmd.Flags().StringVar(&s.Host, "host", "",
		"execution `HOST` whose own configuration is used, by its name in Grid Engine")
	cmd.Flags().StringVar(&s.Links, "links", "/usr/local/libexec/grange",
		"`DIR` of the links that Grid Engine starts; the path is the same on every host")
	cmd.Flags().StringVar(&s.Program, "grange", self, "`PATH` of grange on the hosts (default: this program)")
	cmd.Flags().Lookup("grange").DefValue = ""
	app.RenamedFlag(cmd.Flags(), "program", "grange")
	cmd.Flags().BoolVar(&s.Shepherd, "small-jobs", false,
		"support jobs with less than 1.5G of h_vmem: root runs a link to grange before each job")
	cmd.Flags().BoolVar(&s.Logins, "logins", false,
		"do not change qlogin, or qrsh without a command: they run on the host")
	cmd.MarkFlagRequired("queue")
	cmd.Args, cmd.ValidArgsFunction = cobra.NoArgs, cobra.NoFileCompletions
	return s
}

func (a gridEngineCommands) gridEngineInstall() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{Use: "install --queue QUEUE [--host HOST]",
		Short: "Configure a queue to run its jobs in virtual machines",
		Long: `Configure a queue to run its jobs in virtual machines. The command creates the links that
Grid Engine starts, and sets the queue's starter, suspend and terminate methods, the
complexes vmslots and vmimages, and the host's load sensor. It prints each change. Settings
that are already correct are not changed, so a second run changes nothing.

Run it as a manager of the cell, on an administrative host, and as root if links are to be
created.`,
		Example: "  grange gridengine install --queue vm.q --host node17\n  grange gridengine install --queue vm.q " +
			"--dry-run"}
	s := setupFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be changed, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !filepath.IsAbs(s.Links) || !filepath.IsAbs(s.Program) {
			return app.Usage("", "--links and --grange are absolute paths")
		}
		plan, err := setup.Plan(cmd.Context(), gridEngineCell(), *s)
		if err != nil {
			return err
		}
		done := []string{}
		tell := func(what string) {
			done = append(done, what)
			if !a.JSON {
				fmt.Fprintln(a.Out, what)
			}
		}
		if dryRun {
			for _, change := range plan {
				done = append(done, change.What)
				if !a.JSON {
					fmt.Fprintln(a.Out, "would", change.What)
				}
			}
		} else {
			err = setup.Install(cmd.Context(), plan, tell)
		}
		if a.JSON { // also of what was done before it failed
			err = errors.Join(err, a.PrintJSON(map[string]any{"dry_run": dryRun, "changes": done}))
		}
		return err
	}
	return cmd
}

func (a gridEngineCommands) gridEngineCheck() *cobra.Command {
	cmd := &cobra.Command{Use: "check --queue QUEUE [--host HOST]",
		Short: "Check a queue whose jobs run in virtual machines",
		Long: `Check the configuration of a queue whose jobs run in virtual machines. The command reports
each problem with its consequence and its remedy.

Exit status 1: jobs cannot run, or could run outside of a VM.`}
	s := setupFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := setup.Check(cmd.Context(), gridEngineCell(), *s)
		if err != nil {
			return err
		}
		found = append(found, batch.CheckLogin(os.DirFS("/")))
		if batch.Worst(found) == batch.Good {
			found = append(found, batch.Finding{ID: "queue", Level: batch.Good, Where: s.Queue,
				Found: "its jobs run in virtual machines"})
		}
		return tellFindings(a.App, found)
	}
	return cmd
}

func (a gridEngineCommands) gridEngineSensor() *cobra.Command {
	var host string
	cmd := &cobra.Command{Use: "load-sensor", Short: "Report this host's free VMs and images to Grid Engine",
		Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if host == "" {
				name, err := os.Hostname()
				if err != nil {
					return err
				}
				host = name
			}
			return setup.Sensor(os.Stdin, a.Out, host,
				func() (setup.Load, error) { return a.gridEngineLoad(cmd.Context()) })
		}}
	cmd.Flags().StringVar(&host, "host", "", "name of this `HOST` in Grid Engine")
	return cmd
}

// sensorTimeout is less than the time between two reports: a host of yesterday's load is worse than one of none.
const sensorTimeout = 5 * time.Second

func (a gridEngineCommands) gridEngineLoad(ctx context.Context) (setup.Load, error) {
	ctx, cancel := context.WithTimeout(ctx, sensorTimeout)
	defer cancel()
	var l setup.Load
	host, err := a.Client().Host(ctx)
	if err != nil {
		return l, err
	}
	images, err := a.Client().Images(ctx)
	if err != nil {
		return l, err
	}
	free, err := farm.ParseCPUSet(host.Free)
	if err != nil {
		return l, err
	}
	l.Slots = free.Len()
	for _, i := range images {
		l.Images = append(l.Images, i.Name)
	}
	return l, nil
}

func (a gridEngineCommands) gridEngineSignal(use, short string, do func(pid int) error) *cobra.Command {
	return &cobra.Command{Use: use + " PID", Short: short, Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil {
				return app.Usage("grange gridengine "+use+" $job_pid", "invalid process ID %q", args[0])
			}
			return do(pid)
		}}
}

func (a gridEngineCommands) gridEngineTerminate() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{Use: "terminate PID", Short: "End a job: send TERM, wait, send KILL", Hidden: true,
		Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil {
				return app.Usage("grange gridengine terminate $job_pid", "invalid process ID %q", args[0])
			}
			return setup.Terminate(pid, grace)
		}}
	cmd.Flags().DurationVar(&grace, "grace", 5*time.Second, "time between TERM and KILL")
	return cmd
}

func (a gridEngineCommands) gridEngineShepherd() *cobra.Command {
	return &cobra.Command{Use: "shepherd -- NAME [ARGUMENT...]",
		Short: "Start sge_shepherd without the limit that prevents the wrapper's start", Hidden: true,
		Args: cobra.MinimumNArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			program := filepath.Join(gridEngineCell().Dir, "sge_shepherd")
			if !filepath.IsAbs(program) {
				return &farm.Error{Kind: farm.NotFound, Code: farm.CodeQconf, Message: "SGE_ROOT names no sge_shepherd",
					Hint: "start sge_execd with SGE_ROOT set, as its start script does"}
			}
			if err := setup.PrepareShepherd("."); err != nil {
				return err // the job goes into an error state: it must not run with limits that nobody read
			}
			return os.NewSyscallError(program, inherited.Exec(program, args, os.Environ()))
		}}
}

func (a gridEngineCommands) gridEngineHost(use, short string,
	do func(context.Context, *gridengine.Cell, setup.NewHost) error) *cobra.Command {
	var h setup.NewHost
	cmd := &cobra.Command{Use: use + " HOST --queue QUEUE", Short: short, Args: cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions, RunE: func(cmd *cobra.Command, args []string) error {
			h.Name = args[0]
			return do(cmd.Context(), gridEngineCell(), h)
		}}
	cmd.Flags().StringVar(&h.Queue, "queue", "", "cluster `QUEUE`")
	cmd.Flags().StringVar(&h.Group, "group", "@allhosts", "host `GROUP` of the queue")
	if use == "add" {
		cmd.Flags().IntVar(&h.Slots, "slots", 1, "number of slots of the queue on this host")
	}
	cmd.MarkFlagRequired("queue")
	return cmd
}
