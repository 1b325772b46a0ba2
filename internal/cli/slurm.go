package cli

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/slurm"
)

func (a *app) slurmCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "slurm", Short: "Set up Slurm for jobs in virtual machines, and check it"}
	cmd.AddCommand(a.slurmHook("prolog", "Refuse a job for which Slurm did not load grange's plug-in", slurm.Hooks.Prolog),
		a.slurmHook("epilog", "Clear up after a job", slurm.Hooks.Epilog))
	return cmd
}
