// Package cli is the whole command line, of the commands in its folders: one for each heading of `grange --help`, one
// file a noun. They parse, call what decides, and print; they decide nothing about VMs.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/cli/access"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/batchsystem"
	"github.com/grange-project/grange/internal/cli/bench"
	"github.com/grange-project/grange/internal/cli/capacity"
	"github.com/grange-project/grange/internal/cli/daemon"
	"github.com/grange-project/grange/internal/cli/disks"
	"github.com/grange-project/grange/internal/cli/filesystems"
	"github.com/grange-project/grange/internal/cli/fleet"
	"github.com/grange-project/grange/internal/cli/gateways"
	"github.com/grange-project/grange/internal/cli/host"
	"github.com/grange-project/grange/internal/cli/incidents"
	"github.com/grange-project/grange/internal/cli/job"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/cli/tune"
	"github.com/grange-project/grange/internal/cli/usage"
	"github.com/grange-project/grange/internal/cli/vm"
	"github.com/grange-project/grange/internal/runner"
)

// Main runs the command line and returns the exit status.
func Main(args []string) int {
	out := &output.Stream{To: os.Stdout}
	a := &app.App{Out: output.Text{To: out}, Err: output.Text{To: os.Stderr}}
	root := grange(a)
	root.SetArgs(args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd, err := root.ExecuteContextC(ctx)
	if lost := out.Lost(); err == nil || errors.As(err, new(app.ExitError)) && lost != nil {
		err = lost
	}
	var death app.DeathError
	if errors.As(err, &death) {
		return runner.Die(death.Signal)
	}
	var exit app.ExitError
	if errors.As(err, &exit) {
		return exit.Status
	}
	if err != nil {
		app.PrintError(a.Err, err)
		if inPlaceOfJob(cmd) { // its batch system would take any other status for the job's own
			return batch.ExitNever
		}
		return app.StatusOf(err)
	}
	return 0
}

// New is the whole command line, which prints to out.
func New(out io.Writer) *cobra.Command {
	root := grange(&app.App{Out: out, Err: out})
	root.SetOut(out)
	root.SetErr(out)
	return root
}

// grange is the whole command line.
func grange(a *app.App) *cobra.Command {
	return a.Tree(
		app.Group{Title: "Jobs", Commands: append(job.Commands(a), hookCommand(a))},
		app.Group{Title: "Virtual machines", Commands: vm.Commands(a)},
		app.Group{Title: "Hosts", Commands: slices.Concat(daemon.AgentCommands(a), host.Commands(a), disks.Commands(a),
			filesystems.Commands(a), gateways.Commands(a), tune.Commands(a), bench.Commands(a))},
		app.Group{Title: "Batch systems", Commands: batchsystem.Commands(a)},
		app.Group{Title: "Fleet", Commands: slices.Concat(daemon.ServerCommands(a), fleet.Commands(a),
			usage.Commands(a), capacity.Commands(a), incidents.Commands(a))},
		app.Group{Title: "Access", Commands: access.Commands(a)},
		app.Group{Title: "", Commands: []*cobra.Command{manCommand()}})
}

// inPlaceOfJob reports whether a command line, as far as it makes sense, is that of a wrapper.
func inPlaceOfJob(cmd *cobra.Command) bool {
	return cmd != nil && cmd.Name() == "exec" && cmd.Flags().Changed("batch")
}
