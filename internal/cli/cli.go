// Package cli is the command line: one file a noun. It wires packages together and prints; it decides nothing about
// VMs.
package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/runner"
)

// Main runs the command line and returns the exit status.
func Main(args []string) int {
	out := &output.Stream{To: os.Stdout}
	a := &app{out: output.Text{To: out}, err: output.Text{To: os.Stderr}}
	root := grange(a)
	root.SetArgs(args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd, err := root.ExecuteContextC(ctx)
	if lost := out.Lost(); err == nil || errors.As(err, new(exitError)) && lost != nil {
		err = lost
	}
	var death deathError
	if errors.As(err, &death) {
		return runner.Die(death.signal)
	}
	var exit exitError
	if errors.As(err, &exit) {
		return exit.status
	}
	if err != nil {
		printError(a.err, err)
		if inPlaceOfJob(cmd) { // its batch system would take any other status for the job's own
			return batch.ExitNever
		}
		return statusOf(err)
	}
	return 0
}

// grange is the whole command line.
func grange(a *app) *cobra.Command {
	return a.tree(
		commandGroup{"Jobs", append(commandsOfJobs(a), hookCommand(a))},
		commandGroup{"Virtual machines", commandsOfVMs(a)},
		commandGroup{"Hosts", slices.Concat(commandsOfAgent(a), commandsOfHosts(a), commandsOfTuning(a))},
		commandGroup{"Batch systems", commandsOfBatchSystems(a)},
		commandGroup{"Fleet", slices.Concat(commandsOfServer(a), commandsOfFleet(a))},
		commandGroup{"Access", commandsOfAccess(a)},
		commandGroup{"", []*cobra.Command{manCommand()}})
}

// inPlaceOfJob reports whether a command line, as far as it makes sense, is that of a wrapper.
func inPlaceOfJob(cmd *cobra.Command) bool {
	return cmd != nil && cmd.Name() == "exec" && cmd.Flags().Changed("batch")
}
