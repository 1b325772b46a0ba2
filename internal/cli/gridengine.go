package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/farm"
)

func (a *app) gridEngineCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "gridengine", Short: "Set up Grid Engine for jobs in virtual machines, and check it"}
	host := &cobra.Command{Use: "host", Short: "Let execution hosts join and leave a cell"}
	host.AddCommand(a.gridEngineHost("add", "Make a host an execution host of a queue", (*gridengine.Cell).AddHost),
		a.gridEngineHost("remove", "Take a host out of a queue and out of the cell", (*gridengine.Cell).RemoveHost))
	cmd.AddCommand(a.gridEngineInstall(), a.gridEngineCheck(), a.gridEngineSensor(), a.gridEngineTerminate(),
		a.gridEngineShepherd(), a.gridEngineSignal("suspend", "Pause a job's VM", gridengine.Suspend),
		a.gridEngineSignal("resume", "Let a job's VM go on", gridengine.Resume), host)
	return cmd
}

func gridEngineCell() *gridengine.Cell { return gridengine.FromEnvironment(os.Environ()) }

// setupFlags are what install and check ask for both.
func setupFlags(cmd *cobra.Command) *gridengine.Setup {
	s := &gridengine.Setup{}
	self, err := ownPath()
	if err != nil {
		self = "/usr/local/bin/grange"
	}
	cmd.Flags().StringVar(&s.Queue, "queue", "", "cluster queue whose jobs run in VMs")
	cmd.Flags().StringVar(&s.Host, "host", "",
		"execution host whose own configuration is meant, as Grid Engine calls it")
	cmd.Flags().StringVar(&s.Links, "links", "/usr/local/libexec/grange",
		"directory of the links that Grid Engine starts; the same path on every host")
	cmd.Flags().StringVar(&s.Program, "grange", self, "`PATH` of grange on the hosts (default: this program)")
	cmd.Flags().Lookup("grange").DefValue = ""
	renamedFlag(cmd.Flags(), "program", "grange")
	cmd.Flags().BoolVar(&s.Shepherd, "small-jobs", false,
		"also for jobs with less than 1.5G of h_vmem: root runs a link to grange before each job")
	cmd.Flags().BoolVar(&s.Logins, "logins", false,
		"leave qlogin and qrsh without a command as they are: they run on the host")
	cmd.MarkFlagRequired("queue")
	cmd.Args, cmd.ValidArgsFunction = cobra.NoArgs, cobra.NoFileCompletions
	return s
}

func (a *app) gridEngineInstall() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{Use: "install --queue QUEUE [--host HOST]",
		Short: "Have a queue's jobs run in virtual machines",
		Long: `Have the jobs of a queue run in virtual machines: makes the links that Grid Engine starts, and sets the queue's starter, suspend and
terminate methods, the complexes vmslots and vmimages, and the host's load sensor. Prints each change. What is set already stays; a
second call changes nothing. It needs to be run by a manager of the cell, on an administrative host, and as root for the links.`,
		Example: "  grange gridengine install --queue vm.q --host node17\n  grange gridengine install --queue vm.q " +
			"--dry-run"}
	s := setupFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be changed, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !filepath.IsAbs(s.Links) || !filepath.IsAbs(s.Program) {
			return usage("", "--links and --program are absolute paths")
		}
		plan, err := gridEngineCell().Plan(cmd.Context(), *s)
		if err != nil {
			return err
		}
		done := []string{}
		tell := func(what string) {
			done = append(done, what)
			if !a.json {
				fmt.Fprintln(a.out, what)
			}
		}
		if dryRun {
			for _, change := range plan {
				done = append(done, change.What)
				if !a.json {
					fmt.Fprintln(a.out, "would", change.What)
				}
			}
		} else {
			err = gridengine.Install(cmd.Context(), plan, tell)
		}
		if a.json { // also of what was done before it failed
			err = errors.Join(err, a.printJSON(map[string]any{"dry_run": dryRun, "changes": done}))
		}
		return err
	}
	return cmd
}

