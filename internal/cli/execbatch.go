package cli

import (
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/runner"
)

// inPlaceOfJob reports whether a command line, as far as it makes sense, is that of a wrapper.
func inPlaceOfJob(cmd *cobra.Command) bool {
	return cmd != nil && cmd.Name() == "exec" && cmd.Flags().Changed("batch")
}

// siteSocket leaves $GRANGE_SOCKET out of account: in the place of a batch job the environment is its user's, who could
// name an agent of their own there, in a VM of their own even, and have a queue's jobs run outside of the site's
// policy. A flag is the word of whoever wrote the hook.
func (a *app) siteSocket(cmd *cobra.Command) {
	if !cmd.Flags().Changed("socket") {
		a.socket = DefaultSocket
	}
}

// batchOptions turns the flags of a batch job into what takes its place; nil where there are none.
func (f *execFlags) batchOptions() (*runner.Batch, error) {
	if f.batch == "" {
		return nil, nil
	}
	kind, _ := systems.Find(farm.BatchSystem(f.batch))
	if kind.Wrapper == nil {
		return nil, usage("--batch "+strings.Join(batchWords(), "|"), "no batch system %q", f.batch)
	}
	return &runner.Batch{Kind: kind, Requeues: config.DefaultRequeues, WaitTimeout: f.waitTimeout,
		Prologs: f.prologs}, nil
}

// deathError carries the signal that the process is to die of through cobra.
type deathError struct{ signal syscall.Signal }

func (e deathError) Error() string { return "death by " + e.signal.String() }