func (a *app) gridEngineCheck() *cobra.Command {
	cmd := &cobra.Command{Use: "check --queue QUEUE [--host HOST]",
		Short: "Say what is wrong with a queue whose jobs are to run in virtual machines",
		Long: "Say what is wrong with a queue whose jobs are to run in virtual machines, why, and what to do. The " +
			"exit status is 1 when jobs could\nrun where they must not, or not at all."}
	s := setupFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := gridEngineCell().Check(cmd.Context(), *s)
		if err != nil {
			return err
		}
		login := batch.CheckLogin(os.DirFS("/"))
		login.ID = "login"
		found = append(found, login)
		if batch.Worst(found) == batch.Good {
			found = append(found, batch.Finding{ID: "queue", Level: batch.Good, Where: s.Queue,
				Found: "its jobs run in virtual machines"})
		}
		return a.tellFindings(found)
	}
	return cmd
}

func (a *app) gridEngineSensor() *cobra.Command {
	var host string
	cmd := &cobra.Command{Use: "load-sensor", Short: "Tell Grid Engine of this host's free VMs and images",
		Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if host == "" {
				name, err := os.Hostname()
				if err != nil {
					return err
				}
				host = name
			}
			return gridengine.Sensor(os.Stdin, a.out, host,
				func() (gridengine.Load, error) { return a.gridEngineLoad(cmd.Context()) })
		}}
	cmd.Flags().StringVar(&host, "host", "", "the host as Grid Engine calls it")
	return cmd
}

// sensorTimeout is less than the time between two reports: a host of yesterday's load is worse than one of none.
const sensorTimeout = 5 * time.Second

func (a *app) gridEngineLoad(ctx context.Context) (gridengine.Load, error) {
	ctx, cancel := context.WithTimeout(ctx, sensorTimeout)
	defer cancel()
	var l gridengine.Load
	host, err := a.client().Host(ctx)
	if err != nil {
		return l, err
	}
	images, err := a.client().Images(ctx)
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

func (a *app) gridEngineSignal(use, short string, do func(pid int) error) *cobra.Command {
	return &cobra.Command{Use: use + " PID", Short: short, Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil {
				return usage("grange gridengine "+use+" $job_pid", "invalid process ID %q", args[0])
			}
			return do(pid)
		}}
}

func (a *app) gridEngineTerminate() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{Use: "terminate PID", Short: "End a job: TERM, time to clean up, KILL", Hidden: true,
		Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil {
				return usage("grange gridengine terminate $job_pid", "invalid process ID %q", args[0])
			}
			return gridengine.Terminate(pid, grace)
		}}
	cmd.Flags().DurationVar(&grace, "grace", 5*time.Second, "time between TERM and KILL")
	return cmd
}

func (a *app) gridEngineShepherd() *cobra.Command {
	return &cobra.Command{Use: "shepherd -- NAME [ARGUMENT...]",
		Short: "Start sge_shepherd without the limit that keeps the wrapper from starting", Hidden: true,
		Args: cobra.MinimumNArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			program := filepath.Join(gridEngineCell().Dir, "sge_shepherd")
			if !filepath.IsAbs(program) {
				return &farm.Error{Kind: farm.NotFound, Code: farm.CodeQconf, Message: "SGE_ROOT names no sge_shepherd",
					Hint: "start sge_execd with SGE_ROOT set, as its start script does"}
			}
			if err := gridengine.PrepareShepherd("."); err != nil {
				return err // the job goes into an error state: it must not run with limits that nobody read
			}
			return os.NewSyscallError(program, syscall.Exec(program, args, os.Environ()))
		}}
}

func (a *app) gridEngineHost(use, short string,
	do func(*gridengine.Cell, context.Context, gridengine.NewHost) error) *cobra.Command {
	var h gridengine.NewHost
	cmd := &cobra.Command{Use: use + " HOST --queue QUEUE", Short: short, Args: cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions, RunE: func(cmd *cobra.Command, args []string) error {
			h.Name = args[0]
			return do(gridEngineCell(), cmd.Context(), h)
		}}
	cmd.Flags().StringVar(&h.Queue, "queue", "", "cluster queue")
	cmd.Flags().StringVar(&h.Group, "group", "@allhosts", "host group of the queue")
	if use == "add" {
		cmd.Flags().IntVar(&h.Slots, "slots", 1, "slots of the queue on this host")
	}
	cmd.MarkFlagRequired("queue")
	return cmd
}
